"""Event files: TensorBoard reads back what the run's files say, and nothing else is repeated."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import dry_runs
import made_up
import numpy as np
import pytest
import workflow
from tensorboard.backend.event_processing.event_accumulator import TENSORS, EventAccumulator
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
from tensorboard.util.tensor_util import make_ndarray
from test_stages import assert_one_line, run_here

from fedlib.errors import DataError
from fedlib.report import events
from fedlib.results import RunResult, Scores, View
from fedlib.workflow import config, shell
from fedlib.workflow.plan import Plan

ROOT = workflow.ROOT
NAME = "events.out.tfevents.fedlib"
SPEC = {"method": "fedem", "seed": 3, "local": {"lr": 0.1}}
TEST, TRAIN = View("seen", "default", "test"), View("seen", "default", "train")

# Four rounds, evaluated before training and after every other one; clients with 4 and 6 examples.
CORRECT = [[1, 2], [2, 3], [4, 5]]
LOSS = [[1.0, 2.0], [0.5, 1.0], [0.25, 0.5]]
TOTALS = {
    "bytes_down": [0, 3_000_000_001, 6_000_000_002],
    "bytes_up": [0, 100, 200],
    "examples": [0, 20, 40],
    "client_rounds": [0, 4, 8],
}
TRAIN_LOSS = [0.9, 0.7, 0.6, 0.55]
PI = [[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]]  # the third client is unseen


def scores(correct, loss) -> Scores:
    return Scores(np.arange(2), np.array([4, 6]), np.array(correct, float), np.array(loss))


def results(**changes) -> tuple[RunResult, RunResult]:
    """History and evaluation of the run above."""
    history = RunResult(
        round=np.array([0, 2, 4]),
        scores={TEST: scores(CORRECT, LOSS)},
        **{name: np.array(totals) for name, totals in TOTALS.items()},
        train_loss=np.array(TRAIN_LOSS),
        diagnostics={"pi": np.array(PI)},
        spec=SPEC,
        provenance={"host": "here", "seconds": 1.0},
    )
    history = replace(history, **changes)
    evaluation = replace(
        history,
        round=np.array([4]),
        scores={TEST: scores(CORRECT[-1:], LOSS[-1:]), TRAIN: scores([[3, 3]], [[0.2, 0.7]])},
        **{name: np.zeros(1, int) for name in TOTALS},
        train_loss=np.empty(0),
        # As evaluations have them.
        spec={**history.spec, "views": [["*", "*", "*"]], "predictions": False},
    )
    return history, evaluation


def read(path: Path) -> EventAccumulator:
    """The file as TensorBoard sees it; 0 stands for every point, where the default is a sample."""
    return EventAccumulator(str(path), size_guidance={TENSORS: 0}).Reload()


def points(read: EventAccumulator, tag: str) -> list[tuple[int, float]]:
    """(round, value) of every point of a scalar."""
    return [(e.step, make_ndarray(e.tensor_proto).item()) for e in read.Tensors(tag)]


def single(pairs) -> list[tuple[int, float]]:
    """Values as TensorBoard's scalars hold them, in single precision."""
    return [(number, float(np.float32(value))) for number, value in pairs]


@pytest.fixture
def written(tmp_path) -> EventAccumulator:
    """The event file of the run above."""
    events.write(*results(), tmp_path / NAME)
    return read(tmp_path / NAME)


# --- The file -------------------------------------------------------------------------------------


def test_every_evaluated_round_is_there(written):
    accuracies = [(0, 3 / 10), (2, 5 / 10), (4, 9 / 10)]
    assert points(written, "seen/default/test/accuracy") == single(accuracies)
    losses = [(0, (4 * 1.0 + 6 * 2.0) / 10), (2, (4 * 0.5 + 6 * 1.0) / 10)]
    losses.append((4, (4 * 0.25 + 6 * 0.5) / 10))
    assert points(written, "seen/default/test/loss") == single(losses)
    worst = [(0, min(1 / 4, 2 / 6)), (2, min(2 / 4, 3 / 6)), (4, min(4 / 4, 5 / 6))]
    assert points(written, "seen/default/test/bottom10") == single(worst)


def test_traffic_is_at_the_evaluations_and_training_loss_at_every_round(written):
    for name, totals in TOTALS.items():
        assert points(written, f"all/{name}") == single(zip([0, 2, 4], totals, strict=True))
    assert points(written, "all/train_loss") == single(enumerate(TRAIN_LOSS, start=1))


def test_what_only_the_final_evaluation_has_is_one_point_at_the_last_round(written):
    assert points(written, "seen/default/train/accuracy") == single([(4, (3 + 3) / 10)])
    assert points(written, "seen/default/train/loss") == single([(4, (4 * 0.2 + 6 * 0.7) / 10)])


def test_every_metric_of_every_view_is_there_and_nothing_else(written):
    metrics = ("accuracy", "accuracy_client_mean", "accuracy_client_std", "bottom10")
    metrics += ("bottom10_mean", "loss")
    tags = {f"{'/'.join(view)}/{metric}" for view in (TEST, TRAIN) for metric in metrics}
    tags |= {f"all/{metric}" for metric in (*TOTALS, "bytes", "train_loss")}
    assert set(written.Tags()["tensors"]) == tags | {"specification", "seen/pi_0", "seen/pi_1"}


def test_scalars_are_what_both_loaders_of_tensorboard_show(written):
    """The fast loader, which is the default on Linux, leaves out scalars in double precision."""
    scalars = written.PluginTagToContent("scalars")
    assert len(scalars) == 2 * 6 + 6
    for tag in scalars:
        types = {make_ndarray(event.tensor_proto).dtype.name for event in written.Tensors(tag)}
        assert types == {"float32"}


def test_the_specification_is_a_text(written):
    assert list(written.PluginTagToContent("text")) == ["specification"]
    [event] = written.Tensors("specification")
    lines = make_ndarray(event.tensor_proto).item().decode().splitlines()
    assert all(line.startswith("    ") for line in lines)  # in Markdown: a block of code
    assert json.loads("\n".join(lines)) == SPEC
    assert event.step == 0


def test_mixture_weights_are_a_histogram_of_the_seen_clients_for_each_expert(written):
    assert list(written.PluginTagToContent("histograms")) == ["seen/pi_0", "seen/pi_1"]
    for expert, expected in enumerate([(0.25, 1.0), (0.0, 0.75)]):
        [event] = written.Tensors(f"seen/pi_{expert}")
        left, right, counts = make_ndarray(event.tensor_proto).T
        assert (left[0], right[-1], counts.sum()) == (*expected, 2)
        assert (counts[0], counts[-1], event.step) == (1, 1, 4)


def test_a_method_without_mixture_weights_has_no_histogram(tmp_path):
    events.write(*results(diagnostics={}), tmp_path / NAME)
    tags = read(tmp_path / NAME).Tags()["tensors"]
    assert "seen/default/test/accuracy" in tags
    assert not [tag for tag in tags if "pi_" in tag]


def test_a_run_over_many_rounds_comes_back_whole(tmp_path):
    run = made_up.run("fedem", "fedem", seed=1, rounds=60)
    history = run["history"]
    count = events.write(run["history"], run["evaluation"], tmp_path / NAME)
    seen = history.scores[TEST]
    accuracies = [row.sum() / seen.count.sum() for row in seen.correct]
    back = read(tmp_path / NAME)
    assert points(back, "seen/default/test/accuracy") == single(enumerate(accuracies))
    # 61 evaluations of one view and of the cost, 60 training losses, two final views and FLOPs.
    assert count == 61 * (6 + 5) + 60 + 2 * 6 + 2
    assert [number for number, _ in points(back, "all/flops")] == [60]
    assert sum(len(back.Tensors(tag)) for tag in back.PluginTagToContent("scalars")) == count


def test_the_same_run_gives_the_same_bytes(tmp_path):
    one, other = tmp_path / "one" / NAME, tmp_path / "other" / NAME
    events.write(*results(), one)
    events.write(*results(provenance={"host": "there", "seconds": 2.0}), other)
    assert one.read_bytes() == other.read_bytes()
    assert os.listdir(one.parent) == [NAME]


def test_times_are_rounds(written):
    events = written.Tensors("seen/default/test/accuracy")
    assert [event.wall_time for event in events] == [0.0, 2.0, 4.0]


# --- Errors ---------------------------------------------------------------------------------------


def test_files_of_two_specifications_are_refused(tmp_path):
    history, evaluation = results()
    with pytest.raises(DataError, match="different run specifications.*; evaluate again"):
        events.write(
            history, replace(evaluation, spec={**evaluation.spec, "seed": 4}), tmp_path / NAME
        )
    assert os.listdir(tmp_path) == []


def test_files_that_contradict_each_other_are_refused(tmp_path):
    history, evaluation = results()
    with pytest.raises(DataError, match="history ends at round 4, the evaluation is of round 3"):
        events.write(history, replace(evaluation, round=np.array([3])), tmp_path / NAME)


def test_mixture_weights_of_too_few_clients_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"weights of shape \(1, 2\) do not cover client 1"):
        events.write(*results(diagnostics={"pi": np.array(PI[:1])}), tmp_path / NAME)


def test_the_script_refuses_another_specification_in_one_line(tmp_path, capsys):
    for result, name in zip(results(), ("history", "evaluation"), strict=True):
        result.save(tmp_path / f"{name}.h5")
    plan = Plan({})
    given = {"spec": plan.spec("events", **plan.trainings()[0]._asdict()), "out": tmp_path / NAME}
    given |= {name: tmp_path / f"{name}.h5" for name in ("history", "evaluation")}
    words = [f"--{name}={value}" for name, value in given.items()]
    outcome = run_here("events", words), *capsys.readouterr()
    assert_one_line(outcome, "history.h5 was written for another run specification; train again")
    assert not (tmp_path / NAME).exists()


def test_the_job_loads_neither_pytorch_nor_tensorflow():
    code = (
        "import sys, fedlib.report.events\n"
        "print([m for m in ('torch', 'tensorflow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


# --- The workflow ---------------------------------------------------------------------------------


def job_names(output: str) -> set[tuple]:
    return {(job.rule, *job.wildcards.values()) for job in dry_runs.parse(output)}


@pytest.mark.slow
def test_the_switch_adds_event_files_to_a_finished_run_and_repeats_nothing(finished, tmp_path):
    folder = workflow.clone(finished, tmp_path)
    base = config.read([ROOT / "config.yaml", ROOT / workflow.SMOKE])
    plan = Plan(base | {"tensorboard": True})
    on = workflow.smoke("--config", "tensorboard=true")

    code, output = workflow.dry_run(folder, on)
    assert code == 0, output
    runs = {tuple(map(str, cell)) for cell in plan.trainings()}
    assert job_names(output) == {("events", *run) for run in runs}
    done = workflow.snakemake(folder, *on, "--printshellcmds")
    assert done.returncode == 0, done.stdout
    tree = EventMultiplexer().AddRunsFromDirectory(str(folder / "results/demo-smoke/tensorboard"))
    assert set(tree.Runs()) == {
        f"{paper}/{federation}/{label}/seed{seed}" for paper, federation, label, seed in runs
    }
    for arguments in (on, workflow.smoke()):
        code, output = workflow.dry_run(folder, arguments)
        assert (code, dry_runs.parse(output)) == (0, []), output

    # The command by hand gives the bytes of the rule.
    cell = plan.trainings()[0]._asdict()
    target, command = folder / plan.path("events", **cell), shell.command(plan, "events", **cell)
    of_rules = re.findall(r"^Shell command: (python .*)", done.stdout, re.MULTILINE)
    assert command in {re.sub(r" --code \w+| >> \S+ 2>&1$", "", rule).strip() for rule in of_rules}
    made = target.read_bytes()
    target.unlink()
    env = workflow.environment(PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    subprocess.run(["bash", "-c", command], cwd=folder, env=env, check=True)
    assert target.read_bytes() == made

    with open(folder / "fedlib/report/events.py", "a", encoding="utf-8") as file:
        file.write("\nX = 1\n")
    _, output = workflow.dry_run(folder, on)
    assert job_names(output) == {("events", *run) for run in runs}
