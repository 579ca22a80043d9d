"""IFCA: several models; every client trains the one that fits it best, or explores.

    client  chooses the model of lowest loss on its train split, or any with some probability;
            trains it
    server  averages each model over the clients that chose it; a model that no client chose is kept

Source: Ghosh et al., "An Efficient Framework for Clustered Federated Learning", NeurIPS 2020,
Algorithm 1 (model averaging); exploration, early stopping and the order of steps are those of
Isaksson et al., "Adaptive Expert Models for Personalization in Federated Learning", FL-IJCAI 2022
(arXiv:2206.07832), Algorithms 1 to 4. In the attributes, "the paper" is the second one.
Official code: EricssonResearch/fl-moe, main_fed.py; section 2 of
fedlib/papers/adaptive_experts/README.md. IFCA's authors: jichan3751/ifca, whose experiments share
a representation on FEMNIST, and average without weights on rotated CIFAR-10.
Deviation: a client's loss is the mean over its examples; the official code gives a smaller last
batch the weight of a whole one. A loss that is not finite ends the run; the official code ignores
the model, or takes any if all losses are so.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedlib import streams, tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.experts import NUMBERS, draw_experts, each_expert
from fedlib.engine.journal import refuse_divergence
from fedlib.engine.parts import Total
from fedlib.engine.solvers import Solver
from fedlib.engine.task import Batch, Params
from fedlib.methods.base import Method, OneOf, Range
from fedlib.methods.parts import early_stopping
from fedlib.models.layers.initialise import convolution_weights
from fedlib.tree import Rows

EXPLORATIONS = ("none", "eps", "eps_decay", "eps_decay_b", "eps_decay_k")
CLUSTER_INITS = ("conv_only", "full")
STOPS = ("never", "all", "each")


class State(NamedTuple):
    """The server's models, each at its best check so far, and the clients' choices."""

    experts: Params  # [E, ...], shared by all clients
    best: Params  # [E, ...], each model at its best check; {} for stop "never"
    best_loss: Tensor  # [E], of `best`; infinite before a model's first check
    failed: Tensor  # [E] int64, checks since the best one
    choice: Tensor  # [num_clients] int64, the model of lowest loss at the last evaluation


@dataclass(frozen=True, kw_only=True)
class IFCA(Method):
    """One model per cluster of clients.

    Absent clients have no weight, whatever the run's `aggregation` is.

    Attributes:
      local: solver of a client in a round (SGD in the paper; rate and weight decay in Table 1). It
        is new in every round: momenta and the epochs of a schedule start at zero.
      num_experts: E, the paper's J, "clusters" in its code; at least 1, which is FedAvg with
        `keeps="round"` and the aggregation "renormalised". Table 2 has 6.
      exploration: schedule of the probability of a random choice in round t, counted from 0: "none"
        is IFCA; "eps" is `epsilon`, the paper's epsilon-greedy; and, of its code, "eps_decay" is
        1 / (t + 1); "eps_decay_b" is (t + 1)^-b, which equals `epsilon` at an eighth of the
        `horizon`; "eps_decay_k" is (t + 1)^(-2 / J).
      epsilon: for "eps" and "eps_decay_b", in [0, 1]; 0 is IFCA, Table 1 has 0.33.
      horizon: rounds of the run, for "eps_decay_b", at least 0.
      cluster_init: "full": models differ in all weights; "conv_only": only in those of convolutions
        (official code).
      stop: "never"; or "all": training ends when every model has failed `patience` checks in a row
        (official code), and clients predict with each model at its best check; or "each": a model
        that has failed `patience` checks is no longer sent, chosen or trained (Algorithm 1, lines
        11 and 12, which the paper does not use for its results), and training ends with the last.
      stop_every: rounds between checks, at least 1; the first check is in the first round (official
        code: 10).
      patience: failed checks in a row, at least 1 (official code: 10). A model fails a check if its
        loss is not the lowest so far, or no client chose it.
      stop_split: split of the checks: "val", or "test" as in the official code, which selects
        models on the data that it reports.
      shares_body: whether all models have one body, the average over all clients, and only heads of
        their own, as IFCA's authors train on FEMNIST ("all but the last layer"); a client still
        sends a whole model.
      lr_decay: whether the learning rate falls during a round as in the official code, by 1 per
        cent in 100 epochs; see `fedlib.methods.parts.early_stopping.SlowDecay`.
    """

    num_experts: int
    exploration: str = "none"
    epsilon: float = 0.0
    horizon: int = 0
    cluster_init: str = "full"
    stop: str = "never"
    stop_every: int = 10
    patience: int = 10
    stop_split: str = "val"
    shares_body: bool = False
    lr_decay: bool = False

    look = "IFCA", "#2255AA", "H", "solid"
    choices: ClassVar = {
        "exploration": EXPLORATIONS,
        "cluster_init": CLUSTER_INITS,
        "stop": STOPS,
        "stop_split": early_stopping.STOP_SPLITS,
    }
    ranges: ClassVar = {
        **dict.fromkeys(("stop_every", "patience"), Range(1)),
        **{"num_experts": NUMBERS, "epsilon": Range(0, 1), "horizon": Range(0)},
    }
    SPACE: ClassVar = {"num_experts": OneOf((2, 3, 4, 6)), "epsilon": OneOf((0.0, 0.1, 0.3))}

    def __post_init__(self):
        """Raises ValueError for settings that contradict each other."""
        Method.__post_init__(self)
        if self.exploration == "eps_decay_b" and not (self.epsilon > 0 and self.horizon > 0):
            raise ValueError(
                "exploration 'eps_decay_b' needs epsilon and horizon above 0, got "
                f"{self.epsilon} and {self.horizon}"
            )
        if self.lr_decay and self.local.schedule.kind != "constant":
            kind = self.local.schedule.kind
            raise ValueError(f"lr_decay needs a local schedule that is constant, got {kind!r}")
        if self.num_experts > 1 and self.cluster_init == "conv_only" and not self._conv_weights:
            raise ValueError(
                "cluster_init 'conv_only' makes equal models of a network without convolutions; "
                "use 'full'"
            )

    @cached_property
    def solver(self) -> Solver:
        """The local solver with its schedule."""
        return early_stopping.decaying(self.local, self.lr_decay)

    @cached_property
    def _conv_weights(self) -> frozenset[str]:
        """Names of the weights in which models differ at first, with "conv_only"."""
        return convolution_weights(self.task.build)

    def init(self, num_clients: int, seed: int) -> State:
        """New models, by `cluster_init`; all clients have chosen the first."""
        experts = draw_experts(self.task, self.num_experts, seed)
        first = tree.repeat(tree.take(experts, 0), self.num_experts)
        if self.cluster_init == "conv_only":
            experts = first | {name: experts[name] for name in self._conv_weights}
        if self.shares_body:
            experts = experts | self.task.split(first)[0]
        like = next(iter(experts.values()))
        counts = like.new_zeros(self.num_experts, dtype=torch.int64)
        return State(
            experts,
            best={} if self.stop == "never" else experts,
            best_loss=like.new_full((self.num_experts,), torch.inf),
            failed=counts,
            choice=counts.new_zeros(num_clients),
        )

    # -- a round ----------------------------------------------------------------------

    def round(self, state: State, cohort: Cohort) -> State:
        """Choose, train, average within clusters, check; no change after training has stopped."""
        if self.stopped(state):
            return state
        trained = self.in_training(state)
        candidates = self.send(tree.take(state.experts, trained), cohort)
        explore = self.probability(cohort.round)
        choice = trained[self.choose(candidates, cohort, explore, "explore")]
        chosen = dict(zip(cohort.host_ids.tolist(), choice.tolist(), strict=True))
        experts = tree.unstack(state.experts)
        start = Rows(experts[number] for number in chosen.values())

        def returns(part: Cohort, models: Rows) -> list[Total]:
            own = np.array([chosen[client] for client in part.host_ids.tolist()])
            return [part.total(models, own == number) for number in range(self.num_experts)]

        sent, _ = cohort.fit(self.task.loss, start, local=self.solver, returns=returns)
        cohort.collect(sent[0])  # a client returns one model
        pairs = zip(sent, experts, strict=True)
        experts = tree.stack([new.mean() if new.weight else old for new, old in pairs])
        if self.shares_body:
            experts = experts | self.common([total.weight for total in sent], experts)
        return self.check(state._replace(experts=experts), start, choice, cohort)

    def send(self, experts: Params, cohort: Cohort) -> Params:
        """Send models to every client, a body that they share once: [U, ...] -> [C, U, ...]"""
        if not self.shares_body:
            return cohort.broadcast(experts)
        body, heads = self.task.split(experts)
        cohort.broadcast((tree.take(body, 0), heads))
        return cohort.held(experts)

    def common(self, weights: Sequence[float], experts: Params) -> Params:
        """The body of all models: the average of theirs [E, ...] with these weights -> [E, ...]"""
        body, _ = self.task.split(experts)
        shares = torch.tensor(weights, dtype=torch.float64) / sum(weights)
        return {
            name: tree.repeat(torch.tensordot(shares.to(x), x, 1), self.num_experts)
            for name, x in body.items()
        }

    def stopped(self, state: State) -> bool:
        """Whether every model has lost its patience."""
        return self.stop != "never" and bool((state.failed >= self.patience).all())

    def in_training(self, state: State) -> Tensor:
        """Numbers of the models that are still trained, ascending -> [U] int64"""
        numbers = torch.arange(self.num_experts, device=state.failed.device)
        return numbers[state.failed < self.patience] if self.stop == "each" else numbers

    def probability(self, round: float) -> float:
        """Probability that a client explores in `round` t, counted from 0."""
        match self.exploration:
            case "eps":
                return self.epsilon
            case "eps_decay":
                return 1 / (round + 1)
            case "eps_decay_b":
                return (round + 1) ** (math.log(self.epsilon) / math.log(self.horizon / 8 + 1))
            case "eps_decay_k":
                return (round + 1) ** (-2 / self.num_experts)
        return 0.0

    def choose(self, experts: Params, cohort: Cohort, explore: float, stream: str) -> Tensor:
        """The model of lowest loss on each client's train split, or any -> [C]

        Args:
          experts: leaves [C, E, ...].
          explore: probability of a random choice.
          stream: random stream of the choice.

        Raises:
          DivergedError: for a loss that is not finite.
        """
        if len(tree.leaves(tree.take(experts, 0))[0]) == 1:  # no choice
            return torch.zeros_like(cohort.ids)
        losses = cohort.example_mean(cohort.score(self.losses, experts))
        clients, names = cohort.host_ids, (cohort.seed, cohort.round, stream)
        refuse_divergence(losses, clients, f"by round {cohort.round}", "an expert's training loss")
        return pick_models(losses, explore, clients, *names)

    def losses(self, experts: Params, batch: Batch) -> Tensor:
        """Negative log-likelihood of each example under each expert -> [B, E]"""
        return each_expert(lambda expert: self.task.losses(expert, batch), experts)

    def check(self, state: State, start: Rows, choice: Tensor, cohort: Cohort) -> State:
        """Early stopping: keep models with a new lowest loss, count the failed checks of others.

        As in the official code, the loss is of the models before the round, `start`, but the models
        after the round are kept.
        """
        if self.stop == "never" or cohort.round % self.stop_every:
            return state
        split = self.stop_split
        early_stopping.refuse_nothing_to_stop_on(cohort, split)
        losses = early_stopping.client_losses(cohort, self.task.losses, start, split=split)
        when, what = f"by round {cohort.round}", f"{split} loss"
        refuse_divergence(losses, cohort.host_ids, when, what)
        members = one_hot(choice, self.num_experts).T.bool()  # [E, C]
        total = torch.where(members, losses, 0).sum(1)
        loss = (total / members.sum(1)).to(state.best_loss.dtype)  # NaN if no client chose it
        better = loss < state.best_loss
        return state._replace(
            best=tree.where(better, state.experts, state.best),
            best_loss=torch.where(better, loss, state.best_loss),
            failed=torch.where(better, 0, state.failed + 1),
        )

    # -- evaluation -------------------------------------------------------------------

    def observe(self, state: State, cohort: Cohort, group: str) -> State:
        """Every client chooses the model of lowest loss on its train split."""
        choice = self.choose(cohort.held(self.best_experts(state)), cohort, 0.0, "predict")
        return state._replace(choice=cohort.put(state.choice, choice))

    def best_experts(self, state: State) -> Params:
        """Each model at its best check, or as it is if it has none -> [E, ...]"""
        if self.stop == "never":
            return state.experts
        return tree.where(state.best_loss.isfinite(), state.best, state.experts)

    def personalise(self, state: State, cohort: Cohort) -> Params:
        """The model that each client, seen or unseen, chose at the last evaluation."""
        return tree.take(self.best_experts(state), state.choice[cohort.ids])

    def diagnostics(self, state: State) -> dict[str, Tensor]:
        """Each client's model [num_clients]."""
        return {"choice": state.choice}


def pick_models(losses: Tensor, explore: float, clients: np.ndarray, *stream: int | str) -> Tensor:
    """For each client the model of lowest loss, or any with probability `explore` -> [C] int64

    Ties are broken at random.

    Args:
      losses: [C, E], finite.
      explore: probability of a uniform choice, in [0, 1].
      clients: [C] numbers of the clients. A client's draw depends only on the stream and on its
        number.
    """
    draws = streams.generator(*stream).random((int(clients.max()) + 1, 2))[clients]
    draws = torch.from_numpy(draws).to(losses.device)
    explores = draws[:, :1] < explore
    lowest = losses == losses.min(1, keepdim=True).values
    return nth(lowest | explores, draws[:, 1])


def nth(candidates: Tensor, at: Tensor) -> Tensor:
    """The candidate at the fraction `at` of each row, rounded down -> [C] int64

    Args:
      candidates: [C, E] bool, at least one in each row.
      at: [C] in [0, 1); uniform numbers make a uniform draw.
    """
    return (candidates.cumsum(1) <= (at * candidates.sum(1)).long()[:, None]).sum(1)
