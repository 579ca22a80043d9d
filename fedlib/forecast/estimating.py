"""Estimates the costs of runs, and writes them to results/FOLDER/estimates.json.

Values that several runs share are computed once and kept in the user's cache folder: sizes of
federations, rehearsals, and rates of this machine.
"""

import contextlib
import multiprocessing
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fedlib import seals
from fedlib.data import downloads, sizes
from fedlib.data.sizes import Sizes
from fedlib.engine import choice
from fedlib.environment import cache_folder, environment
from fedlib.errors import ConfigError, DataError, DivergedError, of_file
from fedlib.forecast import rates, rehearsal, requests
from fedlib.forecast.cells import duration
from fedlib.forecast.costs import costs
from fedlib.forecast.estimates import Estimate
from fedlib.forecast.made_up import unpretrained
from fedlib.forecast.rates import Rate
from fedlib.forecast.rehearsed import Rehearsed
from fedlib.forecast.requests import REHEARSAL, SIZES, Request, code_of, digest
from fedlib.forecast.unreal import Unreal
from fedlib.run import fitting
from fedlib.run.build import build_method, build_task
from fedlib.run_spec import is_file, of_training

TELL_EVERY = 10  # seconds
MANY = 64  # least number of runs for several processes, which take time to start
PROCESSES = 2  # each takes up to 1.2 GB, for a model of 345 million numbers
# Entries of a specification that a rehearsal does not use: it has all clients in each round, its
# own size of batches, and its own learning rates.
UNUSED = ("rounds", "evaluate_every", "seed", "data", "tuned")
UNUSED_OF = {"participation": ("rate", "selection"), "local": ("batch_size", "schedule")}
# Warning of PyTorch about batched steps with a layer that cannot be batched.
PERFORMANCE = "There is a performance drop"


def write(path: Path, asked: Sequence[Request], device: str, raw: str) -> None:
    """Estimate runs, and add them to the file of estimates every few seconds.

    Args:
      path: of the estimates.
      device: "cpu" or "cuda".
      raw: the folder data/raw, see `fedlib.data.sizes.sizes`.

    Raises:
      ConfigError: for a federation that cannot be dealt, or a user's method that fails.
    """
    runs = seals.remembered(path).get("runs", {})
    unit, kind = ("GPU", "gpu") if device == "cuda" else ("core", "cpu")
    machine = {"unit": unit, "machine": environment()[kind]}
    estimator, troubles, done = Estimator(device, raw), Troubles(), 0

    def keep() -> None:
        estimator.keep()
        seals.write_json(path, {**machine, "runs": runs})

    began = last = time.monotonic()
    try:
        for found in _found(estimator, asked):
            runs |= found.runs
            estimator.learn(found.facts)
            troubles.add(found.troubles)
            done += found.asked
            if done < len(asked) and time.monotonic() > last + TELL_EVERY:
                keep()  # a killed process loses little
                last = time.monotonic()
                left = duration((last - began) / done * (len(asked) - done))
                print(f"estimating: {done} of {len(asked)} runs, about {left} left", flush=True)
    finally:
        keep()
    troubles.tell()


class Estimated(NamedTuple):
    """Estimates of some requests.

    Attributes:
      asked: number of requests.
      runs: costs of their jobs, by name of the run.
      facts: new (facts, value) pairs for the cache.
      troubles: reasons for missing estimates.
    """

    asked: int
    runs: dict[str, dict]
    facts: list[tuple[Any, Any]]
    troubles: "Troubles"


def _found(estimator: "Estimator", asked: Sequence[Request]) -> Iterator[Estimated]:
    """Estimates of all runs, a few at a time; many runs are estimated by several processes."""
    if estimator.device != "cpu" or len(asked) < MANY:
        for request in asked:
            yield estimator.found([request])
        return
    by_model = defaultdict(list)
    for request in asked:
        by_model[request.spec["model"], request.data["dataset"]].append(request)
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(PROCESSES, context, torch.set_num_threads, (1,)) as pool:
        given = _found_here, estimator.device, estimator.raw
        groups = sorted(by_model.values(), key=len, reverse=True)
        for work in as_completed([pool.submit(*given, group) for group in groups]):
            yield work.result()


def _found_here(device: str, raw: str, asked: Sequence[Request]) -> Estimated:
    """Estimates of some runs, by the one estimator of this process."""
    return _estimator(device, raw).found(asked)


@cache
def _estimator(device: str, raw: str) -> "Estimator":
    return Estimator(device, raw)


class Estimator:
    """Estimates runs, and caches the values that several runs share."""

    def __init__(self, device: str, raw: str):
        warnings.filterwarnings("ignore", PERFORMANCE, UserWarning)
        self.device, self.raw = device, raw
        self._machine = rates.machine(device)
        self._cache = seals.Cache(cache_folder() / "forecasts.json")
        self._rules: dict[str, str] = {}  # executors by digest of a model
        self._facts: list[tuple[Any, Any]] = []  # new ones since the last call of `found`

    def found(self, asked: Sequence[Request]) -> Estimated:
        """Estimates of these runs."""
        self._facts, runs, troubles = [], {}, Troubles()
        for request in asked:
            with troubles.noted(request.name, request.spec["method"]):
                by_stage = self.costs(request)
                jobs = {stage: cost._asdict() for stage, cost in by_stage.items()}
                runs[request.name] = {"key": request.key(), **jobs}
        return Estimated(len(asked), runs, self._facts, troubles)

    def learn(self, facts: Sequence[tuple[Any, Any]]) -> None:
        """Add values from another estimator to the cache."""
        for fact, value in facts:
            self._cache.add(fact, value)

    def _find(self, fact: Any, find: Callable[[], Any]) -> Any:
        """The value for `fact`, from the cache or from `find`."""
        if self._cache.get(fact) is None:
            self._facts.append((fact, find()))
            self.learn(self._facts[-1:])
        return self._cache.get(fact)

    def costs(self, request: Request) -> dict[str, Estimate]:
        """Costs of training and evaluating a run -> {"train": Estimate, "evaluate": Estimate}

        Raises:
          UndealtError: for a federation that cannot be dealt.
          ConfigError, DataError, DivergedError: for a run that cannot be rehearsed.
        """
        owned = self._sizes_of(request)
        shapes = fitting.Shapes(owned.shape, owned.num_classes)
        spec = fitting.completed(of_training(request.spec), shapes)
        rehearsed = self._rehearsed(spec, request.spec["views"], owned)
        executor = request.executor
        if executor == "auto":
            executor = self._rule(spec)
        rate = self._rate(spec, owned, rehearsed, executor)
        batched = not choice.goes_one_by_one(executor)
        return costs(spec, owned, rehearsed, rate, batched=batched)

    def keep(self) -> None:
        """Write new values to the cache."""
        self._cache.write()

    def _sizes_of(self, request: Request) -> Sizes:
        params, dataset = request.data["params"], request.data["dataset"]
        sources = [params["source"]] if "source" in params else []
        state = downloads.state(dataset, sources, self.raw)
        facts = ["sizes", request.data, state, digest(SIZES)]
        try:
            kept = self._find(facts, lambda: sizes.sizes(request.data, self.raw))
        except ConfigError as error:
            raise UndealtError(str(error)) from None
        declared = Sizes(*kept)
        if request.manifest.exists():
            return sizes.of_manifest(seals.read_json(request.manifest), declared)
        return declared

    def _rehearsed(self, spec: dict, views: list, owned: Sizes) -> Rehearsed:
        used = {k: v for k, v in spec.items() if k not in UNUSED}
        for part, unused in UNUSED_OF.items():
            used[part] = {k: v for k, v in spec[part].items() if k not in unused}
        splits = ("train", "val", "test")
        having = {
            split: sorted({g for n, g in zip(getattr(owned, split), owned.group, strict=True) if n})
            for split in splits
        }
        shapes = {k: v for k, v in owned._asdict().items() if k not in ("group", *splits)}
        code = [*code_of(spec), *map(digest, REHEARSAL)]
        facts = ["rehearsal", _rough(used), views, shapes, having, code]
        kept = self._find(facts, lambda: rehearsal.rehearse(spec, views, owned).packed())
        return Rehearsed.unpacked(kept)

    def _rule(self, spec: dict) -> str:
        models = seals.spec_digest([spec[name] for name in ("model", "model_params", "modules")])
        if models not in self._rules:
            spec = unpretrained(spec)
            with Unreal():  # some models would need gigabytes
                method = build_method(spec, build_task(spec, self.device))
            self._rules[models] = choice.rule(fitting.tasks_of(method))
        return self._rules[models]

    def _rate(self, spec: dict, owned: Sizes, rehearsed: Rehearsed, executor: str) -> Rate:
        """Rate of a run; its further time per client is proportional to the size of its models."""
        plain, numbers = rates.typical(spec, owned, rehearsed), rehearsed.carried
        if plain is None:
            return self._measured(spec, owned, rehearsed, executor)
        of_plain = self._rehearsed(plain, [], owned)
        size = of_plain.carried
        if size > rates.LARGEST:
            products = lambda: rates.of_products(self.device)._asdict()  # noqa: E731
            rate = Rate(**self._find(["products", self._machine], products))
            return rate._replace(client=rate.client * numbers)
        rate = self._measured(plain, owned, of_plain, executor)
        return rate._replace(client=rate.client * numbers / size)

    def _measured(self, spec: dict, owned: Sizes, rehearsed: Rehearsed, executor: str) -> Rate:
        how = {"device": self.device, "executor": executor}
        kept = self._find(
            ["rate", rates.facts(spec, owned, executor, self._machine)],
            lambda: rates.measure(spec, owned, rehearsed, **how)._asdict(),
        )
        return Rate(**kept)


class UndealtError(ConfigError):
    """A federation cannot be dealt as declared; the job that cuts it would fail as well."""


class Troubles:
    """Reasons for missing estimates; each is printed once, with its runs.

    Attributes:
      wrong: runs by an error in their federation or a user's method, with which they would fail.
      unknown: runs by an error that only prevents an estimate.
    """

    def __init__(self):
        self.wrong, self.unknown = defaultdict(list), defaultdict(list)

    @contextlib.contextmanager
    def noted(self, run: str, method: str) -> Iterator[None]:
        """Note errors of this block; unexpected ones of our own methods are bugs, and pass."""
        try:
            yield
        except UndealtError as error:
            self.wrong[str(error)].append(run)
        except (ConfigError, DataError, DivergedError) as error:
            self.unknown[str(error)].append(run)
        except Exception as error:
            if not is_file(method):
                raise
            self.wrong[str(of_file(error, str(requests.ROOT / method), method))].append(run)

    def add(self, others: "Troubles") -> None:
        """Add the troubles of other runs."""
        for mine, theirs in ((self.wrong, others.wrong), (self.unknown, others.unknown)):
            for text, runs in theirs.items():
                mine[text] += runs

    def tell(self) -> None:
        """Print the errors in `unknown`; raise ConfigError for those in `wrong`."""
        for line in _lines(self.unknown):
            print(f"not estimated: {line}")
        if self.wrong:
            raise ConfigError("\n  ".join(_lines(self.wrong)))


def _lines(troubles: dict[str, list[str]]) -> list[str]:
    return [
        f"{runs[0]}{f' and {len(runs) - 1} more' if runs[1:] else ''}: {text}"
        for text, runs in troubles.items()
    ]


def _rough(value: object) -> object:
    """A specification with all fractional numbers, such as learning rates, replaced by 0.5."""
    if isinstance(value, dict):
        return {key: _rough(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rough(inner) for inner in value]
    return 0.5 if isinstance(value, float) else value
