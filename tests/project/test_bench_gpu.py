"""What a GPU is asked, rehearsed on a CPU: the questions, who survives them, and the page."""

import argparse
import sys
from dataclasses import replace

from benchmarks import gpu, probes
from benchmarks.clock import Clock
from benchmarks.contenders import ours
from benchmarks.items import ITEMS
from benchmarks.probes import Probe

ARGS = argparse.Namespace(device="cpu", seconds=0.05, cores=1, minutes=1.0)


def test_executors_agree_with_the_loop():
    found = probes.answer(Probe("agreement", "W2b", "graphs", "float64"), "cpu", 0.1)
    assert gpu._difference(found)[0].isdigit()  # neither bold nor absent


def test_every_size_of_a_batch_is_recorded_before_the_clock_begins(monkeypatch):
    item = replace(ITEMS["W1a"], model="linear", shape=(60,), num_clients=20, examples=2000)
    simulation, seen = ours.build(item, "traced"), []
    notes = simulation.executor.notes
    monkeypatch.setattr(probes, "Clock", lambda s: seen.append(notes["traced_shapes"]) or Clock(s))
    probes.timed(simulation, item, 0.05)
    assert seen == [len({32, *((item.sizes() - 1) % 32 + 1)})] < [32]


def test_a_cpu_is_not_asked_for_rounds_that_it_has_no_time_for():
    assert "cell" not in {probe.kind for probe in probes.probes([*ITEMS], "cpu")}


ASKED = [Probe("rate", "W2b", how) for how in ("loop", "batched", "graphs")]
# A program in place of the one that answers.
DIES = """
import json, os, sys, time
def tell(**line): print(json.dumps(line), flush=True)
for fields in json.load(sys.stdin):
    tell(begin="/".join(fields))
    if fields[2] == "batched":
        os._exit(7)
    tell(done="/".join(fields), rate=1.0, round=1.0, memory=None)
"""
HANGS = DIES.replace("os._exit(7)", "time.sleep(60)")


def test_a_question_that_ends_the_process_is_answered_so_and_passed(monkeypatch):
    monkeypatch.setattr(gpu, "ANSWERS", ("-c", DIES))
    kept = {}
    gpu.ask(list(ASKED), ARGS, kept.__setitem__)
    assert [*kept] == [probe.key for probe in ASKED]
    assert "no answer" in kept["rate/W2b/batched/float32"]["error"]
    assert kept["rate/W2b/graphs/float32"]["rate"] == 1.0


def test_it_stops_when_the_time_is_up_and_goes_on_with_what_is_left(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gpu.bench, "RESULTS", tmp_path)
    monkeypatch.setattr(gpu, "probes", lambda items, device: ASKED)
    command = ["gpu", "--device", "cpu", "--minutes", "0.03"]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setattr(gpu, "ANSWERS", ("-c", HANGS))
    gpu.main()
    assert "2 of 3 are left" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*command[:-1], "1"])
    monkeypatch.setattr(gpu, "ANSWERS", ("-c", DIES.replace('"batched"', '"nobody"')))
    gpu.main()
    told = capsys.readouterr().out
    assert "left" not in told and "rate/W2b/loop" not in told  # it was there
    (page,) = tmp_path.glob("*.md")
    assert "| graphs, float32 | 1 | 1.00 | 1,000.0 ms | - |" in page.read_text()


def test_a_simulator_that_is_named_as_a_contender_is_installed(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--contenders", "ours,pfl"])
    assert gpu.bench.arguments().peers == ["pfl"]
