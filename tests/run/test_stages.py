"""Training and evaluation as commands: interrupted, in each other's way, and given nonsense."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from unittest.mock import ANY

import numpy as np
import pytest
from stages import (
    ROUNDS,
    RUN,
    SPEC,
    STOPPING,
    assert_one_line,
    assert_same_run,
    evaluation,
    finish,
    options,
    run_here,
    shards,
    start,
    wait_for_round,
)
from support import assert_same_result, dying, toy_federation

from fedlib import files, seals
from fedlib.report.metrics.tidy import client_rows, run_rows
from fedlib.results import RunResult, View
from fedlib.run import checkpoint
from fedlib.run.checkpoint import Checkpoints
from fedlib.run.usage import CPU
from fedlib.run_spec import RunSpec
from fedlib.seals import spec_digest
from fedlib.workflow import command
from fedlib.workflow.provenance import ROOT
from scripts.train import Stop


@pytest.fixture
def call(capsys):
    """Function that runs a stage in this process: (exit code, stdout, stderr)."""
    return lambda stage, arguments: (run_here(stage, arguments), *capsys.readouterr())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that nothing interrupted. Read it, or copy it to change it."""
    folder = shards(tmp_path_factory.mktemp("trained")) / "run"
    assert run_here("train", options(folder)) == 0
    return folder


@pytest.fixture
def copied(trained, tmp_path):
    """A copy of the finished run, and of its shards."""
    shutil.copytree(trained.parent, tmp_path / "copy")
    return tmp_path / "copy" / "run"


# -- runs ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_same_bits_and_nobody_else_may_write(
    trained, tmp_path, call
):
    folder = shards(tmp_path) / "run"

    terminated = start("train", options(folder))
    done = wait_for_round(terminated, folder, 1)
    terminated.send_signal(signal.SIGTERM)
    code, stdout, stderr = finish(terminated)
    assert (code, stderr) == (143, "")
    assert "; the same command goes on from there" in stdout

    killed = start("train", options(folder))
    wait_for_round(killed, folder, done + 10)
    killed.send_signal(signal.SIGSTOP)  # holds its lock while another one tries
    other = call("train", options(folder))
    killed.kill()
    code, stdout, _ = finish(killed)
    assert code == -signal.SIGKILL
    assert "resuming after round" in stdout
    message = f"error: {folder} is being written by another process (pid {killed.pid} on "
    assert (other[0], other[2].startswith(message)) == (1, True)
    assert not (folder / "history.h5").exists()

    code, stdout, stderr = call("train", options(folder))
    assert (code, stderr) == (0, "")
    assert "resuming after round" in stdout
    assert_same_run(folder, trained)
    left = sorted(file.name for file in (folder / "checkpoints").iterdir())
    assert left == ["checkpoint.json", "lock", f"state-{SPEC['rounds'] - 1}.pt"]


@pytest.mark.parametrize("ignored", [False, True])
def test_a_closed_terminal_asks_a_training_to_stop_unless_nohup_has_it_ignored(ignored):
    kept = {number: signal.getsignal(number) for number in STOPPING}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
        stop = Stop()
        os.kill(os.getpid(), signal.SIGHUP)
        assert stop() is not ignored
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


@pytest.mark.slow
def test_ctrl_c_saves_a_checkpoint_too_and_a_second_one_ends_the_run_at_once(tmp_path):
    folder = shards(tmp_path) / "run"
    interrupted = start("train", options(folder, **{"checkpoint-every": None}))
    for line in interrupted.stdout:
        if line.startswith("round "):
            break
    interrupted.send_signal(signal.SIGINT)
    code, stdout, stderr = finish(interrupted)
    assert (code, stderr) == (128 + signal.SIGINT, "")
    assert "press Ctrl-C once more to stop at once" in stdout
    assert "; the same command goes on from there" in stdout
    assert seals.read_json(folder / "checkpoints" / "checkpoint.json")["round"] >= 1

    # While it waits for another one to end a round, only the second Ctrl-C can be heard.
    endless = "import signal, sys\nsys.path[:0] = sys.argv[1:]\nfrom train import Stop\nStop()\n"
    endless += "print('ready', flush=True)\nwhile True: signal.pause()"
    line = [sys.executable, "-c", endless, str(ROOT / "scripts"), str(ROOT)]
    with subprocess.Popen(line, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as twice:
        assert twice.stdout.readline() == "ready\n"
        twice.send_signal(signal.SIGINT)
        assert "once more" in twice.stdout.readline()
        twice.send_signal(signal.SIGINT)
        assert twice.wait(60) == -signal.SIGINT
        assert "KeyboardInterrupt" in twice.stderr.read()


def test_a_history_holds_what_is_needed_to_trust_it(trained):
    history = RunResult.load(trained / "history.h5")
    assert history.spec == SPEC
    assert history.provenance["state_sha256"] == files.digest(trained / "state.pt")
    assert history.provenance["manifest_sha256"] == files.digest(trained.parent / "toy.json")
    assert (history.provenance["device"], history.provenance["threads"]) == ("cpu", 1)
    assert history.round.tolist() == list(range(0, ROUNDS + 1, 10))


def test_an_evaluation_finds_what_training_found_last_and_the_final_protocols(copied, call):
    code, stdout, stderr = call("evaluate", evaluation(copied))
    assert (code, stderr) == (0, "")
    final = RunResult.load(copied / "evaluation.h5")
    history = RunResult.load(copied / "history.h5")
    assert final.round.tolist() == [ROUNDS]
    for view, scores in history.scores.items():
        assert np.array_equal(final.scores[view].correct[0], scores.correct[-1])
        assert np.array_equal(final.scores[view].loss[0], scores.loss[-1])
    assert View("seen", "one_step", "test") in final.scores


def test_an_evaluation_stores_the_metrics_of_predictions_that_it_is_asked_for(copied, call):
    code, _, stderr = call("evaluate", evaluation(copied, SPEC | {"predictions": ["brier", "ece"]}))
    assert (code, stderr) == (0, "")
    final = RunResult.load(copied / "evaluation.h5")
    rows = run_rows(RunResult.load(copied / "history.h5"), final)
    rows = rows[rows["group"].eq("seen") & rows["protocol"].eq("default") & rows["at"].eq("last")]
    found = rows[rows["split"] == "test"].set_index("metric")["value"]
    assert 0 < found["ece"] < 1 and not {"macro_f1", "auc"} & {*found.index}
    clients = client_rows(RunResult.load(copied / "history.h5"), final)
    mine = clients[clients["brier"].notna() & (clients["protocol"] == "default")]
    mine = mine[mine["group"] == "seen"]
    assert np.average(mine["brier"], weights=mine["count"]) == pytest.approx(found["brier"])
    assert final.predictions == {}


def mlp(num_classes):
    """The architecture of an expert, or of a gate, of the clients of these tests."""
    return {"model": "mlp", "params": RUN.model_params | {"num_classes": num_classes}}


TRAINS = replace(
    RUN,
    method="adaptive_experts",
    rounds=2,
    params={"num_experts": 2, "local_lr": 0.01, "gate_lr": 0.01, "stop_split": "test"}
    | {"local_epochs": 4, "local_check_every": 1, "gate_epochs": 4, "cluster_init": "full"},
    modules={"expert": mlp(3), "gate": mlp(3)},
)
TRAINS = TRAINS.spec(3, spec_digest({})).to_json()
OF_CLIENTS = {"views": [["seen", "local", "test"], ["seen", "moe", "test"]]}


@pytest.mark.parametrize("saves", [1, 5])  # of local experts, which save 4 times; of mixtures
def test_a_killed_evaluation_that_trains_goes_on_to_the_same_scores(saves, tmp_path, call):
    folders = [shards(tmp_path) / name for name in ("whole", "killed")]
    for folder in folders:
        assert call("train", options(folder, TRAINS)) == (0, ANY, "")
    whole, killed = (evaluation(folder, TRAINS | OF_CLIENTS) for folder in folders)
    assert call("evaluate", whole) == (0, ANY, "")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "due", lambda self, done: True)
        with pytest.MonkeyPatch.context() as dies:
            dies.setattr(checkpoint, "Checkpoints", dying(saves))
            assert call("evaluate", killed) == (130, ANY, "error: interrupted\n")
        assert (folders[1] / "checkpoints/evaluation").is_dir()
        code, stdout, stderr = call("evaluate", killed)
    assert (code, stderr) == (0, "")
    assert "resuming after check 1" in stdout and ("local: check" in stdout) == (saves == 1)
    expected, found = (RunResult.load(folder / "evaluation.h5") for folder in folders)
    assert_same_result(found, expected)
    assert not (folders[1] / "checkpoints/evaluation").exists()


# -- nonsense -----------------------------------------------------------------------------


def test_an_evaluation_of_another_training_or_on_other_shards_is_one_line(copied, call):
    other = call("evaluate", evaluation(copied, SPEC | {"rounds": ROUNDS - 10}))
    assert_one_line(other, "history.h5 was written for another run specification; train again")

    toy_federation((7, 12, 6, 11)).save(*(copied.parent / f"toy.{end}" for end in ("h5", "json")))
    message = "history.h5 was trained on other shards than are given; train again"
    assert_one_line(call("evaluate", evaluation(copied)), message)
    assert not (copied / "evaluation.h5").exists()


def test_a_specification_is_read_as_it_was_written():
    assert RunSpec.from_json(SPEC).to_json() == SPEC


@pytest.mark.parametrize("stage", ["train", "evaluate"])
def test_a_wrong_entry_of_the_specification_is_one_line(stage, tmp_path):
    # As a process: what the user sees, before PyTorch is even loaded.
    wrong = {name: value for name, value in SPEC.items() if name != "method"} | {"methd": "fedem"}
    arguments = {"train": options, "evaluate": evaluation}[stage](tmp_path / "run", wrong)
    outcome = finish(start(stage, arguments))
    assert_one_line(outcome, "the run specification lacks ['method'] and has unknown ['methd']")


def test_a_federation_without_seen_clients_is_one_line(tmp_path, call):
    toy_federation((7, 12), unseen=2).save(tmp_path / "toy.h5", tmp_path / "toy.json")
    outcome = call("train", options(tmp_path / "run"))
    assert_one_line(outcome, "the federation has no seen clients: nobody to train")


def test_a_diverging_run_is_one_line_and_leaves_its_last_checkpoint(tmp_path, call):
    # The rate explodes after three rounds.
    folder = shards(tmp_path) / "run"
    explosion = {"kind": "multi_step", "by": "round", "milestones": [3], "factor": 1e30}
    wild = SPEC | {"local": SPEC["local"] | {"schedule": explosion}}
    assert_one_line(call("train", options(folder, wild)), "training loss is nan;")
    assert not (folder / "history.h5").exists()

    (state,) = (folder / "checkpoints").glob("state-*.pt")
    state.write_bytes(state.read_bytes()[:-100])
    message = f"(delete {folder / 'checkpoints'} to start this run afresh)"
    assert_one_line(call("train", options(folder, wild)), message)


def test_a_training_that_ended_unnoticed_goes_on_from_its_last_round_until_it_is_evaluated(
    copied, call, monkeypatch
):
    def wait(*args, exclusive=command.locks.exclusive, **how):
        saved = seals.read_json(index := copied / "checkpoints" / "checkpoint.json")  # an orphan's
        seals.write_json(index, saved | {"spent": {CPU: 1e4}})
        return exclusive(*args, **how)

    monkeypatch.setattr(command.locks, "exclusive", wait)
    # Snakemake removes what it was not told of before it starts the job again.
    right = (copied / "state.pt").read_bytes()
    (copied / "state.pt").unlink()
    (copied / "history.h5").unlink()
    code, stdout, _ = call("train", options(copied))
    assert code == 0 and f"resuming after round {SPEC['rounds'] - 1}" in stdout
    assert (copied / "state.pt").read_bytes() == right
    assert RunResult.load(copied / "history.h5").provenance["spent"][CPU] > 1e4

    kept = copied / "checkpoints"
    assert (kept / "checkpoint.json").exists()
    assert call("evaluate", evaluation(copied))[0] == 0
    assert not [file for file in kept.iterdir() if file.name != "lock"]
