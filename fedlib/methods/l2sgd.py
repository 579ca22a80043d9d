"""L2SGD: loopless local gradient descent; a coin decides between training and averaging.

    with probability 1 - p   every client takes one step on one mini-batch
    with probability p       x <- (1 - a) x + a average of the clients' x,   a = lam / p

A round here ends with an averaging, so its number of local steps is geometric and may be 0.

Source: Hanzely and Richtarik, "Federated Learning of a Mixture of Global and Local Models", 2020.
Official code: omarfoq/FedEM, aggregator.py (LoopLessLocalSGDAggregator).
Deviation: the official averaging writes to copies and leaves the models unchanged, so it is Local;
ours averages. Only the cohort moves towards the average, which with the aggregation "damped" is of
all clients, as in paper and code, the absent ones with the models that they have. A schedule by
"epoch" advances once per round that has steps; the official one once per step. The paper has a =
eta lam / (C p) and steps of eta / (C (1 - p)), with C clients and one rate eta: the same algorithm,
with `lr` = eta / (C (1 - p)) and `lam` = eta lam / C, for clients of equal size, as the average
here (and in the code) is by numbers of examples. A round without local steps counts as traffic,
too, though nothing has changed.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from fedlib import streams, tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Memory
from fedlib.engine.task import Params
from fedlib.methods.base import Method, Range, Uniform


class State(NamedTuple):
    """The server's average, every client's model, and the memory of the solvers."""

    average: Params  # with "damped" of all clients' models, else of the last cohort's
    models: Params  # x [num_clients, ...], private
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class L2SGD(Method):
    """One model per client; at random times all models move towards their average.

    Attributes:
      local: local solver; its number of steps is random.
      p: probability of averaging, in (0, 1); a round has (1 - p) / p local steps on average. 0.1 is
        the default of the official code.
      lam: the code's lambda, in [0, p]. 0 is Local; with p all models become the average.
    """

    p: float = 0.1
    lam: float = 0.0

    look = "L2SGD", "#882255", "<", "dashdot"
    ranges: ClassVar = {"p": Range(0, 1, "()")}
    SPACE: ClassVar = {"lam": Uniform(0, 0.1)}
    protocols: ClassVar = {"seen": {"default": "personalise"}, "unseen": {"default": "average"}}

    def __post_init__(self):
        """Raises ValueError for `lam` outside [0, p], or a solver with a number of steps."""
        Method.__post_init__(self)
        if not 0 <= self.lam <= self.p:
            raise ValueError(f"lam must be in [0, p] = [0, {self.p}], got {self.lam}")
        if self.local.steps is not None or self.local.epochs != 1:
            raise ValueError(
                "L2SGD draws its number of local steps: epochs must be 1 and steps absent, got "
                f"{self.local.epochs} and {self.local.steps}"
            )

    def init(self, num_clients: int, seed: int) -> State:
        """The same new model for all clients."""
        params = self.task.init(seed)
        memory = self.local.memory(self.task.trainable(params), num_clients)
        return State(params, tree.repeat(params, num_clients), memory)

    def round(self, state: State, cohort: Cohort) -> State:
        """Local steps, then one averaging."""
        own, memory = tree.take(state.models, cohort.ids), state.memory
        if steps := self.local_steps(cohort):
            local = replace(self.local, steps=steps)
            models, memory = cohort.fit(self.task.loss, own, local=local, memory=memory)
        else:  # every round has a training loss
            models, losses = own, cohort.score(self.task.losses, own)
            cohort.journal.add(cohort.host_ids, cohort.example_mean(losses))
        if cohort.aggregation == "damped" and cohort.size < cohort.population:
            average = self.follow(state.average, own, cohort.collect(models), cohort)
            mixed = self.mix(models, cohort.broadcast(average))
            average = self.follow(average, models, mixed, cohort)
        else:  # the mixing leaves the average of all clients as it is
            average = cohort.average(models, state.average)
            mixed = self.mix(models, cohort.broadcast(average))
        return State(average, cohort.put(state.models, mixed), memory)

    def follow(self, average: Params, before: Params, after: Params, cohort: Cohort) -> Params:
        """The average of all clients' models once those of the cohort have changed."""
        change = cohort.total(tree.sub(after, before))
        return tree.add(average, change.over(cohort.population_examples))

    def local_steps(self, cohort: Cohort) -> int:
        """Number of local steps before the averaging, the same for all clients."""
        tosses = streams.generator(cohort.seed, cohort.round, "l2sgd").geometric(self.p)
        return int(tosses) - 1

    def mix(self, models: Params, average: Params) -> Params:
        """Models [C, ...] moved by the share a = lam / p of the way to `average` [C, ...]."""
        return tree.add(models, tree.sub(average, models), self.lam / self.p)

    def personalise(self, state: State, cohort: Cohort) -> Params:
        """Each client's own model."""
        return tree.take(state.models, cohort.ids)

    def average(self, state: State, cohort: Cohort) -> Params:
        """The server's average, for clients without a model."""
        return cohort.broadcast(state.average)
