"""What a GPU is asked, rehearsed on a CPU: the questions, who survives them, and the page."""

import argparse
import json
import subprocess
import sys

import pytest

from benchmarks import gpu, probes
from benchmarks.items import ITEMS
from benchmarks.probes import Probe

ARGS = argparse.Namespace(device="cpu", seconds=0.05, cores=1, minutes=1.0)


# W3a normalises by few examples, which magnifies rounding until it is all there is.
@pytest.mark.parametrize(
    ("item", "executor"), [*(("W2b", how) for how in probes.EXECUTORS), ("W3a", "batched")]
)
def test_executors_agree_with_the_loop(item, executor):
    found = probes.answer(Probe("agreement", item, executor, "float64"), "cpu", 0.1)
    assert "**" not in gpu._difference(found)


def answering(script: str):
    """A process in place of the one that answers: `script` has the probes as `asked`."""
    begin = "import json, os, sys, time\nasked = json.load(sys.stdin)\n"
    tell = "def tell(**line): print(json.dumps(line), flush=True)\n"

    def started(left, args):
        command = [sys.executable, "-c", begin + tell + script]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, start_new_session=True, **pipes)
        process.stdin.write(json.dumps(left))
        process.stdin.close()
        return process

    return started


ASKED = [Probe("rate", "W2b", how) for how in ("loop", "batched", "graphs")]
DIES = """
for fields in asked:
    tell(begin="/".join(fields))
    if fields[2] == "batched":
        os._exit(7)
    tell(done="/".join(fields), rate=1.0, round=1.0, memory=None)
"""
# What a kernel's error leaves: this process can answer nothing more.
BREAKS = """
key = "/".join(asked[0])
if asked[0][2] == "graphs":
    tell(done=key, rate=1.0, round=1.0, memory=None)
else:
    tell(begin=key)
    tell(done=key, error="RuntimeError: an illegal access")
    sys.exit(1)
"""
HANGS = DIES.replace("os._exit(7)", "time.sleep(60)")


@pytest.mark.parametrize(("script", "limit"), [(DIES, 30), (HANGS, 1.5)])
def test_a_question_that_ends_or_stops_the_process_is_answered_so_and_passed(
    script, limit, monkeypatch
):
    monkeypatch.setattr(gpu, "_started", answering(script))
    monkeypatch.setattr(gpu, "LIMIT", limit)
    kept = {}
    gpu.ask(list(ASKED), ARGS, kept.__setitem__)
    assert [*kept] == [probe.key for probe in ASKED]
    assert "no answer" in kept["rate/W2b/batched/float32"]["error"]
    assert kept["rate/W2b/graphs/float32"]["rate"] == 1.0


def test_a_process_whose_device_broke_takes_no_further_question_with_it(monkeypatch):
    monkeypatch.setattr(gpu, "_started", answering(BREAKS))
    kept = {}
    gpu.ask(list(ASKED), ARGS, kept.__setitem__)
    assert [found.get("error", "")[:12] for found in kept.values()] == ["RuntimeError"] * 2 + [""]


def test_it_stops_when_the_time_is_up_and_goes_on_with_what_is_left(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gpu.bench, "RESULTS", tmp_path)
    monkeypatch.setattr(gpu, "probes", lambda items, device: ASKED)
    command = ["gpu", "--device", "cpu", "--minutes", "0.03"]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setattr(gpu, "_started", answering(HANGS))
    gpu.main()
    assert "2 of 3 are left" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*command[:-1], "1"])
    monkeypatch.setattr(gpu, "_started", answering(DIES.replace('"batched"', '"nobody"')))
    gpu.main()
    told = capsys.readouterr().out
    assert "left" not in told and "rate/W2b/loop" not in told  # it was there
    (page,) = tmp_path.glob("*.md")
    assert "| graphs, float32 | 1 | 1.00 | 1,000.0 ms | - |" in page.read_text()


def test_the_page_shows_what_does_not_agree_and_what_failed():
    answers = {
        "agreement/W2b/loop/float64": {"difference": 1e-15},
        "agreement/W2b/graphs/float64": {"difference": 0.25, "rounding": 1e-15},
        "agreement/W3a/loop/float64": {"difference": 0.25, "rounding": 3.2},
        "cell/cell/loop/float32": {"rate": 100.0, "round": 2.0, "memory": 3 * 2**20},
        "cell/cell/graphs/float32": {"error": "RuntimeError: no kernel"},
    }
    about = {"device": "A card", "memory": "8 MiB", "torch": "3"}
    text = gpu.report({"machine": about, "seconds": 1.5, "answers": answers})
    assert "| W2b: logistic regression 60-2 | 1.0e-15 | - | - | **2.5e-01** |" in text
    assert f"| W3a: {ITEMS['W3a'].title} | 2.5e-01 |" in text
    assert f"| loop | 2.00 s | {2 * probes.CELL_ROUNDS} s | 100 | 3 |" in text
    assert "| graphs | RuntimeError: no kernel |" in text
    assert text.startswith("# A card") and "memory 8 MiB, torch 3." in text
