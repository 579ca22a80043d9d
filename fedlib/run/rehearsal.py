"""A rehearsal of a user's class before its run: what do its functions return?

Without it, a loss that is not a scalar would be summed silently, and numbers that are not
probabilities would be compared. It is a round of two clients with a few examples each, twice. One
client has fewer than the other, so executors pad a batch, which reveals a step that ignores the
padding. A round of one client follows, and one by the run's executor.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from fedlib import draws, tree
from fedlib.engine.choice import choose
from fedlib.engine.cohort import Cohort
from fedlib.engine.device import DeviceData
from fedlib.engine.executors import Loop
from fedlib.engine.fingerprint import walk
from fedlib.engine.task import Batch
from fedlib.errors import ConfigError, DataError, DivergedError, brief, of_file, quote
from fedlib.federation import SPLITS, Split
from fedlib.methods.base import Method
from fedlib.run import checkpoint, contract, scoring
from fedlib.run.build import tasks_of, with_tasks
from fedlib.run.simulate import Simulation

CLIENTS = 2
TRIED = "(in a trial round of two clients)"  # after errors, which more clients might not cause
EXAMPLES = 14  # of each client and split; batches of most sizes leave other numbers of 14 and 7
FEWER = 7  # of the last client, unless the statistics of a batch forbid padding
ROUNDING = 0.01  # of sums of probabilities
SAME = 1e-6  # of a state and predictions after a round in float64, by two executors
SMALL = 1 << 20  # numbers of a tensor


def check(simulation: Simulation) -> None:
    """Raise ConfigError for what a function returns, or for draws that cannot be repeated."""
    federation = simulation.federation
    seen = federation.ids("seen")
    able = seen[federation.train.sizes[seen] > 0][:CLIENTS]
    if not len(able):
        return  # the run says so
    pads = all(task.may_pad for task in tasks_of(simulation.method))
    most = [FEWER if pads and c == able[-1] else EXAMPLES for c in range(federation.num_clients)]
    first = {
        name: Split.from_lists([federation.split(name).of(c)[:n] for c, n in enumerate(most)])
        for name in SPLITS
    }
    watch = _Watch()
    few = replace(simulation.only(able, **first), executor=watch)
    kind, before = type(few.method), {*vars(few.method)}
    name = kind.__name__
    instead = "take fedlib.streams.generator(cohort.seed, cohort.round, 'my draw')"

    def once(clients: int = CLIENTS) -> dict[str, Any]:
        watch.closed.clear()
        with draws.refuse(name, instead):
            cohort = _with_checks(few.cohort(able[:clients], 0), name)
            return _round_and_evaluation(few, cohort, name)

    # That steps diverge on these few examples says nothing about the run.
    with contextlib.suppress(DivergedError):
        one, other = once(), once()
        new = sorted(vars(few.method).keys() - before)
        if hidden := [x for x in new if not isinstance(getattr(kind, x, None), cached_property)]:
            raise ConfigError(f"{name} sets self.{hidden[0]}; a checkpoint keeps the state alone")
        odd = [entry for entry in one if not _same(one[entry], other[entry])]
        if odd and few.data.device.type == "cpu":  # on a GPU the order of sums may vary
            raise ConfigError(f"{name} gives another {odd[0]} when a round is repeated; {instead}")
    if any(task.is_heavy for task in tasks_of(simulation.method)):
        return  # each further round would take seconds
    of_both = [*watch.closed]
    # A method may need two clients; then what it did before the error is compared.
    with contextlib.suppress(Exception):
        once(1)
    _check_closures(of_both, watch.closed, name)
    if simulation.executor.name != "loop":
        _compare(few, simulation.executor.setting, name)


@contextlib.contextmanager
def refuse(name: str, file: str | None) -> Iterator[None]:
    """Turn errors into ConfigError: with the line of a user's `file`, or about frozen weights."""
    try:
        yield
    except (ConfigError, DataError):
        raise
    except Exception as error:  # a user's code may raise anything
        why = f"cannot train a model with these frozen weights ({brief(error)})"
        # Not any None: PyTorch shows signatures of what is called wrongly, and they have it.
        lack = "; is a return missing?" * any(x in str(error) for x in ("NoneType", "is None"))
        told = f"{of_file(error, file, name)}{lack} {TRIED}" if file else f"{name} {why}"
        raise ConfigError(told) from error


class _Watch(Loop):
    """Notes the shapes of the tensors that functions of one client close over."""

    def __init__(self):
        super().__init__()
        self.closed: list[list[int]] = []

    def lift(self, fn):
        """See `Loop.lift`."""
        with contextlib.suppress(Exception):  # as a user's objects may; then the tensors so far
            walk(fn, lambda x: self.closed.append([*x.shape]) or x, (Cohort,))
        return fn

    def each(self, work, fn, *more):
        """See `Loop.each`."""
        return super().each(work, self.lift(fn), *more)


def _check_closures(of_both: list[list[int]], of_one: list[list[int]], name: str) -> None:
    """Raise ConfigError if a function of one client closes over a row for each client.

    A tensor has such rows if it has one for two clients, and half as many for one.

    Args:
      of_both: shapes of the tensors that functions close over in a round of two clients, in the
        order of the calls. of_one: the same in a round of one.
    """
    for two, one in zip(of_both, of_one, strict=False):
        if two[:1] == [CLIENTS] and one == [1, *two[1:]]:
            raise ConfigError(
                f"{name}: a function of one client closes over a tensor of shape {two}, a row for "
                "each client, so all clients read all rows; make it an argument, as in "
                "cohort.fit(loss, models, rows), or cohort.held(rows) if all are to have all"
            )


def _compare(few: Simulation, setting: str, name: str) -> None:
    """Raise ConfigError if an executor predicts otherwise than client by client, in float64."""
    method = with_tasks(few.method, lambda x: x.move(x.device, torch.float64))
    data = DeviceData(few.federation, torch.float64, few.data.device)
    both = Loop(), choose(setting, tasks_of(method), 1)
    found = []
    try:
        for executor in both:
            one = replace(few, method=method, data=data, executor=executor)
            cohort = one.cohort(one.federation.ids("seen"), 0)
            found.append(_round_and_evaluation(one, cohort, name))
    except (DivergedError, RuntimeError) as error:
        # That a user's function is of float32 alone says nothing about the run.
        if found and isinstance(error, RuntimeError):  # one by one it works; it may read values
            raise
    pairs = zip(*map(dict.values, found), strict=True) if len(found) == 2 else ()
    if not all(torch.allclose(one, other, SAME, SAME, True) for one, other in pairs):
        raise ConfigError(
            f"{name} has other results with executor {setting} than client by client: a step "
            "of cohort.scan must leave out what batch.mask, if there, marks as filling a batch up; "
            "or PyTorch lacks a part of a derivative there, such as the second one of batch "
            "normalisation: take executor loop"
        )


def _with_checks(cohort: Cohort, name: str) -> Cohort:
    """A copy of the cohort; its `fit` refuses vectors as losses, empty models and odd memory."""

    class Checked(type(cohort)):
        def fit(self, loss, params, *args, **options):
            weights, buffers = self.task.trainable(params), tuple(self.task.statistics)
            if tree.leaves(tree.partition(weights, lambda x: x.endswith(buffers))[1]):
                raise ConfigError(f"{name}: it would train a buffer, which is not named as in init")
            if not tree.leaves(weights):
                raise ConfigError(
                    f"{name}: cohort.fit is given nothing to train; the body of a linear model "
                    "has no parameters, and frozen ones stay as they are"
                )
            memory, clients = options.get("memory"), self.data.federation.num_clients
            if memory is not None and len(memory.epochs) != clients:
                raise ConfigError(
                    f"{name}: memory must be of all {clients} clients, such as local.memory(params,"
                    f" num_clients) makes, got one of {len(memory.epochs)}"
                )

            def scalar(*inner):
                value = loss(*inner)
                if not isinstance(value, Tensor) or value.dim():
                    got = f"shape {[*value.shape]}" if isinstance(value, Tensor) else quote(value)
                    raise ConfigError(f"{name}: the loss must be a scalar, got {got}")
                once = inner[-1].epoch == 0 and self.task.may_pad
                if once and not _leaves_padding_out(loss, *inner):
                    raise ConfigError(
                        f"{name}: the loss depends on examples that only fill a batch up; average "
                        "over examples by batch.mean(values), not values.mean()"
                    )
                return value

            return super().fit(scalar, params, *args, **options)

    return Checked(**{field.name: getattr(cohort, field.name) for field in fields(cohort)})


def _leaves_padding_out(loss: Callable, *inner: Any) -> bool:
    """Whether a loss, without dropout, stays the same if an example of padding is added."""
    *params, batch = inner
    batch = batch._replace(train=False)
    more = {name: torch.cat([x, x[:1]]) for name, x in zip(batch._fields, batch[:3], strict=False)}
    real = torch.arange(len(batch.index) + 1, device=batch.index.device) < len(batch.index)
    padded = batch._replace(**more, mask=real)
    both = loss(*params, batch), loss(*params, padded)
    return torch.allclose(*both, rtol=ROUNDING / 10, equal_nan=True)


def _round_and_evaluation(few: Simulation, cohort: Cohort, name: str) -> dict[str, Any]:
    """Entries of the state after a round, and the predictions.

    Raises:
      ConfigError: for a state or predictions of the wrong form.
    """
    method, state = few.method, few.init()
    # Running statistics, which are small, are what a forward pass changes without being asked.
    given = [(entry, x) for entry, x in checkpoint.flatten(state).items() if isinstance(x, Tensor)]
    before = [x.clone() if x.numel() < SMALL else x for _, x in given]
    after = method.round(state, cohort)
    pairs = zip(given, before, strict=True)
    if odd := [entry for (entry, now), old in pairs if not _same(now, old)]:
        raise ConfigError(
            f"{name}.round changes {odd[0]} of the state that it was given; give models to "
            "cohort.fit as arguments, such as cohort.held(state.params)"
        )
    _check_alike(state, after, name)
    after = method.observe(after, cohort, "seen")
    contract.diagnostics(method, after, few.federation.num_clients)
    contract.by_round(method, after)
    found = checkpoint.flatten(after)
    checked = partial(_check_predictions, method, few.federation.num_classes, name)
    predict = checked if cohort.executor.name == "loop" else method.predict
    for way, personal in scoring.prepare(method, after, cohort, method.protocols.get("seen", {})):
        found[f"prediction ({way})"] = cohort.score(predict, personal, split="train")
    return found


def _check_predictions(
    method: Method, labels: int, name: str, personal: Any, batch: Batch
) -> Tensor:
    """What the method predicts; raises ConfigError unless it is log-probabilities."""
    log_probs = method.predict(personal, batch)
    if log_probs.shape != (*batch.y.shape, labels):
        raise ConfigError(
            f"{name}.predict must return log-probabilities of shape "
            f"{[*batch.y.shape, labels]}, got {[*log_probs.shape]}"
        )
    sums = log_probs.exp().sum(-1)
    if (sums - 1).abs().max() > ROUNDING:
        raise ConfigError(
            f"{name}.predict must return log-probabilities; the probabilities of an example "
            f"sum to {sums.flatten()[0]:.3g}"
        )
    return log_probs


def _same(one: Any, other: Any) -> bool:
    if not isinstance(one, Tensor):
        return one == other
    return torch.equal(one.nan_to_num(), other.nan_to_num())


def _check_alike(state: Any, after: Any, name: str) -> None:
    """Raises ConfigError unless a round's state has the entries, shapes and types of init's."""
    first, second = checkpoint.flatten(state), checkpoint.flatten(after)
    must = f"{name}.round must return a state like init's"
    every = *first.items(), *second.items()
    others = {entry for entry, x in every if not isinstance(x, Tensor)}
    if odd := sorted(first.keys() ^ second.keys() | others):
        got = quote(after) if "" in odd else f"one that differs, or has no tensor, in {odd[0]}"
        raise ConfigError(f"{must}, got {got}")
    for entry, value in first.items():
        one, other = ((x.dtype, [*x.shape]) for x in (value, second[entry]))
        if one != other:
            raise ConfigError(f"{must}; {entry} was {one} and is {other}")
