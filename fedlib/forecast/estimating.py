"""Estimates the costs of runs, and writes them to results/FOLDER/estimates.json.

Values that several runs share are computed once and kept in the user's cache folder: sizes of
federations, rehearsals, and rates of this machine.
"""

import multiprocessing
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

import torch

from fedlib import seals
from fedlib.data import downloads, sizes
from fedlib.data.sizes import Sizes
from fedlib.engine import choice
from fedlib.environment import cache_folder, environment
from fedlib.errors import ConfigError, DataError, DivergedError, of_file
from fedlib.forecast import estimates, rates, rehearsal
from fedlib.forecast.cells import duration
from fedlib.forecast.costs import costs
from fedlib.forecast.counting import Unreal
from fedlib.forecast.estimates import REHEARSAL, SIZES, Estimate, Request, code_of, digest
from fedlib.forecast.made_up import unpretrained
from fedlib.forecast.rates import Rate
from fedlib.forecast.rehearsed import Rehearsed
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


class Estimated(NamedTuple):
    """The costs of the jobs of a run, or the reason why they are unknown.

    Attributes:
      name: of the run.
      costs: as in the file of estimates; empty with an error.
      error: its text.
      fails: whether the run itself would fail with this error.
    """

    name: str
    costs: dict = {}
    error: str = ""
    fails: bool = False


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
    estimator, unknown = Estimator(device, raw), []
    are_many = device == "cpu" and len(asked) >= MANY
    every = _of_processes(asked, device, raw) if are_many else map(estimator.estimated, asked)

    def keep() -> None:
        estimator.keep()
        seals.write_json(path, {**machine, "runs": runs})

    began = last = time.monotonic()
    try:
        for done, one in enumerate(every, start=1):
            if one.costs:
                runs[one.name] = one.costs
            else:
                unknown.append(one)
            if done < len(asked) and time.monotonic() > last + TELL_EVERY:
                keep()  # a killed process loses little
                last = time.monotonic()
                left = duration((last - began) / done * (len(asked) - done))
                print(f"estimating: {done} of {len(asked)} runs, about {left} left", flush=True)
    finally:
        keep()
    tell(unknown)


def tell(unknown: Sequence[Estimated]) -> None:
    """Print each reason for missing estimates once, with its runs.

    Raises:
      ConfigError: with the reasons for which runs would fail.
    """
    texts: dict[bool, list[str]] = {False: [], True: []}
    for fails, error in dict.fromkeys((one.fails, one.error) for one in unknown):
        first, *others = [x.name for x in unknown if (x.fails, x.error) == (fails, error)]
        texts[fails].append(f"{first}{f' and {len(others)} more' if others else ''}: {error}")
    for text in texts[False]:
        print(f"not estimated: {text}")
    if texts[True]:
        raise ConfigError("\n  ".join(texts[True]))


def _of_processes(asked: Sequence[Request], device: str, raw: str) -> Iterator[Estimated]:
    """Estimates of many runs by several processes, those of a model and data set by one."""
    by_model = defaultdict(list)
    for request in asked:
        by_model[request.spec["model"], request.data["dataset"]].append(request)
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(PROCESSES, context, torch.set_num_threads, (1,)) as pool:
        groups = sorted(by_model.values(), key=len, reverse=True)
        for work in as_completed([pool.submit(_of_group, x, device, raw) for x in groups]):
            yield from work.result()


def _of_group(asked: Sequence[Request], device: str, raw: str) -> list[Estimated]:
    """Estimates of some runs, whose shared values go to the cache."""
    estimator = Estimator(device, raw)
    try:
        return [estimator.estimated(request) for request in asked]
    finally:
        estimator.keep()


class Estimator:
    """Estimates runs, and caches the values that several runs share."""

    def __init__(self, device: str, raw: str):
        warnings.filterwarnings("ignore", PERFORMANCE, UserWarning)
        self.device, self.raw = device, raw
        self._machine = rates.machine(device)
        self._cache = seals.Cache(cache_folder() / "forecasts.json")
        self._rules: dict[str, str] = {}  # executors by digest of a model

    def estimated(self, request: Request) -> Estimated:
        """The estimate of a run; unexpected errors of our own methods are bugs, and pass."""
        name, method = request.name, request.spec["method"]
        try:
            costs = self.costs(request)
        except UndealtError as error:
            return Estimated(name, error=str(error), fails=True)
        except (ConfigError, DataError, DivergedError) as error:
            return Estimated(name, error=str(error))
        except Exception as error:
            if not is_file(method):
                raise
            text = str(of_file(error, str(estimates.ROOT / method), method))
            return Estimated(name, error=text, fails=True)
        jobs = {stage: cost._asdict() for stage, cost in costs.items()}
        return Estimated(name, {"key": request.key(), **jobs})

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
            kept = self._cache.find(facts, lambda: sizes.sizes(request.data, self.raw))
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
        kept = self._cache.find(facts, lambda: rehearsal.rehearse(spec, views, owned).packed())
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
            rate = Rate(**self._cache.find(["products", self._machine], products))
            return rate._replace(client=rate.client * numbers)
        rate = self._measured(plain, owned, of_plain, executor)
        return rate._replace(client=rate.client * numbers / size)

    def _measured(self, spec: dict, owned: Sizes, rehearsed: Rehearsed, executor: str) -> Rate:
        how = {"device": self.device, "executor": executor}
        kept = self._cache.find(
            ["rate", rates.facts(spec, owned, executor, self._machine)],
            lambda: rates.measure(spec, owned, rehearsed, **how)._asdict(),
        )
        return Rate(**kept)


class UndealtError(ConfigError):
    """A federation cannot be dealt as declared; the job that cuts it would fail as well."""


def _rough(value: object) -> object:
    """A specification with all fractional numbers, such as learning rates, replaced by 0.5."""
    if isinstance(value, dict):
        return {key: _rough(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rough(inner) for inner in value]
    return 0.5 if isinstance(value, float) else value
