"""What training computes: floating-point operations per training example, measured, not declared.

Counted are the matrix products and convolutions that the clients of a round run: forward and
backward passes of their local steps, and whatever else the method computes on their examples (the
E-step of FedEM, the loss that q-FFL weighs by). A multiplication and an addition are two
operations. A training step is three forward passes, less the input gradient of the first layer,
which nobody needs.

Not counted: elementwise work (activations, dropout, batch normalisation), the optimiser, what the
server does, and evaluation, FedAvg+'s fine-tuning included.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from itertools import islice
from math import prod
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from fedlib import context
from fedlib.batches import client_plan
from fedlib.errors import DataError
from fedlib.executors import Loop
from fedlib.federation import GROUPS
from fedlib.simulate import Simulation

CLIENTS = 2  # at most, in the measured cohort; a graph wants more than one
MAX_ROUNDS = 1000  # attempts at a round with local steps: those of L2SGD are drawn


def flops_per_example(simulation: Simulation, state: Any) -> float:
    """Floating-point operations of a round's clients, by example of their local steps -> number

    Runs a round of the method with a few of the smallest seen clients and forgets its outcome:
    `state`, `simulation` and every random stream stay as they are. Where a method's work besides
    its local steps grows with the shards and the steps do not (a solver with `steps`), the number
    is that of the smallest clients.

    Raises:
      DataError: if no seen client can train, or none does in many rounds.
    """
    few = _few_clients(simulation)
    first = max(simulation.protocol.rounds - 1, 0)
    for number in range(first, first + MAX_ROUNDS):
        counting = Counting()
        run = replace(few, executor=counting)
        cohort = run.cohort(run.federation.ids("seen"), number)
        run.method.round(state, cohort)
        if cohort.journal.examples:
            return counting.flops / cohort.journal.examples
    raise DataError(
        f"no client did a local step in {MAX_ROUNDS} rounds of {type(simulation.method).__name__}, "
        "so there is no cost of a training example; let clients train"
    )


class Counting(Loop):
    """Client by client, and nothing but real examples; adds up what the clients compute.

    Attributes:
      flops: so far.
    """

    name = "counting"

    def __init__(self):
        super().__init__()
        self.flops = 0

    def fold(self, *args):
        """See `Executor.fold`."""
        return self._counted(super().fold, *args)

    def each(self, *args):
        """See `Executor.each`."""
        return self._counted(super().each, *args)

    def _counted(self, fn: Callable, *args) -> Any:
        # Spelled-out recurrence instead of torch's fused LSTM, which the counter does not know.
        with FlopCounterMode(display=False, custom_mapping=FORMULAS) as counter:
            with context.stacked_experts(True):
                result = fn(*args)
        self.flops += counter.get_total_flops()
        return result


def convolution_backward_flops(
    grad_shape: torch.Size,
    x_shape: torch.Size,
    weight_shape: torch.Size,
    bias_sizes: list[int] | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    output_mask: list[bool],
    *,
    out_shape: tuple,
) -> int:
    """Operations of the gradients of a convolution: as many as its forward pass, for each of two.

    Torch's own formula forgets that the channels of a group see only each other, and counts the
    weights' gradient of a depthwise convolution once per channel too often.
    """
    output = x_shape if transposed else grad_shape  # what the weights slide over
    forward = 2 * prod(output) * prod(weight_shape[1:])
    return forward * sum(output_mask[:2])


FORMULAS = {torch.ops.aten.convolution_backward: convolution_backward_flops}


def _few_clients(simulation: Simulation) -> Simulation:
    """The same federation in which only the smallest clients that can train take part.

    Clients keep their numbers, so a state of the whole federation fits. In a decentralised run
    each of them is a neighbour of the others.
    """
    federation = simulation.federation
    seen = federation.ids("seen")
    smallest = seen[np.argsort(federation.train.sizes[seen], kind="stable")]
    chosen = list(islice((c for c in smallest if _can_train(simulation, c)), CLIENTS))
    if not chosen:
        raise DataError(
            f"none of the {len(seen)} seen clients has the examples for a training batch, so the "
            "cost of training cannot be measured; use another batch_size or partition"
        )
    group = np.full_like(federation.group, GROUPS.index("unseen"))
    group[chosen] = GROUPS.index("seen")
    data = copy(simulation.data)  # what is on the device is shared
    data.federation = replace(federation, group=group)
    graph = {"edge_probability": 1.0, "mixing": "metropolis"}
    return replace(simulation, data=data, protocol=replace(simulation.protocol, **graph))


def _can_train(simulation: Simulation, client: int) -> bool:
    """Whether a client has examples, and no batch of one where that cannot be trained on."""
    size = int(simulation.federation.train.sizes[client])
    plan = client_plan(size, simulation.method.local, simulation.protocol.seed)
    lonely = simulation.method.task.needs_pairs and any(step.size == 1 for step in plan.steps)
    return bool(plan.steps) and not lonely
