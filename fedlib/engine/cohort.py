"""The engine as a method sees it: the clients of one round, and the operations on them.

A method writes its local work for ONE client; the cohort runs it on all of them. The one rule: a
function closes over shared values, and gets per-client values as arguments (leaves [C, ...], or
`Rows` if clients differ in shape), in order, and then the batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine import scratch, shards
from fedlib.engine.batches import draw_cohort, refuse_single_examples
from fedlib.engine.descent import descent
from fedlib.engine.device import DeviceData, upload
from fedlib.engine.executors import Executor, Loop
from fedlib.engine.journal import Journal
from fedlib.engine.parts import (
    Total,
    join_parts,
    numbers_of_all,
    numbers_of_experts,
    refuse_others,
    slices,
)
from fedlib.engine.room import halving
from fedlib.engine.solvers import Memory, Solver
from fedlib.engine.task import Params, Task
from fedlib.engine.waves import Work, one_for_each
from fedlib.errors import DataError
from fedlib.tree import Rows, T, Tree

# Examples per forward pass without gradients; a GPU takes as long for a few as for thousands.
EVALUATION_BATCH = {"cpu": 512, "cuda": 8192}
CACHED_IMAGES = 128  # the same for images on a CPU, whose cache should hold the activations


@dataclass(frozen=True)
class Cohort:
    """The clients taking part in one round, or in one evaluation.

    Attributes:
      task: the model architecture that is trained, and its loss.
      data: the federation, on the device.
      ids: [C] positions of the clients in the federation and in every per-client state.
      round: rounds done before this one; `round`, `seed` and client determine the batch order.
      seed: of the run.
      executor: how local work is run; never changes a result beyond rounding.
      group: of `fedlib.federation.GROUPS`: those who may take part in a round, the population.
      aggregation: "damped" or "renormalised"; see `average`.
      journal: filled in while the round runs.
      known_ids: [C] `ids` in host memory, if they come from there; reading `ids` would wait.
      checkpoints: each call returns the `fedlib.run.checkpoint.Checkpoints` of the next long
        training in a final evaluation, or None to keep none.
    """

    task: Task
    data: DeviceData
    ids: Tensor
    round: int
    seed: int
    executor: Executor = field(default_factory=Loop)
    group: str = "seen"
    aggregation: str = "renormalised"
    journal: Journal = field(default_factory=Journal)
    known_ids: np.ndarray | None = None
    checkpoints: Callable[[], Any] = lambda: None

    @property
    def size(self) -> int:
        """C."""
        return len(self.ids)

    @property
    def population(self) -> int:
        """Number of clients that may take part in a round."""
        return len(self.data.federation.ids(self.group))

    @property
    def population_examples(self) -> int:
        """Number of their training examples."""
        return int(self.data.federation.train.sizes[self.data.federation.ids(self.group)].sum())

    @cached_property
    def host_ids(self) -> np.ndarray:
        """`ids` in host memory -> [C]"""
        return self.ids.cpu().numpy() if self.known_ids is None else self.known_ids

    @cached_property
    def num_examples(self) -> Tensor:
        """Training examples of each client -> [C] float64"""
        return self.tensor(self._sizes("train").astype(np.float64))

    def tensor(self, values: np.ndarray | Tensor) -> Tensor:
        """`values` from host memory, on the device of these clients."""
        return upload(values, self.ids.device)

    def in_round(self, number: int) -> "Cohort":
        """The same clients in round `number`, so that they shuffle differently."""
        return replace(self, round=number)

    def in_turn(self, values: Sequence[Any]) -> Rows:
        """`values[k % len(values)]` for each client k.

        The values can be anything, such as the `Task` of each of several architectures.
        """
        return tree.in_turn(values, self.host_ids.tolist())

    def of(self, ids: np.ndarray) -> "Cohort":
        """These clients of the federation, with the same journal."""
        return replace(self, ids=self.tensor(ids), known_ids=ids)

    def some(self, at: np.ndarray | Tensor | slice) -> "Cohort":
        """The clients `at` these positions of the cohort, with the same journal."""
        return self.of(self.host_ids[at if isinstance(at, slice) else np.asarray(at)])

    def seen(self) -> "Cohort":
        """A cohort of all clients that may take part in training."""
        return self.of(self.data.federation.ids("seen"))

    def everyone(self, group: str) -> "Cohort":
        """A cohort of all owners of a group, such as the server, with a separate journal.

        Their work counts neither as traffic nor as training of the clients. Batches depend on the
        owner's position in the federation, so a server shuffles unlike every client. For several
        fits of the server in one round, use several streams, such as "server/0", "server/1".

        Args:
          group: one of `fedlib.federation.GROUPS`.

        Raises:
          DataError: if the group is empty.
        """
        if not len(ids := self.data.federation.ids(group)):
            raise DataError(
                f"the federation has no {group}, which the method needs; use a data set that gives "
                "it data of its own"
            )
        journal = self.journal.others.setdefault(group, Journal())
        return replace(self.of(ids), group=group, journal=journal)

    # -- statistics of the clients' training examples ------------------------------------

    def shares(self, of: str, num: int) -> Tensor:
        """p(c|s): distribution of labels or side information on each client -> [C, num]

        It is uniform for clients without training examples.

        Args:
          of: "label" or "side", see `Federation.side`.
          num: number of values; they are 0 ... num - 1.

        Raises:
          DataError: if the federation has no such values, or larger ones.
        """
        shares = shards.shares(self.data.federation, self.host_ids, of, num)
        return self.tensor(shares).to(self.task.dtype)

    def side(self) -> Tensor:
        """Side information of every training example, in shard order -> [C, N] int64

        N is the largest client's number of examples; zeros follow a client's last example.

        Raises:
          DataError: if the federation has none.
        """
        return self.tensor(shards.side(self.data.federation, self.host_ids))

    # -- communication ----------------------------------------------------------------

    def broadcast(self, shared: T) -> T:
        """Send `shared` to every client: [...] -> [C, ...], without copying."""
        self.journal.down += self.size * tree.numel(shared)
        return tree.broadcast(shared, self.size)

    def scatter(self, rows: T) -> T:
        """Send every client its own row of `rows`; returns `rows` unchanged: [C, ...]"""
        self.journal.down += numbers_of_all(rows, self.size)
        return rows

    def broadcast_some(self, experts: T, chosen: Tensor | None) -> T:
        """Send every client some of the experts: [E, ...] -> [C, E, ...], without copying.

        The result has the other experts, too, so that shapes are equal; clients must not use them.

        Args:
          experts: leaves [E, ...].
          chosen: [C, E] bool, the experts for each client; None sends all experts to all clients.
        """
        self.journal.down += numbers_of_experts(experts, chosen, self.size)
        return tree.broadcast(experts, self.size)

    def collect_some(self, experts: Tree | Total, chosen: Tensor | None) -> Tree | Total:
        """Receive the clients' experts; returns them unchanged: leaves [C, E, ...], or their total.

        Clients send the `chosen` [C, E] experts, or all; the server must not use the others.
        """
        one = experts.sum if isinstance(experts, Total) else tree.take(experts, 0)
        self.journal.up += numbers_of_experts(one, chosen, self.size)
        return experts

    def held(self, shared: T) -> T:
        """As `broadcast`, but nothing is sent: every client already has `shared`."""
        return tree.broadcast(shared, self.size)

    def collect(self, sent: T) -> T:
        """Receive values from the clients; returns them unchanged: leaves [C, ...], or totals."""
        self.journal.up += numbers_of_all(sent, self.size)
        return sent

    def average(self, trained: T | Total, previous: T) -> T:
        """The server's average of the clients' models, or of their `total`: [C, ...] -> [...]

        Clients are weighted by their number of training examples. If only a part of the population
        takes part, "renormalised" averages these clients, and with "damped" every absent client
        counts with the `previous` model, which it still has.

        Raises:
          ValueError: for `Rows` of different shapes, which have no average.
        """
        total = trained if isinstance(trained, Total) else self.total(trained)
        self.collect(total)
        if self.aggregation == "renormalised" or self.size == self.population:
            return total.mean()
        absent = 1 - total.weight / self.population_examples
        return tree.add(total.over(self.population_examples), previous, absent)

    def total(self, values: Tree, among: np.ndarray | None = None) -> Total:
        """Sum of all clients, or `among` [C] bool, by training examples: [C, ...] -> [...]"""
        return self._total(values, among)

    def put(self, kept: T, rows: Tree) -> T:
        """`kept` of all clients, with the `rows` of this cohort: [num_clients, ...] or `Rows`"""
        return scratch.put(kept, rows, self.ids, self.host_ids, self.executor.notes)

    # -- training ---------------------------------------------------------------------

    def fit(
        self,
        loss: Callable,
        params: Params | Rows,
        *per_client: Tree,
        local: Solver,
        memory: Memory | None = None,
        lr_scale: dict[str, float] | None = None,
        stream: str = "fit",
        returns: Callable[["Cohort", Params | Rows], Tree] | None = None,
    ) -> tuple[Tree, Memory | None]:
        """Every client minimises `loss(params, *per_client, batch) -> []` with its local solver.

        Without `returns`, all trained models exist at once. With it, the cohort trains part by
        part, and `returns(part, trained)` returns the values to keep: leaves [K, ...] or `Rows` of
        the K clients of the part, which are put one after the other, or totals (`part.total`),
        which are added up. `returns=Cohort.total` gives the sum for `average`.

        Args:
          loss: of one client's batch.
          params: starting points, leaves [C, ...] or `Rows`, with running statistics.
          per_client: further arguments of `loss`, leaves [C, ...] or `Rows`.
          local: the solver.
          memory: of the solvers of ALL clients of the federation; None starts without memory.
          lr_scale: factors of the learning rate of top-level entries of `params`, by name.
          stream: name of the shuffling; use different ones for several fits in one round.
          returns: see above; None returns the trained models.

        Returns:
          (trained parameters [C, ...] or the kept values, `memory` with new rows for this cohort).
        """
        if not isinstance(params, dict | Rows):
            raise TypeError(f"params must be a dict or Rows, got a {type(params).__name__}")
        refuse_others((params, per_client), self.size)
        every = [params] if isinstance(params, dict) else params
        if lr_scale and all(lr_scale.keys().isdisjoint(own) for own in every):
            raise ValueError(f"lr_scale has {[*lr_scale]}, which are none of {[*every[0]]}")
        clients = self.host_ids.tolist()
        done = memory.epochs[clients] if memory else torch.zeros(self.size, dtype=torch.int64)
        each = local.rates(done, self.round)  # [C, epochs]
        # Numbers are cheaper than a tensor for each client, but steps that are replayed need those.
        common = each[0].tolist() if (each == each[0]).all() and not self.executor.replays else None
        rates = self.tensor(each.to(self.task.dtype))
        has_momenta = memory is not None and any(memory.buffers)
        one_loss = self.executor.lift(lambda w, s, *args: loss(tree.merge(w, s), *args))
        step = descent(one_loss, local, common, lr_scale or {})
        momenta = tree.take(memory.buffers, self.host_ids) if has_momenta else ()
        keep = scratch.keeper(momenta, len(memory.epochs), self.executor.notes) if momenta else None

        def train(cut: slice) -> tuple[slice, Tree]:
            part, given = self.some(cut), tree.take((params, rates, momenta, per_client), cut)
            trained, losses, after = part._train(step, *given, local=local, stream=stream)
            result = returns(part, trained) if returns else trained
            return cut, (result, losses, keep(after) if keep else ())

        result, losses, momenta = self._run_parts(train, params, streams=returns is not None)
        self.journal.add(self.host_ids, losses)
        return result, memory and memory.update(clients, momenta, local.epochs)

    def _train(self, step, params, rates, momenta, per_client, *, local, stream) -> tuple:
        """Trained parameters, mean losses [C] and momenta of these clients."""
        kinds = tree.kinds((params, per_client))
        weights, statistics = tree.partition(params, self.task.is_statistic)
        momenta = momenta or local.fresh(weights, self.size)
        zeros = torch.zeros(self.size, dtype=self.task.dtype, device=self.ids.device)
        # Copies, because steps are taken in place.
        start = tree.clone((weights, statistics, zeros, zeros, momenta))
        weights, statistics, total, count, momenta = self._fold(
            step, start, rates, *per_client, local=local, stream=stream, kinds=kinds
        )
        # A client without examples has no loss, which is no divergence.
        return tree.merge(weights, statistics), total / count.clamp(min=1), momenta

    def scan(self, step: Callable, carry: T, *per_client: Tree, local: Solver,
             stream: str = "scan", returns: Callable | None = None) -> Tree:  # fmt: skip
        """Fold `carry = step(carry, *per_client, batch)` over each client's batches -> [C, ...]

        `local` determines the batches: its batch size, epochs or steps. `returns` is as in `fit`.
        """
        refuse_others((carry, per_client), self.size)
        lifted = self.executor.lift(step)

        def fold(cut: slice) -> tuple[slice, Tree]:
            part, given = self.some(cut), tree.take((carry, per_client), cut)
            how = {"local": local, "stream": stream, "kinds": tree.kinds(given)}
            start = tree.clone(given[0])  # a forward pass updates running statistics in place
            done = part._fold(lifted, start, *given[1], **how)
            return cut, returns(part, done) if returns else done

        return self._run_parts(fold, carry, streams=returns is not None)

    def _run_parts(self, work: Callable, models: Tree, streams: bool) -> Tree:
        """The results of `work(slice)` of all parts of the cohort; one part unless it `streams`."""
        together = self.executor.together if streams else self.size
        return join_parts(map(work, slices(models, self.size, together)), self.size)

    # -- scoring ----------------------------------------------------------------------

    def score(self, fn: Callable, *per_client: Tree, split: str = "train") -> Tensor:
        """`fn(*per_client, batch) -> [B, ...]` on all examples, in shard order -> [C, N, ...]

        N is the largest client's number of examples; zeros follow a client's last example.

        Raises:
          ValueError: if `fn` gives another number of scores than examples.
        """
        refuse_others(per_client, self.size)
        on_cpu = self.task.device.type == "cpu"
        size = EVALUATION_BATCH["cpu" if on_cpu or self.task.is_heavy else "cuda"]
        if on_cpu and self.data.federation.x.ndim == 4:
            size = min(size, CACHED_IMAGES)

        work = self._work(f"scoring ({split})", tree.kinds(per_client))
        batches = partial(self.executor.each, work, one_for_each(fn), per_client, split)
        return batches(size) if self.task.mixes_examples else halving(batches, size)

    def example_mean(self, values: Tensor, split: str = "train") -> Tensor:
        """Average a score over each client's examples, 0 if it has none: [C, N, ...] -> [C, ...]

        Raises:
          DataError: if no client of the federation has examples of the split.
          ValueError: for more or fewer scores than the clients have such examples.
        """
        every = self.data.federation.split(split).sizes
        if not every.any():
            raise DataError(f"no client has {split} examples; give {split}= or {split}_fraction")
        sizes = every[self.host_ids]
        if values.shape[1] not in (sizes.max(), every.max()):  # the latter after `pad_scores`
            raise ValueError(f"{values.shape[1]} scores are not of {split} examples; say of which")
        count = upload(sizes, values.device)
        own = torch.arange(values.shape[1], device=values.device) < count[:, None]
        total = (values * tree.along(own, values)).sum(1)
        return total / tree.along(count.clamp(min=1), total)

    # -- private ----------------------------------------------------------------------

    def _total(self, values: Tree, among: np.ndarray | None) -> Total:
        """What `total` gives; subclasses override this one, as `returns` names `Cohort.total`."""
        refuse_others(values, self.size)
        return Total(values, self._sizes("train") * (1 if among is None else among))

    def _work(self, stage: str, kinds: np.ndarray | None) -> Work:
        return Work(self.task, self.data, self.host_ids, kinds, self.round, stage)

    def _sizes(self, split: str) -> np.ndarray:
        """Examples of each client, in host memory -> [C] int64"""
        return self.data.federation.split(split).sizes[self.host_ids]

    def _fold(self, step, carry: T, *per_client, local: Solver, stream: str, kinds) -> T:
        sizes, clients = self._sizes("train").tolist(), self.host_ids.tolist()
        drawn = draw_cohort(sizes, local, self.seed, self.round, stream, clients=clients)
        if self.task.needs_pairs:
            refuse_single_examples(sizes, clients, local)
        self.journal.examples += sum(batches.examples for batches in drawn)
        work = self._work(f"training ({stream})", kinds)
        fixed = tree.clone_entries(per_client, self.task.is_statistic)  # a pass updates these
        return self.executor.fold(work, drawn, local.batch_size, step, carry, fixed)
