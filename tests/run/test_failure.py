"""An error from inside a round says where it happened, and how to repeat it."""

import traceback
from dataclasses import replace

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


def told(executor, loss=None, error=ArithmeticError, fit=None):
    """The last lines of the traceback of a failing call, and the cohort."""
    task = tiny_task()
    cohort = cohort_of(task, toy_federation(SIZES, unseen=1), [0, 2, 3], round=6)
    cohort = replace(cohort, executor=executor)
    start = cohort.broadcast(task.init(0))
    with pytest.raises(error) as caught:
        (fit or (lambda: cohort.fit(loss or failing(1), start, local=sgd())))()
    return "".join(traceback.format_exception(caught.value)).splitlines()[-3:], cohort


def test_the_loop_tells_stage_round_client_and_shapes():
    lines, cohort = told(Loop())
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
    lines, _ = told(executor(), loss=failing(4))
    who = "clients [0, 2, 3] together"
    assert lines[1] == f"This happened in training (fit) of round 7, {who}{batch}."


@pytest.mark.parametrize("executor", [Loop, Batched])
def test_scoring_tells_its_split_and_whether_models_are_shared(executor):
    task = tiny_task()
    cohort = cohort_of(task, toy_federation(SIZES, unseen=1), [1, 3])
    cohort = replace(cohort, executor=executor())

    def fail(row, batch):
        raise ArithmeticError("of this test")

    rows, shared = torch.arange(2.0), torch.zeros(()).expand(2)
    own, _ = told(executor(), fit=lambda: cohort.score(fail, rows, split="test"))
    who = "client 1, on a batch of x [4, 4]" if executor is Loop else "clients [1, 3] together, on"
    assert own[1].startswith(f"This happened in scoring (test) of round 1, {who}")
    pooled, _ = told(executor(), fit=lambda: cohort.score(fail, shared, split="test"))
    assert "clients [1, 3] together, on a batch of x [8, 4]" in pooled[1]


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, DivergedError])
@pytest.mark.parametrize("executor", [Loop, Batched, Graphs])
def test_errors_that_tell_everything_themselves_have_no_note(error, executor):
    lines, _ = told(executor(), loss=failing(4, error), error=error)
    assert lines[-1].endswith(f"{error.__name__}: of this test")
