"""An error from inside a round says where it happened, and how to repeat it."""

import traceback

import pytest
import torch
from support import cohort_of, sgd, tiny_task, toy_federation

from fedlib.engine.executors import Batched, Loop
from fedlib.engine.graphs import Graphs
from fedlib.errors import DivergedError

SIZES = (8, 8, 5, 8, 8)  # batches of 4, and one of 1


def failing(batch_size, error=ArithmeticError):
    """A loss that fails on batches of that size."""
    task = tiny_task()

    def loss(params, batch):
        if len(batch.y) == batch_size:
            raise error("of this test")
        return task.loss(params, batch)

    return loss


def told(executor, loss=None, error=ArithmeticError, ids=(0, 2, 3), call=None):
    """The last lines of the traceback of `call(cohort)`, or of a training, which fails."""
    task = tiny_task()
    cohort = cohort_of(task, toy_federation(SIZES, unseen=1), ids, round=6, executor=executor)
    start = cohort.broadcast(task.init(0))
    with pytest.raises(error) as caught:
        call(cohort) if call else cohort.fit(loss or failing(1), start, local=sgd())
    return "".join(traceback.format_exception(caught.value)).splitlines()[-3:]


def test_the_loop_tells_stage_round_client_and_shapes():
    lines = told(Loop())
    assert lines[0] == "ArithmeticError: of this test"
    assert lines[1] == (
        "This happened in training (fit) of round 7, client 2, on a batch of x [1, 4] "
        "torch.float64 and y [1]."
    )
    assert "executor=loop" in lines[2]


@pytest.mark.parametrize(
    ("executor", "batch"),
    [(Batched, ", on a batch of x [3, 4, 4] torch.float64 and y [3, 4]"), (Graphs, "")],
)
def test_a_batched_round_tells_who_was_in_the_block(executor, batch):
    lines = told(executor(), loss=failing(4))
    who = "clients [0, 2, 3] together"
    assert lines[1] == f"This happened in training (fit) of round 7, {who}{batch}."


@pytest.mark.parametrize("executor", [Loop, Batched])
def test_scoring_tells_its_split_and_whether_models_are_shared(executor):
    def fail(row, batch):
        raise ArithmeticError("of this test")

    def score(rows):
        return told(executor(), ids=[1, 3], call=lambda c: c.score(fail, rows, split="test"))

    own, pooled = score(torch.arange(2.0)), score(torch.zeros(()).expand(2))
    who = "client 1, on a batch of x [4, 4]" if executor is Loop else "clients [1, 3] together, on"
    assert own[1].startswith(f"This happened in scoring (test) of round 7, {who}")
    assert "clients [1, 3] together, on a batch of x [8, 4]" in pooled[1]


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, DivergedError])
@pytest.mark.parametrize("executor", [Loop, Batched, Graphs])
def test_errors_that_tell_everything_themselves_have_no_note(error, executor):
    lines = told(executor(), loss=failing(4, error), error=error)
    assert lines[-1].endswith(f"{error.__name__}: of this test")
