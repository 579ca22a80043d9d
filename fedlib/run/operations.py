"""The cost of training: floating-point operations per training example, measured, not declared.

The count has the matrix products and convolutions of a round's clients: forward and backward passes
of local steps, and other work of the method on their examples (the E-step of FedEM, the losses that
are q-FFL's weights). A multiplication and an addition are two operations. A training step is three
forward passes, without the input gradient of the first layer, which is not needed.

Training of clients after the last round, to prepare them for a protocol of the final evaluation, is
counted separately: local steps only, without the checks for early stopping.

Not counted: elementwise work (activations, dropout, batch normalisation), the optimiser, the
server's work, also on its own data, and evaluation.
"""

import logging
from collections import Counter
from collections.abc import Callable, Container
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.backends import mha
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from fedlib import tree
from fedlib.engine import ambient
from fedlib.engine.batches import cut
from fedlib.engine.cohort import Cohort
from fedlib.engine.executors import Loop
from fedlib.engine.waves import Work
from fedlib.errors import DataError
from fedlib.federation import CLIENTS
from fedlib.results import RunResult
from fedlib.run.evaluate import EXAMPLES_OF, prepare
from fedlib.run.simulate import Simulation

MEASURED = 2  # most clients in the measured cohort; a graph needs more than one
FLOPS, FLOPS_OF = "flops_per_example", "flops_per_example_"  # the latter with a preparation's name
PARAMETERS = "server_parameters"  # number of parameters of a server's models
MAX_ROUNDS = 1000  # attempts at a round with local steps, which L2SGD draws


def flops_per_example(simulation: Simulation, state: Any) -> float:
    """Floating-point operations of a round's clients, per example of their local steps -> number

    Runs a round of the method with a few of the smallest seen clients and drops the result: `state`
    and `simulation` stay the same. If clients have different architectures, it runs a round for
    each kind, and takes the mean, weighted by the examples of a local training. If work besides
    local steps grows with the shards, and the number of steps does not (a solver with `steps`), the
    number is that of the smallest clients. 0 for a method whose clients never train.

    Raises:
      DataError: if no seen client can train, or none does in `MAX_ROUNDS` rounds.
    """
    if not simulation.method.clients_train:
        return 0.0
    sizes = simulation.federation.train.sizes
    seen = simulation.federation.ids("seen")
    kinds = [(x, _smallest(simulation, x, MEASURED)) for x in _by_kind(simulation, state, seen)]
    used = np.array([cut(n, simulation.method.local).examples for n in sizes.tolist()])
    chosen = [(used[own].sum(), simulation.only(few)) for own, few in kinds if len(few)]
    if not chosen:
        raise DataError(
            f"none of the {len(seen)} seen clients has the examples for a training batch, so the "
            "cost of training cannot be measured; use another batch_size or partition"
        )
    total = sum(examples for examples, _ in chosen)
    return float(sum(examples / total * _of_a_round(few, state) for examples, few in chosen))


def _by_kind(simulation: Simulation, state: Any, seen: np.ndarray) -> list[np.ndarray]:
    """The seen clients of each kind: see `fedlib.tree.kinds`."""
    everybody = simulation.federation.num_clients
    kinds = tree.kinds([rows for rows in tree.rows_in(state) if len(rows) == everybody])
    return [seen] if kinds is None else [seen[kinds[seen] == k] for k in np.unique(kinds[seen])]


def _of_a_round(few: Simulation, state: Any) -> float:
    """Operations per example in the first round with local steps, from `state` or a new state."""
    first = max(few.course.rounds - 1, 0)
    for start in (state, few.init()):  # a state may have stopped training
        for number in range(first, first + MAX_ROUNDS):
            counting = Counting()
            run = replace(few, executor=counting)
            cohort = run.cohort(run.federation.ids("seen"), number)
            run.method.round(start, cohort)
            if cohort.journal.examples:
                return counting.flops / cohort.journal.examples
    raise DataError(
        f"no client did a local step in {MAX_ROUNDS} rounds of {type(few.method).__name__}, "
        "so there is no cost of a training example; let clients train"
    )


def measure(simulation: Simulation, state: Any, evaluation: RunResult) -> dict[str, float]:
    """The cost that an evaluation stores among its diagnostics, by name.

    Args:
      simulation, state: of the evaluation.
      evaluation: its diagnostics have the examples on which clients trained for each protocol.
    """
    one = replace(simulation, method=simulation.method.briefly() or simulation.method)
    found = {FLOPS: flops_per_example(one, state)}
    served = simulation.course.aggregation != "gossip"
    if served and (parameters := simulation.method.server_parameters(state)) is not None:
        found[PARAMETERS] = parameters
    trained = [name for name in evaluation.diagnostics if name.startswith(EXAMPLES_OF)]
    names = [name.removeprefix(EXAMPLES_OF) for name in trained]
    prepared = flops_of_preparing(one, state, names)
    return found | {f"{FLOPS_OF}{name}": flops for name, flops in prepared.items()}


def flops_of_preparing(
    simulation: Simulation, state: Any, names: Container[str]
) -> dict[str, float]:
    """Floating-point operations per training example of each preparation of clients -> by name

    Prepares the smallest client of each group that can train.

    Args:
      simulation: of a method whose clients stop soon, see `Method.briefly`.
      state: of the evaluation.
      names: of protocols, and "settle"; see `fedlib.run.evaluate.prepare`.
    """
    counting = CountingSteps()
    run = replace(simulation, executor=counting)
    flops, examples = Counter(), Counter()
    for group in CLIENTS:
        if group not in run.method.protocols:
            continue
        finalists = run.method.finalists(run.federation, group)
        cohort = run.cohort(_smallest(run, finalists, 1), run.course.rounds)
        if cohort.size:
            done = partial(_note, flops, examples, counting, cohort)
            for _ in prepare(run.method, state, cohort, group, names, done):
                pass
    return {name: flops[name] / number for name, number in examples.items() if number}


def _note(
    flops: Counter, examples: Counter, counting: "Counting", cohort: Cohort, name: str
) -> None:
    """Add the counts since the last call to the entry `name`, and reset them."""
    flops[name] += counting.flops
    examples[name] += cohort.journal.examples
    counting.flops = cohort.journal.examples = 0


class Counting(Loop):
    """Runs client by client, without padding, and counts the clients' operations.

    Attributes:
      flops: operations so far.
    """

    name = "counting"
    flops = 0

    def fold(self, *args):
        """See `Loop.fold`."""
        return self._count(super().fold, *args)

    def each(self, *args):
        """See `Loop.each`; scores of other examples than those of training are an evaluation."""
        score, split = super().each, args[3]
        return self._count(score, *args) if split == "train" else score(*args)

    def _count(self, fn: Callable, work: Work, *args) -> Any:
        if (work.data.federation.group[work.ids] >= len(CLIENTS)).any():
            return fn(work, *args)
        # Stacked experts avoid our fused LSTM; fused attention and blocks have no formulas here.
        with Operations() as counter, ambient.stack_experts(True), ExitStack() as after:
            after.enter_context(sdpa_kernel(SDPBackend.MATH))
            after.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
            mha.set_fastpath_enabled(False)
            result = fn(work, *args)
        self.flops += counter.flops
        return result


class CountingSteps(Counting):
    """Counts the operations of local steps only, not of scoring."""

    each = Loop.each


class Operations(TorchDispatchMode):
    """Counts the operations that PyTorch executes inside its block, by PyTorch's own formulas.

    `torch.utils.flop_counter.FlopCounterMode` does the same with two differences: it imports the
    compilers of torch at its first use, which takes twice as long as most evaluations, and it
    ignores groups of channels, so its count for the weights' gradient of a depthwise convolution is
    too large by a factor of the number of channels. Torch's fused recurrences have formulas here;
    other operators without a formula count as 0.

    Attributes:
      flops: operations so far.
    """

    flops = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # shielding this class from the compiler would import the compiler

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Count and execute an operator, or the operators into which it decomposes."""
        formula = _formulas().get(func.overloadpacket)
        if formula is None:
            with self:
                made_of = func.decompose(*args, **(kwargs or {}))
            if made_of is not NotImplemented:
                return made_of
        output = func(*args, **(kwargs or {}))
        if formula is not None:
            self.flops += formula(*args, **(kwargs or {}), out_val=output)
        return output


@cache
def _formulas() -> dict[Any, Callable]:
    """The number of operations of an operator, from its arguments and its result, by operator."""
    # It says at its import that there are no kernels of Triton to count; there are none.
    logging.getLogger("torch.utils.flop_counter").setLevel(logging.ERROR)
    from torch.utils import flop_counter

    def backward(gradient, x, weight, *args, out_val: object) -> int:
        """As many as forward, for each needed gradient (input, weights) of a convolution."""
        shapes, transposed, wanted = (x.shape, weight.shape, gradient.shape), args[4], args[-1]
        return sum(wanted[:2]) * flop_counter.conv_flop_count(*shapes, transposed=transposed)

    def recurrence(passes: int, x, *weights, out_val: object) -> int:
        """Every matrix of a fused recurrence, for each pass and each step of a sequence."""
        given = weights[0] if isinstance(weights[0], list) else weights[:2]
        return 2 * passes * x[..., 0].numel() * sum(w.numel() for w in given if w.dim() > 1)

    forward, both = partial(recurrence, 1), partial(recurrence, 2)  # of inputs and weights
    aten = torch.ops.aten
    return flop_counter.flop_registry | {
        aten.convolution_backward: backward,
        **dict.fromkeys((aten.mkldnn_rnn_layer, aten._cudnn_rnn), forward),
        **dict.fromkeys((aten.mkldnn_rnn_layer_backward, aten._cudnn_rnn_backward), both),
    }


def _smallest(simulation: Simulation, clients: np.ndarray, number: int) -> np.ndarray:
    """The `number` smallest clients that can train, or fewer -> [number or fewer]"""
    ascending = clients[np.argsort(simulation.federation.train.sizes[clients], kind="stable")]
    able = islice((c for c in ascending if _can_train(simulation, c)), number)
    return np.array([*able], dtype=clients.dtype)


def _can_train(simulation: Simulation, client: int) -> bool:
    """Whether a client has examples, and no batch of one if the model needs two."""
    steps = cut(int(simulation.federation.train.sizes[client]), simulation.method.local).steps
    lonely = simulation.method.task.needs_pairs and any(step.size == 1 for step in steps)
    return bool(steps) and not lonely
