"""What a method is: pure functions of its state."""

import inspect
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from fedlib.engine.cohort import Cohort
from fedlib.engine.task import Batch, Task
from fedlib.federation import Federation
from fedlib.methods.parts import settings
from fedlib.methods.parts.settings import LogUniform as LogUniform
from fedlib.methods.parts.settings import OneOf as OneOf
from fedlib.methods.parts.settings import Range, Tried
from fedlib.methods.parts.settings import Uniform as Uniform
from fedlib.tree import Tree


@dataclass(frozen=True, kw_only=True)
class Method:
    """A federated algorithm: hyper-parameters as fields, steps as methods, no hidden state.

    A method needs `init`, `round` and `personalise`; the other hooks have defaults. When each is
    called:

    * training: `init` once; in each round `stopped`, then `round`
    * each evaluation: `observe`, then what `protocols` names, such as `personalise`, then
      `predict`, which is `outputs` and `decide`
    * the end: `finalists`, `personal_numbers`, `settle` (see `settler`), then what
      `final_protocols` names, then `predict` and `measure`
    * for showing and estimating only: `diagnostics`, `server_parameters`, `briefly`

    Attributes:
      task: model and loss.
      choices: the values that a field may have, by its name.
      ranges: the numbers that a field may have, by its name; a field whose default is None may be
        None. A class that adds to `choices` or `ranges` merges them with those of its base.
      SPACE: what tuning tries besides the rate of the local solver, by the name of the field, see
        `fedlib.run.tune`.
      protocols: what is evaluated during training. Per group (see `fedlib.federation.GROUPS`), the
        name of each protocol and the function (state, cohort) -> Personal that prepares the clients
        for it. Tables show "default" first; a group without it has no number there. The group
        "server" is a cohort of one, whose test examples measure a global model.
      final_protocols: the same for the final state only.
      shared: fields of the state that a server holds and broadcasts; in a decentralised run every
        client has its own copy of them. Empty for methods that need a server.
      clients_train: whether clients ever do a local step; False if the server alone trains.
      alike: names of the protocols of a group whose predictions differ in `decide` alone. These
        share `outputs`, the costly part; see `predict`.
    """

    task: Task

    choices: ClassVar[dict[str, tuple[str, ...]]] = {}
    ranges: ClassVar[dict[str, Range]] = {}
    SPACE: ClassVar[dict[str, Tried]] = {}
    protocols: ClassVar[dict[str, dict[str, str]]] = {
        "seen": {"default": "personalise"},
        "unseen": {"default": "personalise"},
    }
    final_protocols: ClassVar[dict[str, dict[str, str]]] = {"seen": {}, "unseen": {}}
    shared: ClassVar[tuple[str, ...]] = ()
    clients_train: ClassVar[bool] = True
    alike: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls):
        """Raises ValueError for a `SPACE` with what is no field, or leaves its choices or range."""
        super().__init_subclass__()
        fields = {name for base in cls.__mro__ for name in inspect.get_annotations(base)}
        settings.check_space(cls.__name__, cls.SPACE, fields, cls.choices, cls.ranges)

    def __post_init__(self):
        """Raises ValueError for a field that is none of its choices or out of its range."""
        settings.check(self, self.choices, self.ranges)

    # -- training ----------------------------------------------------------------------------

    def init(self, num_clients: int, seed: int) -> Any:
        """State before the first round; per-client leaves lead with [num_clients]."""
        raise NotImplementedError

    def stopped(self, state: Any) -> bool:
        """Whether training is over before the last round, as further rounds change nothing.

        The remaining rounds are then skipped. Only the first of the remaining evaluations is
        computed and the others repeat it, so the state must determine the clients' predictions.
        """
        return False

    def round(self, state: Any, cohort: Cohort) -> Any:
        """State after one communication round with `cohort`."""
        raise NotImplementedError

    # -- each evaluation ---------------------------------------------------------------------

    def observe(self, state: Any, cohort: Cohort, group: str) -> Any:
        """State after an evaluation, for methods whose state an evaluation changes.

        Called with all clients of `group`, one of `protocols`, before its protocols are scored.
        """
        return state

    def personalise(self, state: Any, cohort: Cohort) -> Tree:
        """The models with which the clients of `cohort` predict, leaves [C, ...]."""
        raise NotImplementedError

    def predict(self, personal: Tree, batch: Batch) -> Tensor:
        """Log-probabilities of ONE client's batch -> [B, L]"""
        return self.decide(personal, self.outputs(personal, batch), batch)

    def outputs(self, personal: Tree, batch: Batch) -> Tree:
        """The costly part of a prediction, the same for all protocols that are `alike`."""
        return self.task.log_probs(personal, batch)

    def decide(self, personal: Tree, outputs: Tree, batch: Batch) -> Tensor:
        """Log-probabilities of a protocol from `outputs`, its own or an `alike` one's -> [B, L]"""
        return outputs

    # -- the end -----------------------------------------------------------------------------

    def finalists(self, federation: Federation, group: str) -> np.ndarray:
        """The clients of a group that the final protocols score; all of them -> [C]"""
        return federation.ids(group)

    def personal_numbers(self) -> int:
        """Numbers that ONE client of a final evaluation needs in memory; 0 if they are few."""
        return 0

    def settle(self, state: Any, cohort: Cohort, settled: Any = None) -> Any:
        """The state that the final protocols of these clients get.

        For methods whose clients train for long after the last round: here they do what several
        final protocols need. Called once for each part of the clients that a final evaluation
        prepares at a time.

        Args:
          settled: final state of a run of `settler`, if there is one to take some of it from. The
            result, and the examples in the journal, are the same without it.
        """
        return state

    @property
    def settler(self) -> "Method | None":
        """The method of a separate run that can do the work of `settle` in advance; None for none.

        Its task is one of the fields of this method.
        """
        return None

    def measure(self, protocol: str, personal: Tree, cohort: Cohort) -> dict[str, Tensor]:
        """Further numbers to record of the clients of a final evaluation, prepared for `protocol`.

        By name, floating-point leaves [C, ...]; the diagnostics have them as [num_clients, ...].
        """
        return {}

    # -- for showing and estimating ----------------------------------------------------------

    def diagnostics(self, state: Any) -> dict[str, Tensor]:
        """Arrays worth looking at, by name, such as mixture weights."""
        return {}

    def server_parameters(self, state: Any) -> int | None:
        """Number of trained parameters in the server's models; None if it keeps no model."""
        return None

    def briefly(self) -> "Method | None":
        """This method with short training after the last round, which is run to time an example.

        For methods whose clients train for long then; None for the others.
        """
        return None


@dataclass(frozen=True, kw_only=True)
class Curves(Method):
    """A method with costly protocols, which not every run evaluates during training.

    Attributes:
      curves: names of protocols that are also evaluated during training, for their learning curves;
        "default" always is. The other protocols are evaluated on the final state only.
      ways: every protocol, as `Method.protocols` has them.
    """

    curves: tuple[str, ...] = ()

    ways: ClassVar[dict[str, dict[str, str]]] = Method.protocols

    def __post_init__(self):
        """Raises ValueError for a protocol that the method does not have."""
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
