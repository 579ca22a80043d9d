"""Results as a page: medians, spread, ratios, and whether goals are met. Pure functions of JSON."""

import os
import platform
import re
import statistics
from pathlib import Path

from benchmarks.contenders import CONTENDERS, PEERS
from benchmarks.items import ITEMS, OFFICIAL_GOAL, Item

MIB = 2**20
# Of the README: a column for each of these result files, with one core.
SIDE_BY_SIDE = {"intel-xeon-2-cores": "Intel Xeon", "amd-epyc-2-cores": "AMD EPYC"}
BEGIN, END = "<!-- goals: `python -m benchmarks` writes them -->", "<!-- end of goals -->"


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def processor() -> str:
    """The processor's name, as the system calls it."""
    file = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", file.read_text()) if file.exists() else None
    return found[1].strip() if found else platform.processor() or platform.machine()


def machine() -> dict:
    """What the page says of this machine."""
    system = f"{platform.system()} {platform.machine()}"
    return {"processor": processor(), "cores": cores(), "system": system,
            "python": platform.python_version()}  # fmt: skip


def slug() -> str:
    """A file name for this machine."""
    name = re.sub(r"\(.*?\)|processor|cpu", "", processor().lower())
    return file_name(f"{name} {cores()} cores")


def file_name(text: str) -> str:
    """The text in small letters, with one hyphen for whatever is neither letter nor digit."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def reason(text: str) -> str:
    """The first line of the error that ended a program, from what it wrote to stderr."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Exit|Warning)\b", line)]
    errors = [line for line in errors if "Warning" not in line.split(":")[0]]
    return (errors or lines)[-1][:200] if lines else ""


def brief(run: dict) -> str:
    """A measurement in a few words."""
    return run.get("error") or f"{run['rate']:,.0f} samples/s, {run['memory'] / MIB:,.0f} MiB"


def rates(runs: list[dict]) -> list[float]:
    """Samples per second of the measurements that succeeded."""
    return [run["rate"] for run in runs if "rate" in run]


def median(runs: list[dict]) -> float | None:
    """Median rate, or None if nothing succeeded."""
    return statistics.median(rates(runs)) if rates(runs) else None


def memory(runs: list[dict]) -> float | None:
    """Median of the peak memory in bytes, or None if nothing succeeded."""
    found = [run["memory"] for run in runs if "memory" in run]
    return statistics.median(found) if found else None


def best(runs: dict[str, list[dict]], names) -> str | None:
    """The contender, setting included, with the highest median among those called `names`."""
    able = {c: median(r) for c, r in runs.items() if c.partition("/")[0] in names and median(r)}
    return max(able, key=able.get) if able else None


def ratios(
    item: Item, runs: dict[str, list[dict]], cores: int
) -> list[tuple[str, float | None, float]]:
    """(what, our ratio or None if something was not measured, goal) for each goal of an item."""
    goals = item.goals_per_core if cores == 1 else item.goals
    ours, peer = best(runs, ("ours",)), best(runs, PEERS)
    found = []
    if goals.peer:
        against = f"best peer ({peer})" if peer else "best peer"
        found.append((f"rate / {against}", _ratio(runs, ours, peer), goals.peer))
    if goals.floor:
        found.append(("rate / floor", _ratio(runs, ours, best(runs, ("floor",))), goals.floor))
    if goals.fedem:
        value = _ratio(runs, ours, best(runs, ("fedem",)))
        found.append(("rate / FedEM's loop", value, goals.fedem))
    if item.official and cores > 1:  # it was measured on two
        code, plain = item.official
        scaled = _ratio(runs, ours, best(runs, ("plain",)))
        value = None if scaled is None else scaled * plain / code
        found.append(("rate / FedEM's official code, scaled", value, OFFICIAL_GOAL))
    if goals.pfedmm:
        loop = "ours/loop" if "ours/loop" in runs else None
        value = _ratio(runs, loop, best(runs, ("pfedmm",)))
        found.append(("time of pFedMM / FedAvg", value, goals.pfedmm))
    if peer and ours:
        found.append((f"memory / best peer ({peer})", memory(runs[ours]) / memory(runs[peer]), 1.0))
    return found


def met(what: str, value: float | None, goal: float) -> str:
    """Whether a goal is met: rates should be above it, times and memory below."""
    if value is None:
        return "not measured"
    low = what.startswith(("time", "memory"))
    return "yes" if (value <= goal if low else value >= goal) else "no"


def _ratio(runs: dict, one: str | None, other: str | None) -> float | None:
    values = [name and median(runs[name]) for name in (one, other)]
    return values[0] / values[1] if all(values) else None


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """Lines of a Markdown table; the first column is text, the others are numbers."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def title(contender: str) -> str:
    """How a contender, setting included, is called."""
    name, _, setting = contender.partition("/")
    return f"{CONTENDERS[name].title}, {setting}" if setting else CONTENDERS[name].title


def page(results: dict) -> str:
    """The whole page."""
    about = results["machine"]
    lines = [
        f"# Speed on {about['processor']}, {about['cores']} cores",
        "",
        f"{about['system']}, Python {about['python']}. How to read this: [README](../README.md).",
    ]
    done = {name: by for name, by in sorted(results["items"].items()) if name in ITEMS}
    for number in sorted({int(number) for by in done.values() for number in by}):
        goals = _goals({name: by[str(number)] for name, by in done.items() if str(number) in by})
        lines += ["", f"## Goals with {_cores(number)}", "", *goals]
    for name, by in done.items():
        lines += ["", f"## {name}: {ITEMS[name].title}"]
        for number, entry in sorted(by.items(), key=lambda pair: int(pair[0])):
            lines += ["", f"### With {_cores(int(number))}", "", *_item(ITEMS[name], entry)]
    if results["micro"]:
        lines += ["", "## Hot paths", "", *_micro(results["micro"])]
    return "\n".join(lines) + "\n"


def side_by_side(results: dict[str, dict]) -> list[str]:
    """Lines of a table of all goals with one core, a column for each machine.

    Args:
      results: of the files `SIDE_BY_SIDE`, by name; without those that are not there.
    """
    rows: dict[tuple[str, str, float], list[str]] = {}
    for column, file in enumerate(SIDE_BY_SIDE):
        measured = results.get(file, {"items": {}})["items"]
        for name, item in ITEMS.items():
            runs = measured.get(name, {}).get("1", {"runs": {}})["runs"]
            for what, value, goal in ratios(item, runs, 1):
                what, _, peer = what.partition(" (")
                cells = rows.setdefault((name, what, goal), ["-"] * len(SIDE_BY_SIDE))
                if value is not None:
                    beside = f" ({peer}" if peer else ""
                    yes = "**" if met(what, value, goal) == "yes" else ""
                    cells[column] = f"{yes}{value:.2f}{yes}{beside}"
    order = sorted(rows, key=lambda row: (list(ITEMS).index(row[0]), row[1].startswith("memory")))
    lines = [[name, what, f"{goal:g}", *rows[name, what, goal]] for name, what, goal in order]
    titles = [
        f"[{title}](results/{file}.md)" if file in results else f"{title}, not measured"
        for file, title in SIDE_BY_SIDE.items()
    ]
    return table(["item", "what", "goal", *titles], lines)


def renewed(readme: str, results: dict[str, dict]) -> str:
    """The text of the README with its table of goals as measured now."""
    before, _, rest = readme.partition(BEGIN)
    after = rest.partition(END)[2]
    return "\n".join([f"{before}{BEGIN}", *side_by_side(results), f"{END}{after}"])


def _cores(number: int) -> str:
    return "one core" if number == 1 else f"{number} cores"


def _goals(done: dict) -> list[str]:
    rows = []
    for name, entry in done.items():
        cores = entry["conditions"]["cores"]
        for what, value, goal in ratios(ITEMS[name], entry["runs"], cores):
            shown = "-" if value is None else f"{value:.2f}"
            rows.append([name, what, shown, f"{goal:g}", met(what, value, goal)])
    return table(["item", "what", "measured", "goal", "met"], rows)


def _item(item: Item, entry: dict) -> list[str]:
    conditions, runs = entry["conditions"], entry["runs"]
    floor, peer = best(runs, ("floor",)), best(runs, PEERS)
    rows = []
    for contender, found in sorted(runs.items(), key=lambda pair: -(median(pair[1]) or 0)):
        name = title(contender)
        if contender == "plain" and item.plain_of:
            name += f" (on {item.plain_of})"
        if median(found) is None:
            rows.append([name, found[-1]["error"], *["-"] * 5])
            continue
        against = [_ratio(runs, contender, other) for other in (peer, floor)]
        rows.append(
            [
                name,
                f"{median(found):,.0f}",
                f"{min(rates(found)):,.0f} to {max(rates(found)):,.0f}",
                str(len(rates(found))),
                *("-" if value is None else f"{value:.2f}" for value in against),
                f"{memory(found) / MIB:,.0f}",
            ]
        )
    header = ["contender", "samples/s", "spread", "runs", "/ best peer", "/ floor", "peak MiB"]
    said = f"{conditions['date']}; measurements of {conditions['seconds']:g} s or a round."
    return [*table(header, rows), "", f"{said} {_versions(runs)}"]


def _versions(runs: dict) -> str:
    packages, tuned = {}, []
    for contender, found in runs.items():
        for run in found:
            packages |= run.get("versions", {})
        tuned += [f"{k} {v}" for k, v in found[-1].get("tuned", {}).items() if contender == "floor"]
    said = ", ".join(f"{name} {version}" for name, version in sorted(packages.items()))
    chosen = f" The floor's {', '.join(tuned).replace('_', ' ')}." if tuned else ""
    return f"Versions: {said}.{chosen}"


def _micro(micro: dict) -> list[str]:
    rows = []
    for part, entry in sorted(micro.items()):
        for name, readings in entry["runs"].items():
            if name == "error":
                rows.append([part, readings[-1], *["-"] * 5])
                continue
            values = [reading["value"] for reading in readings]
            middle, goal = statistics.median(values), readings[-1].get("goal")
            better = readings[-1].get("better", "low")
            reached = "-"
            if goal is not None:
                reached = "yes" if (middle <= goal if better == "low" else middle >= goal) else "no"
            spread = f"{min(values):.3g} to {max(values):.3g}"
            shown = [f"{middle:.3g} {readings[-1]['unit']}", spread, str(len(values))]
            rows.append([part, name, *shown, "-" if goal is None else f"{goal:g}", reached])
    dates = sorted({entry["conditions"]["date"] for entry in micro.values()})
    header = ["part", "what", "median", "spread", "runs", "goal", "met"]
    return [*table(header, rows), "", f"Measured on {', '.join(dates)}."]
