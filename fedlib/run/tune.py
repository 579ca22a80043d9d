"""Tuning: trains a run with several settings on a separate cut, and chooses one by validation.

Every method gets the same number of trials. The first has the declared setting, usually that of the
paper. The others are scrambled Sobol points (`torch.quasirandom`) that depend on the seed alone.
Their first coordinate is the rate of the local solver, so all methods try the same rates; the next
ones are the fields in the method's `SPACE`. A trial is an ordinary training. The chosen trial has
the highest mean validation accuracy over the seen clients after the last round; among equals, it is
the first. Test examples are removed before the first trial. A diverged trial is never chosen.

With a rung, all trials stop after a quarter of the rounds. Then the best quarter of them is trained
to the end, from the start.

Source: equal budgets, with the selection as a part of the method, as in DomainBed (Gulrajani and
Lopez-Paz, ICLR 2021); the rung is one of successive halving (Jamieson and Talwalkar, AISTATS 2016).
"""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.quasirandom import SobolEngine

from fedlib import methods, seals, streams
from fedlib.errors import ConfigError, DivergedError
from fedlib.federation import Federation, Split
from fedlib.methods.base import LogUniform, OneOf, Tried
from fedlib.results import RunResult, View
from fedlib.run import job
from fedlib.run.build import build_simulation
from fedlib.run.checkpoint import Checkpoints
from fedlib.run.evaluate import final
from fedlib.run.simulate import Simulation
from fedlib.run_spec import RUNG, RunSpec

RATE = "local.lr"
DIMENSIONS = 8  # of every point, so that rates do not depend on the number that a method uses
EDGE = 0.1  # share of a range at each end that counts as its edge
VALIDATION = View("seen", "default", "val")
NOTHING = (
    "tuning chooses by validation examples that clients predict by {!r}, and there are none: "
    "choose a partition with a validation part, or another protocol"
)


def tune(
    args: argparse.Namespace,
    spec: RunSpec,
    device: str,
    code: str,
    report: Callable[[str], None],
    stop: Callable[[], bool],
) -> None:
    """Run all trials, then write the choice and, last, the trials, which have its digest.

    Args:
      args: of `scripts/tune.py`.
      spec: of the run, with "tuning".
      device: from `fedlib.workflow.gpu.device`.
      code: digest of the code.
      report, stop: as in `Simulation.run`.
    """
    read = seals.contents(args.manifest, *args.weights)
    federation = drop_test(job.federation(args, spec))
    if not federation.val.sizes[federation.ids("seen")].any():
        raise ConfigError(NOTHING.format(spec.search.protocol))
    stamp = job.stamp(args, spec, code)
    finished = args.checkpoints / "finished.json"

    def build(ran: RunSpec) -> Simulation:
        given = {"device": device, "executor": args.executor, "weights": args.weights}
        return build_simulation(ran, federation, **given)

    def checkpoints(name: str) -> Checkpoints:
        return Checkpoints(args.checkpoints, {**stamp, "trial": name})

    trials = Tuner(spec, build, seals.Cache(finished), stamp, checkpoints, report, stop).run()
    found = record(spec, trials)
    digest = seals.spec_digest(spec.to_json())
    seals.write_json(args.choice, {job.VALUES: found["values"], job.TUNING: digest})
    made = seals.Made(digest, code, read, seals.contents(args.choice))
    seals.write_json(args.trials, found | {seals.MADE: str(made)})
    finished.unlink(missing_ok=True)
    Checkpoints(args.checkpoints, {}).clear()


class Trial(NamedTuple):
    """A setting and its accuracy.

    Attributes:
      values: by entry and name, {"local.lr": 0.1, "params.mu": 1.0}.
      accuracy: mean validation accuracy by number of rounds; None if it diverged.
    """

    values: dict[str, Any]
    accuracy: dict[int, float | None]


def tuning_space(spec: RunSpec) -> dict[str, Tried]:
    """The tuned values of a run, by entry and name, the rate first.

    Args:
      spec: of the run, with "tuning", see `fedlib.spec.Run`.

    Raises:
      ConfigError: if the method's `SPACE` has too many names.
    """
    own = methods.load(spec.method).SPACE
    if len(own) >= DIMENSIONS:
        most = f"SPACE may have at most {DIMENSIONS - 1} names"
        raise ConfigError(f"method {spec.method}: {most}, got {len(own)}")
    whole = {RATE: LogUniform(*spec.search.rates)}
    whole |= {f"params.{name}": tried for name, tried in own.items()}
    return {name: tried for name, tried in whole.items() if name not in spec.search.fixed}


def points(count: int, seed: int) -> np.ndarray:
    """The first scrambled Sobol points of a seed -> [count, DIMENSIONS] in [0, 1)"""
    [key] = streams.keys(1, seed, "tuning").tolist()
    sobol = SobolEngine(DIMENSIONS, scramble=True, seed=key)
    return sobol.draw(max(count, 1), dtype=torch.float64).numpy()[:count]


def settings(spec: RunSpec) -> list[dict[str, Any]]:
    """The values of each trial of a run, the declared ones first; `spec` as in `tuning_space`.

    Only the declared ones, if there is nothing to tune.
    """
    space, method = tuning_space(spec), methods.load(spec.method)

    def look_up(where: str) -> Any:
        entry, name = where.split(".")
        values = getattr(spec, entry)
        return values[name] if name in values else getattr(method, name)

    first = {name: look_up(name) for name in space}
    others = points(spec.search.trials - 1, spec.seed) if space else ()
    coordinates = [RATE, *(f"params.{name}" for name in method.SPACE)]  # tuned or fixed
    return [first] + [
        {name: tried.at(float(point[coordinates.index(name)])) for name, tried in space.items()}
        for point in others
    ]


def drop_test(federation: Federation) -> Federation:
    """The federation for tuning: without test examples and the truth."""
    nobody = Split.from_lists([[] for _ in range(federation.num_clients)])
    return replace(federation, test=nobody, truth=None)


def accuracy(result: RunResult, view: View = VALIDATION) -> float:
    """Mean validation accuracy over the seen clients with validation examples, at the end.

    Raises:
      ConfigError: if no client has any.
    """
    scores = result.scores.get(view)
    if scores is None:
        raise ConfigError(NOTHING.format(view.protocol))
    some = scores.count > 0
    return float((scores.correct[-1][some] / scores.count[some]).mean())


@dataclass(frozen=True)
class Tuner:
    """The trials of a run.

    Attributes:
      spec: of the run, with "tuning".
      build: makes the simulation of a specification, on a federation `drop_test`.
      memory: of the accuracies of finished trials, so that a killed job can continue.
      stamp: identifies the job (specification, code, shards).
      checkpoints: of the current trial, by its name; None keeps none.
      report, stop: as in `Simulation.run`.
    """

    spec: RunSpec
    build: Callable[[RunSpec], Simulation]
    memory: seals.Cache
    stamp: dict
    checkpoints: Callable[[str], Checkpoints | None] = lambda name: None
    report: Callable[[str], None] = print
    stop: Callable[[], bool] = lambda: False

    def run(self) -> list[Trial]:
        """All trials.

        Raises:
          DivergedError: if all of them diverged.
        """
        trials = [Trial(values, {}) for values in settings(self.spec)]
        rounds = self.spec.rounds
        going = range(len(trials))
        if self.spec.search.rung and len(trials) > RUNG and rounds > RUNG:
            early = math.ceil(rounds / RUNG)
            for number in going:
                self._try(trials, number, early)
            going = best(trials, early)[: math.ceil(len(trials) / RUNG)]
        for number in sorted(going):
            self._try(trials, number, rounds)
        if not best(trials, rounds):
            least = self.spec.search.rates[0]
            raise DivergedError(
                f"all {len(trials)} trials of {self.spec.method} diverged, so none can be "
                f"chosen; lower the rates, which begin at {least:g}, or tune in more trials"
            )
        return trials

    def _try(self, trials: Sequence[Trial], number: int, rounds: int) -> None:
        """Train a trial for `rounds` rounds, and note its accuracy."""
        trial, name = trials[number], f"{number}/{rounds}"
        [found] = self.memory.find(
            [self.stamp, name], lambda: [self._train(trial.values, rounds, name)]
        )
        self.memory.write()
        trial.accuracy[rounds] = found
        came_to = "diverged" if found is None else f"validation accuracy {found:.1%}"
        values = ", ".join(f"{name} = {value}" for name, value in trial.values.items())
        self.report(f"trial {number} after {rounds} rounds: {came_to} ({values})")

    def _train(self, values: dict, rounds: int, name: str) -> float | None:
        spec = replace(self.spec.set(values), rounds=rounds)
        checkpoints = self.checkpoints(name)
        view = VALIDATION._replace(protocol=self.spec.search.protocol)
        try:
            simulation = self.build(spec)
            state, result = simulation.run(checkpoints, lambda line: None, self.stop)
            if view != VALIDATION:
                everyone = partial(simulation.everyone, round=rounds)
                result = final(simulation.method, state, everyone, views=[view])
        except DivergedError:
            return None
        if checkpoints:
            checkpoints.clear()
        return accuracy(result, view)


def best(trials: Sequence[Trial], rounds: int) -> list[int]:
    """Numbers of the trials that did `rounds` rounds without diverging, the best first."""
    found = {n: t.accuracy[rounds] for n, t in enumerate(trials) if rounds in t.accuracy}
    return sorted((n for n in found if found[n] is not None), key=lambda n: -found[n])


def record(spec: RunSpec, trials: Sequence[Trial]) -> dict:
    """The record of a tuning, JSON-able; `spec` as in `tuning_space`."""
    space = tuning_space(spec)
    chosen = best(trials, spec.rounds)[0]
    values = trials[chosen].values
    return {
        "spec": spec.to_json(),
        "space": {name: [type(tried).__name__, *tried] for name, tried in space.items()},
        "trials": [
            {
                "values": trial.values,
                "accuracy": {str(rounds): found for rounds, found in trial.accuracy.items()},
                "diverged": None in trial.accuracy.values(),
            }
            for trial in trials
        ],
        "chosen": chosen,
        "values": values,
        "at_edge": [name for name, tried in space.items() if at_edge(tried, values[name])],
    }


def at_edge(tried: Tried, value: Any) -> bool:
    """Whether a value is in the outer tenth of a range, or outside; False for lists (`OneOf`)."""
    if isinstance(tried, OneOf) or value is None:
        return False
    return not EDGE <= tried.share(value) <= 1 - EDGE
