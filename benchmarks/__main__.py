"""Measure the work items, interleaved, one process per measurement, and write the result page.

python -m benchmarks --items W1a,W2b --repeats 5 --seconds 20     what runs by itself
python -m benchmarks --peers                                      other simulators too
python -m benchmarks --micro                                      single hot paths instead
"""

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import environments, micro, page
from benchmarks.contenders import CONTENDERS, OWN, PEERS
from benchmarks.items import ITEMS, Item
from fedlib.files import write_text

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results"
README = Path(__file__).parent / "README.md"


def main() -> None:
    """Parse the command line, measure, write."""
    args = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the measurement that runs, too
    measured = measure_micro if args.micro else measure_items
    for cores in args.cores:
        measured(args, cores, save=lambda found, cores=cores: write(args, cores, found))
    print((RESULTS / f"{args.name}.md").read_text())


def write(args: argparse.Namespace, cores: int, found: dict[str, dict]) -> None:
    """Put what was found, by item or part, into the result files; the rest stays as it is."""
    file = RESULTS / f"{args.name}.json"
    results = json.loads(file.read_text()) if file.exists() else {"items": {}, "micro": {}}
    results["machine"] = page.machine()
    for name, runs in found.items():
        entry = {"conditions": conditions(args, cores), "runs": runs}
        if args.micro:
            results["micro"][name] = entry
        else:
            results["items"].setdefault(name, {})[str(cores)] = entry
    RESULTS.mkdir(exist_ok=True)
    write_text(file, json.dumps(results, indent=1, sort_keys=True) + "\n")
    write_text(file.with_suffix(".md"), page.page(results))
    renew_readme()


def renew_readme() -> None:
    """Write the README's table of goals from the result files."""
    files = {name: RESULTS / f"{name}.json" for name in page.SIDE_BY_SIDE}
    known = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    write_text(README, page.renewed(README.read_text(), known))


def arguments() -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ", ".join(PEERS)
    add = parser.add_argument
    add("--items", default=",".join(ITEMS), help="work items, or parts of --micro, by commas")
    add("--contenders", help=f"only these of {', '.join(CONTENDERS)}")
    add("--peers", nargs="?", const=",".join(PEERS), default="", help=f"all or some of {names}")
    add("--executors", help="of this engine; default: those worth it for the item")
    add("--repeats", type=int, default=5, help="measurements of each contender")
    add("--seconds", type=float, default=20, help="length of a measurement, about")
    add("--cores", help="what everybody may use, by commas; default: 1, and all that there are")
    add("--limit", type=float, default=900, help="seconds after which a measurement is given up")
    add("--name", default=page.slug(), help="of the result page")
    add("--micro", action="store_true", help="hot paths one by one")
    args = parser.parse_args()
    known = micro.PARTS if args.micro else ITEMS
    default = parser.get_default("items")
    args.items = list(known) if args.items == default else chosen(parser, args.items, known)
    args.peers = chosen(parser, args.peers, PEERS)
    everybody = [*OWN, *args.peers]
    args.contenders = chosen(parser, args.contenders or ",".join(everybody), CONTENDERS)
    args.peers = [peer for peer in PEERS if peer in args.contenders]  # to be installed
    args.cores = numbers(parser, args)
    for name in ("repeats", "seconds", "limit"):
        if getattr(args, name) <= 0:
            parser.error(f"--{name} must be positive, got {getattr(args, name)}")
    return args


def chosen(parser: argparse.ArgumentParser, text: str, known) -> list[str]:
    """The names in `text`, separated by commas; ends the program for one that is not `known`."""
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in known:
            parser.error(f"no {name!r}; there are {', '.join(known)}")
    return names


def numbers(parser: argparse.ArgumentParser, args: argparse.Namespace) -> list[int]:
    """The numbers of cores to measure with; ends the program for one that cannot be."""
    there = page.cores()
    default = f"{there}" if args.micro else f"1,{there}"
    words = list(dict.fromkeys((args.cores or default).split(",")))
    for word in words:
        if not word.isdecimal() or not 1 <= int(word) <= there:
            parser.error(f"--cores must be numbers from 1 to {there}, by commas, got {word!r}")
    return [int(word) for word in words]


def conditions(args: argparse.Namespace, cores: int) -> dict:
    """What a measurement depends on besides the machine."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"date": date, "seconds": args.seconds, "cores": cores}


def measure_items(args: argparse.Namespace, cores: int, save: Callable[[dict], None]) -> None:
    """Runs by item and contender, each with its rate or its error; saved after each repetition."""
    broken = {peer: environments.install(peer, PEERS[peer].lends) for peer in args.peers}
    jobs = schedule(args.items, args.contenders, args.executors and args.executors.split(","))
    runs = {item: {} for item, _ in jobs}
    for repeat in range(args.repeats):
        # There and back again, so that a machine that becomes slower is so for everybody.
        for item, contender in jobs if repeat % 2 == 0 else jobs[::-1]:
            done = runs[item].setdefault(contender, [])
            if done and "error" in done[-1]:
                continue
            error = broken.get(contender.partition("/")[0])
            done.append({"error": error} if error else measure(item, contender, cores, args))
            print(
                f"{repeat + 1}/{args.repeats} {item} {contender}, {cores}: {page.brief(done[-1])}"
            )
            sys.stdout.flush()
        save(runs)


def schedule(items: list[str], contenders: list[str], executors=None) -> list[tuple[str, str]]:
    """The (item, contender) pairs of one repetition."""
    jobs = []
    for name in items:
        item = ITEMS[name]
        jobs += [
            (name, f"{contender}/{setting}" if setting else contender)
            for contender in contenders
            if takes_part(item, contender)
            for setting in settings(item, contender, executors)
        ]
    return jobs


def takes_part(item: Item, contender: str) -> bool:
    """Whether a contender can do an item, and it says something."""
    if contender in PEERS:
        models = PEERS[contender].models
        return item.num_experts == 1 and (models is None or item.model in models)
    return {
        "ours": True,
        "pfedmm": item.goals.pfedmm is not None,
        "plain": True,  # of FedEM's items on the one that says how fast the machine is
        "fedem": item.num_experts > 1,
        "floor": item.num_experts == 1,
    }[contender]


def settings(item: Item, contender: str, executors=None) -> tuple[str, ...]:
    """Ways in which a contender does an item; the best counts."""
    if contender == "ours":
        return tuple(executors or item.executors)
    return CONTENDERS[contender].settings


def measure(item: str, contender: str, cores: int, args: argparse.Namespace) -> dict:
    """One measurement in a process of its own: what it printed, or its error."""
    peer = contender.partition("/")[0] in PEERS
    python = environments.python(contender.partition("/")[0]) if peer else sys.executable
    if contender == "plain":
        item = ITEMS[item].plain_of or item
    command = [str(python), "-m", "benchmarks.measure", item, contender]
    command += ["--seconds", str(args.seconds), "--cores", str(cores)]
    return json_of(command, cores, args.limit)


def json_of(command: list[str], cores: int, limit: float) -> dict:
    """The last line that a command prints, as JSON, or {"error": ...}; ends all it has started."""
    threads = {name: str(cores) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    quiet = {"PYTHONWARNINGS": "ignore", "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | threads | quiet,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            return {"error": f"not done after {limit:g} s"}
        finally:
            end(process)
        out.seek(0)
        err.seek(0)
        lines = [line for line in out.read().splitlines() if line.startswith("{")]
        if process.returncode or not lines:
            return {"error": page.reason(err.read()) or f"exit code {process.returncode}"}
        return json.loads(lines[-1])


def end(process: subprocess.Popen) -> None:
    """End a process and its session, whoever of them is left."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def measure_micro(args: argparse.Namespace, cores: int, save: Callable[[dict], None]) -> None:
    """Readings by part and name, with units and goals; saved after each repetition."""
    found = {}
    for repeat in range(args.repeats):
        for part in args.items:
            command = [sys.executable, "-m", "benchmarks.micro", part]
            command += ["--cores", str(cores)]
            done = json_of(command, cores, args.limit)
            for name, reading in done.items():
                entry = found.setdefault(part, {}).setdefault(name, [])
                entry.append(reading)
            print(f"{repeat + 1}/{args.repeats} {part}: {json.dumps(done)}", flush=True)
        save(found)


if __name__ == "__main__":
    main()
