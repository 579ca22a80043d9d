"""Ten minutes with a GPU: whether it agrees with the CPU, and which executor suits which model.

python -m benchmarks.gpu                          goes on where the last run of it stopped
python -m benchmarks.gpu --device cpu --items W2b a rehearsal: what a CPU can answer, too

Writes <GPU>.gpu.md into benchmarks/results, and every answer to the .json beside it.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks import __main__ as bench
from benchmarks import page
from benchmarks.items import ITEMS
from benchmarks.probes import CELL, CELL_ROUNDS, EXECUTORS, Probe, probes
from fedlib.files import write_text

ROOT = Path(__file__).resolve().parents[1]
ANSWERS = ("-m", "benchmarks.probes")  # what is asked
LIMIT = 120  # seconds without an answer, after which a probe is given up
AGREED = 1e-9  # differences in float64 that are rounding
MAGNIFIED = 10  # and those that are so many times what becomes of rounding on a CPU


def main() -> None:
    """Parse the command line, ask, write."""
    args = arguments()
    file = args.out / f"{slug(args.device)}.gpu.json"
    about = machine(args.device, args.cores)
    before = json.loads(file.read_text()) if file.exists() and not args.fresh else {}
    answers = before.get("answers", {}) if before.get("machine") == about else {}
    wanted = probes(args.items, args.device)

    def keep(key: str, found: dict) -> None:
        answers[key] = found
        print(f"{len(answers)}/{len(wanted)} {key}: {brief(found)}", flush=True)
        results = {"machine": about, "seconds": args.seconds, "answers": answers}
        args.out.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(results, indent=1, sort_keys=True) + "\n")
        write_text(file.with_suffix(".md"), report(results))

    left = [probe for probe in wanted if probe.key not in answers]
    ask(left, args, keep)
    missing = sum(probe.key not in answers for probe in wanted)
    if missing:
        print(f"{missing} of {len(wanted)} are left: the same command goes on with them")
    print(f"see {file.with_suffix('.md')}")


def arguments() -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--device", choices=("cuda", "cpu"), default="cuda", help="cpu rehearses")
    add("--items", default=",".join(ITEMS), help="work items, by commas")
    add("--minutes", type=float, default=10, help="after which it stops; the next run goes on")
    add("--seconds", type=float, default=1.5, help="length of a measurement, about")
    add("--cores", type=int, default=page.cores(), help="of the CPU")
    add("--out", type=Path, default=bench.RESULTS, help="folder (default: %(default)s)")
    add("--fresh", action="store_true", help="forget the answers that are there")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch sees no GPU here; --device cpu asks a CPU instead, as a rehearsal")
    for name in ("minutes", "seconds", "cores"):
        if getattr(args, name) <= 0:
            parser.error(f"--{name} must be positive, got {getattr(args, name)}")
    args.items = bench.chosen(parser, args.items, ITEMS)
    return args


def machine(device: str, cores: int) -> dict:
    """What the answers depend on besides the code."""
    about = {"torch": torch.__version__, "processor": page.processor(), "cores": cores}
    if device == "cpu":
        return about | {"device": page.processor()}
    gpu = torch.cuda.get_device_properties(0)
    memory = f"{gpu.total_memory / page.MIB:,.0f} MiB"
    return about | {"device": gpu.name, "memory": memory, "cuda": torch.version.cuda}


def slug(device: str) -> str:
    """A file name for the device."""
    if device == "cpu":
        return page.slug()
    return page.file_name(torch.cuda.get_device_name(0))


def ask(left: list[Probe], args: argparse.Namespace, keep: Callable[[str, dict], None]) -> None:
    """Have the probes answered until the time is up; `keep` is told each answer at once.

    A probe that ends its process, or does not answer, is kept with that error, and a new process
    goes on behind it.
    """
    end = time.monotonic() + 60 * args.minutes
    while left and time.monotonic() < end:
        process = _started(left, args)
        lines = _lines(process)
        begun, answered = None, False
        try:
            while left:
                wait = min(LIMIT, end - time.monotonic())
                line = lines.get(timeout=max(wait, 0))
                if line is None:  # it has ended
                    break
                begun = line.pop("begin", None) or begun
                if key := line.pop("done", None):
                    keep(key, line)
                    answered = True
                    left, begun = [probe for probe in left if probe.key != key], None
        except queue.Empty:
            if time.monotonic() >= end:
                return
        finally:
            bench.end(process)
        if left and (begun or not answered):
            begun = begun or left[0].key
            code = process.returncode
            keep(begun, {"error": f"no answer: its process ended with {code}, or in {LIMIT} s"})
            left = [probe for probe in left if probe.key != begun]


def _started(left: list[Probe], args: argparse.Namespace) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, *ANSWERS, args.device, str(args.seconds), str(args.cores)],
        cwd=ROOT,
        env=os.environ | {"PYTHONWARNINGS": "ignore", "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    process.stdin.write(json.dumps(left))
    process.stdin.close()
    return process


def _lines(process: subprocess.Popen) -> queue.Queue:
    """What the process prints, line by line, and None at its end."""
    found: queue.Queue = queue.Queue()

    def read() -> None:
        for line in process.stdout:
            if line.startswith("{"):
                found.put(json.loads(line))
        found.put(None)

    threading.Thread(target=read, daemon=True).start()
    return found


def brief(found: dict) -> str:
    """An answer in a few words."""
    if "error" in found:
        return found["error"]
    if "difference" in found:
        return f"differs by {found['difference']:.1e}"
    return f"{found['rate']:,.0f} samples/s"


def report(results: dict) -> str:
    """The page."""
    about, answers = results["machine"], results["answers"]
    rows = {Probe(*key.split("/")): found for key, found in answers.items()}
    known = ("memory", "cuda", "torch", "processor", "cores")
    lines = [f"# {about['device']}", "", "How to read this: [README](../README.md).", ""]
    lines += [", ".join(f"{name} {about[name]}" for name in known if name in about) + "."]
    for title, part in (
        ("Agreement", _agreement(rows)),
        ("A paper's cell", _cell(rows)),
        ("Rates", _rates(rows, results["seconds"])),
    ):
        lines += ["", f"## {title}", "", *part] if part else []
    return "\n".join(lines) + "\n"


def _agreement(rows: dict[Probe, dict]) -> list[str]:
    mine = {probe: found for probe, found in rows.items() if probe.kind == "agreement"}
    if not mine:
        return []
    shown = []
    for item in dict.fromkeys(probe.item for probe in mine):
        found = [mine.get(Probe("agreement", item, how, "float64"), {}) for how in EXECUTORS]
        texts = [x.get("error") or _difference(x) for x in found]
        shown.append([f"{item}: {ITEMS[item].title}", *texts])
    return [
        "Largest difference from the loop on a CPU after four rounds in float64, as a part of the "
        f"largest entry of its tensor. What is bold is not rounding: above {AGREED:g}, and above "
        f"{MAGNIFIED} times what becomes of rounding in the first state on a CPU.",
        "",
        *page.table(["item", *EXECUTORS], shown),
    ]


def _difference(found: dict) -> str:
    if "difference" not in found:
        return "-"
    value = found["difference"]
    right = value <= max(AGREED, MAGNIFIED * found.get("rounding", 0))
    return f"{value:.1e}" if right else f"**{value:.1e}**"


def _cell(rows: dict[Probe, dict]) -> list[str]:
    mine = {probe: found for probe, found in rows.items() if probe.kind == "cell"}
    shown = [
        [probe.executor, found["error"], "-", "-", "-"]
        if "error" in found
        else [probe.executor, f"{found['round']:.2f} s", f"{CELL_ROUNDS * found['round']:,.0f} s",
              f"{found['rate']:,.0f}", _memory(found)]
        for probe, found in mine.items()
    ]  # fmt: skip
    if not shown:
        return []
    head = ["executor", "a round", f"{CELL_ROUNDS} rounds", "samples/s", "peak MiB"]
    return [f"{CELL.title}: training, on made-up examples.", "", *page.table(head, shown)]


def _rates(rows: dict[Probe, dict], seconds: float) -> list[str]:
    lines = []
    for item in ITEMS:
        mine = {p: found for p, found in rows.items() if p.kind == "rate" and p.item == item}
        if not mine:
            continue
        loop = mine.get(Probe("rate", item, "loop"), {}).get("rate")
        shown = [
            [f"{probe.executor}, {probe.precision}", *_measured(found, loop)]
            for probe, found in sorted(mine.items(), key=lambda pair: -pair[1].get("rate", 0))
        ]
        head = ["how", "samples/s", "/ loop", "a round", "peak MiB"]
        lines += [f"### {item}: {ITEMS[item].title}", "", *page.table(head, shown), ""]
    return [*lines, f"Measurements of {seconds:g} s or a round."] if lines else []


def _measured(found: dict, loop: float | None) -> list[str]:
    if "error" in found:
        return [found["error"], "-", "-", "-"]
    ratio = f"{found['rate'] / loop:.2f}" if loop else "-"
    return [f"{found['rate']:,.0f}", ratio, f"{1000 * found['round']:,.1f} ms", _memory(found)]


def _memory(found: dict) -> str:
    return "-" if found["memory"] is None else f"{found['memory'] / page.MIB:,.0f}"


if __name__ == "__main__":
    main()
