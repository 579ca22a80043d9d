"""What a method is: pure functions of its state."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from fedlib.engine.cohort import Cohort
from fedlib.engine.task import Batch, Task
from fedlib.federation import Federation
from fedlib.methods.parts import settings
from fedlib.methods.parts.settings import Range
from fedlib.tree import Tree


@dataclass(frozen=True, kw_only=True)
class Method:
    """A federated algorithm: hyper-parameters as fields, steps as methods, no hidden state.

    Attributes:
      task: model and loss.
      choices: the values that a field may have, by its name.
      ranges: the numbers that a field may have, by its name; a field whose default is None may be
        None. A class that adds to `choices` or `ranges` merges them with those of its base.
      protocols: what is evaluated during training. Per group (see `fedlib.federation.GROUPS`), the
        name of each protocol and the function (state, cohort) -> Personal that prepares the clients
        for it. "default" is the one that tables show first; a group without it has no number there.
        "server", if there, is a cohort of one, and its test examples are those of a global model.
      final_protocols: likewise, but evaluated on the final state only.
      shared: fields of the state that a server holds and broadcasts; in a decentralised run every
        client has its own copy of them. Empty for methods that need a server.
      clients_train: whether clients ever do a local step, and not a server alone.
      alike: names of the protocols of a group whose predictions differ in `decide` alone. These
        share `outputs`, which are what is costly; see `predict`.
    """

    task: Task

    choices: ClassVar[dict[str, tuple[str, ...]]] = {}
    ranges: ClassVar[dict[str, Range]] = {}
    protocols: ClassVar[dict[str, dict[str, str]]] = {
        "seen": {"default": "personalise"},
        "unseen": {"default": "personalise"},
    }
    final_protocols: ClassVar[dict[str, dict[str, str]]] = {"seen": {}, "unseen": {}}
    shared: ClassVar[tuple[str, ...]] = ()
    clients_train: ClassVar[bool] = True
    alike: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self):
        """Raises ValueError for a field that is none of its choices or out of its range."""
        settings.check(self, self.choices, self.ranges)

    def init(self, num_clients: int, seed: int) -> Any:
        """State before the first round; per-client leaves lead with [num_clients]."""
        raise NotImplementedError

    def round(self, state: Any, cohort: Cohort) -> Any:
        """State after one communication round with `cohort`."""
        raise NotImplementedError

    def stopped(self, state: Any) -> bool:
        """Whether training is over before the last round: rounds change nothing any more.

        They are then left out, and all evaluations but the first repeat what that has found, so the
        state must determine the clients' predictions.
        """
        return False

    def personalise(self, state: Any, cohort: Cohort) -> Tree:
        """What each client of `cohort` predicts with, leaves [C, ...]."""
        raise NotImplementedError

    def predict(self, personal: Tree, batch: Batch) -> Tensor:
        """Log-probabilities of ONE client's batch -> [B, L]"""
        return self.decide(personal, self.outputs(personal, batch), batch)

    def outputs(self, personal: Tree, batch: Batch) -> Tree:
        """What is costly in a prediction, and the same in all protocols `alike`."""
        return self.task.log_probs(personal, batch)

    def decide(self, personal: Tree, outputs: Tree, batch: Batch) -> Tensor:
        """What a protocol makes of `outputs`, its own or those of another one `alike` -> [B, L]"""
        return outputs

    def observe(self, state: Any, cohort: Cohort, group: str) -> Any:
        """State after an evaluation, for methods on which evaluating leaves a mark.

        Called with all clients of `group`, one of `protocols`, before its protocols are scored.
        """
        return state

    def finalists(self, federation: Federation, group: str) -> np.ndarray:
        """The clients of a group that are prepared for the final protocols; all of them -> [C]"""
        return federation.ids(group)

    def settle(self, state: Any, cohort: Cohort, settled: Any = None) -> Any:
        """What the final protocols of these clients have in common: they get it for their state.

        For methods whose clients go on for long after the last round. Called once for each part of
        the clients that a final evaluation prepares at a time.

        Args:
          settled: final state of a run of `settler`, if there is one to take some of it from. What
            is returned, and the examples in the journal, are the same without.
        """
        return state

    @property
    def settler(self) -> "Method | None":
        """The method of which another run may do beforehand what is the same here; None for none.

        Its task is one of the fields of this method.
        """
        return None

    def briefly(self) -> "Method | None":
        """For methods whose clients go on for long after the last round: one where they stop soon.

        By it is measured what an example costs them there; None if that is not worth knowing.
        """
        return None

    def measure(self, protocol: str, personal: Tree, cohort: Cohort) -> dict[str, Tensor]:
        """What else to record of the clients of a final evaluation, prepared for `protocol`.

        By name, floating-point leaves [C, ...]; the diagnostics have them as [num_clients, ...].
        """
        return {}

    def personal_numbers(self) -> int:
        """Numbers in memory for ONE client of a final evaluation, 0 if it needs but few."""
        return 0

    def server_parameters(self, state: Any) -> int | None:
        """How many numbers are trained of the models that a server keeps; None if it keeps none."""
        return None

    def diagnostics(self, state: Any) -> dict[str, Tensor]:
        """Arrays worth looking at, by name, such as mixture weights."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Curves(Method):
    """A method with protocols that take time, which not every run needs during training.

    Attributes:
      curves: names of protocols that are also evaluated during training, for their learning curves;
        "default" always is. The others are evaluated on the final state only.
      ways: every protocol, as `Method.protocols` has them.
    """

    curves: tuple[str, ...] = ()

    ways: ClassVar[dict[str, dict[str, str]]] = Method.protocols

    def __post_init__(self):
        """Raises ValueError for a protocol that the method has not."""
        Method.__post_init__(self)
        object.__setattr__(self, "curves", tuple(self.curves))
        known = {name for protocols in self.ways.values() for name in protocols} - {"default"}
        unknown = sorted(set(self.curves) - known)
        if unknown:
            raise ValueError(f"curves must be of {sorted(known)}, got {unknown}")

    @property
    def protocols(self) -> dict[str, dict[str, str]]:
        """Those evaluated during training."""
        return self._some_ways(lambda name: name == "default" or name in self.curves)

    @property
    def final_protocols(self) -> dict[str, dict[str, str]]:
        """The rest."""
        return self._some_ways(lambda name: name != "default" and name not in self.curves)

    def _some_ways(self, wanted) -> dict[str, dict[str, str]]:
        return {
            group: {name: way for name, way in protocols.items() if wanted(name)}
            for group, protocols in self.ways.items()
        }
