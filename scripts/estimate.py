#!/usr/bin/env python3
"""Reckon what training and evaluating every run will take here: results/FOLDER/estimates.json.

Nothing is trained and no data are read. What a run computes is counted on made-up examples
(`fedlib.run.rehearsal`), for federations of the declared size (`fedlib.data.sizes`) or, once they
are cut, of that in the manifest; how fast this machine is, is measured in a moment for each kind of
model (`fedlib.run.rates`). All of it is remembered in the user's cache folder.

With a budget in the configuration, the cells of tables that it buys are written beside, as a
configuration file for the steps after this one.
"""

import argparse
import contextlib
import hashlib
import importlib.metadata
import json
import signal
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of imports; see command.run

from fedlib import files, seals
from fedlib.environment import environment
from fedlib.errors import ConfigError, DataError, DivergedError, of_file
from fedlib.run_spec import is_file, of_training, run_roots
from fedlib.spec import Data
from fedlib.workflow import command, config, dryrun, estimates
from fedlib.workflow.costs import hours, words
from fedlib.workflow.plan import Plan
from fedlib.workflow.provenance import ROOT

TELL_EVERY = 10  # seconds
# Said of what is batched over clients and, for some layer, one by one in truth.
PERFORMANCE = "There is a performance drop"
# What is remembered is of these modules as they were: an edit may change its form, or its meaning.
SIZES, REHEARSAL, FORECAST = (
    ROOT / f"fedlib/{name}.py" for name in ("data/sizes", "run/rehearsal", "run/forecast")
)


def main() -> None:
    """Parse the arguments, reckon what is not known yet, choose what a budget buys."""
    parser = argparse.ArgumentParser(description=command.described(__doc__))
    parser.add_argument(
        "--configfile", nargs="+", default=[], help="YAML or JSON, laid over config.yaml"
    )
    parser.add_argument("--config", nargs="+", default=[], metavar="KEY=VALUE", help="laid over it")
    args = parser.parse_args()
    plan = Plan(config.read([ROOT / "config.yaml", *args.configfile], args.config))
    before = seals.remembered(ROOT / plan.path("estimates")).get("runs", {})
    open_ = {estimates.run_name(job) for _, job in estimates.remaining(plan, ROOT)}
    keys = {name: _key(plan, name) for name in plan.runs if "/".join(name) in open_}
    todo = [n for n in keys if before.get("/".join(n), {}).get("key") != keys[n]]
    if todo:
        warnings.filterwarnings("ignore", PERFORMANCE, UserWarning)
        _reckon(plan, todo, keys, before)
    if plan.config["budget"]:
        _choose(plan)


def _key(plan: Plan, name: tuple[str, str, str]) -> str:
    """What an estimate depends on, in short.

    The code of the method and of its models counts, but not that of what these import: an edit of
    the engine hardly changes what is computed.
    """
    paper, federation, label = name
    spec = json.loads(plan.spec("evaluate", seed=_seed(plan, name), **_names(name)))
    facts = {
        "spec": {**spec, "seed": 0, "data": ""},
        "done": _done(plan, name),
        "data": plan.data(paper, federation).spec(0),
        "cut": _digest(_manifest(plan, name)),
        "code": [_digest(file) for file in (*_files(spec), SIZES, REHEARSAL, FORECAST)],
        "wanted": [plan.config[key] for key in ("device", "executor")],
        "machine": [environment()["cpu"], importlib.metadata.version("torch")],
    }
    return hashlib.sha256(files.canonical_json(facts).encode()).hexdigest()[:16]


def _reckon(plan: Plan, todo: list, keys: dict, before: dict) -> None:
    """Estimate these runs and write them down with the others, all that is known every moment."""
    from fedlib.workflow import gpu

    path = ROOT / plan.path("estimates")
    with gpu.device(plan.config["device"]) as device:
        maker, found = Maker(plan, device), dict(before)
        unit, kind = ("GPU", "gpu") if device == "cuda" else ("core", "cpu")
        about = {"unit": unit, "machine": environment()[kind]}

        def keep() -> None:
            maker.remember()
            seals.write_json(path, {**about, "runs": found})

        began = told = time.monotonic()
        troubles = Troubles()
        try:
            for number, name in enumerate(todo):
                if number and time.monotonic() > told + TELL_EVERY:
                    keep()  # who ends this, however that is done, loses little
                    told = time.monotonic()
                    left = words((told - began) / number * (len(todo) - number))
                    print(
                        f"estimating: {number} of {len(todo)} runs, about {left} left", flush=True
                    )
                with troubles.noted("/".join(name), plan.runs[name].method):
                    found["/".join(name)] = {"key": keys[name], **maker.jobs(name)}
        finally:
            keep()
    troubles.tell()
    print(f"estimated {len(todo)} run{'s' * (len(todo) != 1)} anew: {path.relative_to(ROOT)}")


class UndealtError(ConfigError):
    """A federation that cannot be dealt as it is declared: the job that cuts it would say so."""


class Troubles:
    """What runs could not be estimated for, each said once.

    Attributes:
      wrong: runs by what is wrong with their federation or a user's method, with which they fail.
      unknown: runs by what only keeps them from being estimated.
    """

    def __init__(self):
        self.wrong, self.unknown = defaultdict(list), defaultdict(list)

    @contextlib.contextmanager
    def noted(self, run: str, method: str) -> Iterator[None]:
        """Note what happens in this block; errors of our own methods are bugs, and pass."""
        try:
            yield
        except UndealtError as error:
            self.wrong[str(error)].append(run)
        except (ConfigError, DataError, DivergedError) as error:
            self.unknown[str(error)].append(run)
        except Exception as error:
            if not is_file(method):
                raise
            self.wrong[str(of_file(error, str(ROOT / method), method))].append(run)

    def tell(self) -> None:
        """Print what is not known; raises ConfigError for what is wrong."""
        for line in _lines(self.unknown):
            print(f"not estimated: {line}")
        if self.wrong:
            raise ConfigError("\n  ".join(_lines(self.wrong)))


def _lines(found: dict[str, list[str]]) -> list[str]:
    return [
        f"{runs[0]}{f' and {len(runs) - 1} more' if runs[1:] else ''}: {text}"
        for text, runs in found.items()
    ]


class Maker:
    """Makes estimates; what several runs share is found once and remembered.

    Attributes:
      plan: whose runs; device: that they would compute on.
    """

    def __init__(self, plan: Plan, device: str):
        from fedlib.run import rates

        self.plan, self.device = plan, device
        self._folder = rates.file().parent
        self._rates, self._fresh = rates.remembered(), {}
        self._kept = {
            name: seals.remembered(self._folder / f"{name}.json")
            for name in ("sizes", "rehearsals")
        }
        self._machine = rates.machine(device)

    def jobs(self, name: tuple[str, str, str]) -> dict:
        """What training and evaluating a run take -> {"train": {...}, "evaluate": {...}}"""
        from fedlib.engine.choice import goes_one_by_one
        from fedlib.run import fitting, forecast, rehearsal

        full = json.loads(self.plan.spec("evaluate", seed=_seed(self.plan, name), **_names(name)))
        views, spec = full["views"], of_training(full)
        sizes = self._sizes(name)
        spec = fitting.completed(spec, fitting.Shapes(sizes["shape"], sizes["num_classes"]))
        rehearsed = rehearsal.Rehearsed(*self._rehearsed(spec, views, sizes))
        setting = self._setting(spec)
        rate = self._rate(spec, sizes, rehearsed, setting)
        done = _done(self.plan, name)
        found = forecast.forecast(
            spec, sizes, rehearsed, rate, done=done, batched=not goes_one_by_one(setting)
        )
        return {stage: cost._asdict() for stage, cost in found.items()}

    def remember(self) -> None:
        """Write down what was found."""
        from fedlib.run import rates

        if self._fresh:
            rates.remember(self._fresh)
            self._fresh = {}
        for name, found in self._kept.items():
            seals.remember(self._folder / f"{name}.json", found)

    def _sizes(self, name: tuple[str, str, str]) -> dict:
        """Of a run's federation."""
        from fedlib.data import downloads, sizes

        declared: Data = self.plan.data(*name[:2])
        spec, raw = declared.spec(0), self.plan.config["raw"]
        sources = [spec["params"]["source"]] if "source" in spec["params"] else []
        state = downloads.state(declared.dataset, sources, raw)
        key = _short([spec, state, _digest(SIZES)])
        if key not in self._kept["sizes"]:
            try:
                self._kept["sizes"][key] = list(sizes.sizes(spec, raw))
            except ConfigError as error:
                raise UndealtError(str(error)) from None
        found = sizes.Sizes(*self._kept["sizes"][key])
        manifest = _manifest(self.plan, name)
        if manifest.exists():
            found = sizes.of_manifest(seals.read_json(manifest), found)
        return found._asdict()

    def _rehearsed(self, spec: dict, views: list, sizes: dict) -> list:
        from fedlib.run import rehearsal

        course = {"rounds": 1, "evaluate_every": 1, "seed": 0, "data": ""}
        shapes = {k: v for k, v in sizes.items() if k not in ("group", "train", "val", "test")}
        owned = {
            split: [sizes["group"][i] for i, n in enumerate(sizes[split]) if n]
            for split in ("train", "val", "test")
        }
        kinds = {split: sorted({*groups}) for split, groups in owned.items()}
        code = [_digest(file) for file in (*_files(spec), REHEARSAL)]
        key = _short([_rough(spec | course), views, shapes, kinds, code])
        if key not in self._kept["rehearsals"]:
            self._kept["rehearsals"][key] = list(rehearsal.rehearse(spec, views, sizes))
        return self._kept["rehearsals"][key]

    def _setting(self, spec: dict) -> str:
        """The executor of a run: as configured, or that of the rule."""
        from fedlib.engine import choice
        from fedlib.run.build import build_task

        wanted = self.plan.config["executor"]
        if wanted != "auto":
            return wanted
        return choice.rule(build_task({**spec, "weights": None}, self.device))

    def _rate(self, spec: dict, sizes: dict, rehearsed, setting: str) -> dict:
        from fedlib.run import rates

        key = rates.key(rates.facts(spec, sizes, setting, self._machine))
        if key not in self._rates:
            how = {"device": self.device, "executor": setting}
            self._fresh[key] = self._rates[key] = rates.measure(spec, sizes, rehearsed, **how)
        return self._rates[key]


def _choose(plan: Plan) -> None:
    """Write down what the budget buys, and tell it."""
    budget = config.budget_seconds(plan.config["budget"])
    known = dryrun.records(ROOT, plan)
    kinds = dryrun.by_kind(known)
    reckoned = estimates.Estimates.of(plan, ROOT).corrected(plan, known)
    seconds: dict[tuple[str, str], list[float]] = {}
    for stage, job in estimates.remaining(plan, ROOT):
        one = dryrun.Job(stage, {key: str(value) for key, value in job.items()}, "")
        name = estimates.run_name(job)
        spent = dryrun.estimate(one, plan, kinds, reckoned)
        unknown = float("inf")  # no budget buys it
        seconds.setdefault((name, stage), []).append(unknown if spent is None else spent)
    cells = estimates.cells(plan, seconds, reckoned)
    bought = estimates.affordable(cells, budget, _published(plan))
    path = ROOT / plan.path("budget")
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(path, estimates.selection(bought) + "\n")
    new = [cell for cell in bought if cell.jobs]
    spent = hours(sum(cell.seconds for cell in new))
    left = len([cell for cell in cells if cell.tables]) - len(bought)
    print(
        f"budget {plan.config['budget']}: {len(new)} cells to run in {spent} {reckoned.unit}-hours,"
        f" {len(bought) - len(new)} done, {left} not run; see {path.relative_to(ROOT)}"
    )


def _published(plan: Plan) -> set[str]:
    """Names of the cells that a table shows beside a number of the paper."""
    from fedlib.exhibits import published  # takes a second to import

    found = set()
    for paper, declared in plan.papers.items():
        tables = [x for x in declared.tables.values() if x.published and x.kind != "criteria"]
        numbers = published.read(ROOT / plan.path("published", paper=paper)) if tables else None
        for run in declared.runs:
            where = plan.data(paper, run.federation).dataset, run.label
            if any(
                table.shows(run.federation, run.label)
                and published.has(numbers, table.published, *where)
                for table in tables
            ):
                found.add(f"{paper}/{run.federation}/{run.label}")
    return found


def _files(spec: dict) -> list[Path]:
    """The modules of a run's method and models."""
    modules = run_roots("train", spec)[1:]
    return [ROOT / (module.replace(".", "/") + ".py") for module in modules]


_digests: dict[Path, str] = {}


def _digest(path: Path) -> str | None:
    """Of a file's content; None without the file."""
    if path not in _digests and path.exists():
        _digests[path] = files.digest(path)
    return _digests.get(path)


def _rough(value: object) -> object:
    """A specification in which learning rates and the like are all the same."""
    if isinstance(value, dict):
        return {key: _rough(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rough(inner) for inner in value]
    return 0.5 if isinstance(value, float) else value


def _done(plan: Plan, name: tuple[str, str, str]) -> int:
    """Rounds of the run that this one goes on from."""
    earlier = plan.earlier(*name)
    return earlier.rounds if earlier else 0


def _seed(plan: Plan, name: tuple[str, str, str]) -> int:
    return plan.papers[name[0]].seeds_of(plan.runs[name])[0]


def _names(name: tuple[str, str, str]) -> dict[str, str]:
    return dict(zip(("paper", "federation", "label"), name, strict=True))


def _manifest(plan: Plan, name: tuple[str, str, str]) -> Path:
    return ROOT / plan.path("manifest", seed=_seed(plan, name), **_names(name))


def _short(value: object) -> str:
    return hashlib.sha256(files.canonical_json(value).encode()).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(command.run(main))
