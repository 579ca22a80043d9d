"""The base class of all methods: pure functions of an explicit state."""

import inspect
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Solver
from fedlib.engine.task import Batch, Task
from fedlib.federation import Federation
from fedlib.fields import check
from fedlib.methods.parts import settings
from fedlib.methods.parts.settings import LogUniform as LogUniform
from fedlib.methods.parts.settings import OneOf as OneOf
from fedlib.methods.parts.settings import Range, Tried
from fedlib.methods.parts.settings import Uniform as Uniform
from fedlib.tree import Tree

TRAINING_COPIES = 3  # of a model in training: itself, its gradient and a momentum


@dataclass(frozen=True, kw_only=True)
class Method:
    """A federated algorithm: hyper-parameters as fields, steps as methods, no hidden state.

    A method must define `init`, `round` and what `protocols` names; the other hooks have
    defaults. Order of the calls:

    * training: `init` once; in each round `stopped`, then `round`
    * each evaluation in training: `observe`, then the functions that `protocols` names, such as
      `personalise`, then `predict`, which calls `outputs` and `decide`
    * final evaluation: `finalists`, `personal_numbers`, `settle`, then the functions
      that `final_protocols` names, then `predict` and `measure`
    * for reports and estimates only: `diagnostics`, `by_round`, `server_parameters`, `briefly`

    Attributes:
      task: model and loss.
      local: solver of the clients, which most methods run once per round.
      look: of a method of the project: title, colour, marker, line and maybe its width, as in
        `fedlib.report.looks`. An edit repeats tables and figures alone.
      choices: the allowed values of a field, by field name.
      ranges: the allowed numbers of a field, by field name; a field whose default is None may be
        None. A class that adds to `choices`, `ranges` or `classifiers` merges them with those of
        its base.
      SPACE: the values that tuning tries, by field name, besides the learning rate of the local
        solver; see `fedlib.run.tune`.
      protocols: the ways to predict that are evaluated during training. For each group (see
        `fedlib.federation.GROUPS`): the protocol's name, and the name of the method
        (state, cohort) -> Personal that prepares the clients. Tables show "default" first; a group
        without it has no number there. The group "server" is a cohort of one client, whose test
        examples measure a global model.
      final_protocols: the same, evaluated on the final state only.
      shared: fields of the state that the server holds and broadcasts; in a decentralised run every
        client has its own copy of them. Empty for methods that need a server.
      clients_train: whether clients do local steps; False if only the server trains.
      classifiers: fields with further architectures that classify, as the model does: they must
        give a logit for each class.
      alike: names of the protocols of a group whose predictions differ in `decide` only. They share
        `outputs`, the costly part; see `predict`.
    """

    task: Task
    local: Solver

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
    classifiers: ClassVar[frozenset[str]] = frozenset()
    alike: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls):
        """Add the settings to the docstring, for `help` and the site.

        Raises ValueError if `SPACE` has an unknown field, or values a field may not have.
        """
        super().__init_subclass__()
        if cls.__doc__:
            allowed = settings.describe(cls, cls.choices, cls.ranges)
            cls.__doc__ = f"{inspect.cleandoc(cls.__doc__)}\n\n{allowed}\n"
        fields = {name for base in cls.__mro__ for name in inspect.get_annotations(base)}
        settings.check_space(cls.__name__, cls.SPACE, fields, cls.choices, cls.ranges)

    def __post_init__(self):
        """Raises ConfigError for a field of another type, or outside its choices or its range."""
        check(self, self.choices, self.ranges)

    # -- training ----------------------------------------------------------------------------

    def init(self, num_clients: int, seed: int) -> Any:
        """State before the first round; per-client leaves are [num_clients, ...]."""
        raise NotImplementedError

    def stopped(self, state: Any) -> bool:
        """Whether further rounds would change nothing.

        If so, the remaining rounds are skipped. Only the first of the remaining evaluations is
        computed and the others repeat it, so the state must determine the clients' predictions.
        """
        return False

    def round(self, state: Any, cohort: Cohort) -> Any:
        """State after one communication round with `cohort`."""
        raise NotImplementedError

    # -- each evaluation ---------------------------------------------------------------------

    def observe(self, state: Any, cohort: Cohort, group: str) -> Any:
        """State with which a group is scored, for methods whose state changes in evaluations.

        Called in training, with all clients of `group`, a key of `protocols`.
        """
        return state

    def personalise(self, state: Any, cohort: Cohort) -> Tree:
        """The models that the clients of `cohort` predict with, leaves [C, ...]."""
        raise NotImplementedError

    def predict(self, personal: Tree, batch: Batch) -> Tensor:
        """Log-probabilities of ONE client's batch -> [B, L]"""
        return self.decide(personal, self.outputs(personal, batch), batch)

    def outputs(self, personal: Tree, batch: Batch) -> Tree:
        """The costly part of a prediction, which all `alike` protocols share."""
        return self.task.log_probs(personal, batch)

    def decide(self, personal: Tree, outputs: Tree, batch: Batch) -> Tensor:
        """Log-probabilities of a protocol, from its own `outputs` or an `alike` one's -> [B, L]"""
        return outputs

    # -- the end -----------------------------------------------------------------------------

    def finalists(self, federation: Federation, group: str) -> np.ndarray:
        """The clients of a group that the final protocols score; by default all -> [C]"""
        return federation.ids(group)

    def personal_numbers(self) -> int:
        """Memory that ONE client of a final evaluation needs, in numbers; 0 if they are few."""
        return 0

    def settle(self, state: Any, cohort: Cohort) -> Any:
        """The state that these clients' final protocols receive.

        For methods whose clients train long after the last round: training that several final
        protocols need belongs here. Called once for each part of the clients that a final
        evaluation prepares together.
        """
        return state

    def measure(self, protocol: str, personal: Tree, cohort: Cohort) -> dict[str, Tensor]:
        """Further numbers to record about clients prepared for `protocol`, in a final evaluation.

        Not called if the protocol is not scored on test examples, as in tuning, which has none. By
        name, floating-point leaves [C, ...]; the diagnostics hold them as [num_clients, ...].
        """
        return {}

    # -- for showing and estimating ----------------------------------------------------------

    def diagnostics(self, state: Any) -> dict[str, Tensor]:
        """Numbers of each client to record, by name, such as mixture weights: [num_clients, ...].

        Those of `fedlib.results.OF_NO_CLIENT` have shapes of their own.
        """
        return {}

    def by_round(self, state: Any) -> dict[str, Tensor]:
        """Numbers of each round to record, by name: [R] or [R, E], NaN where there is none."""
        return {}

    def server_parameters(self, state: Any) -> int | None:
        """Number of trained parameters in the server's models; None if it keeps no model."""
        return None

    def briefly(self) -> "Method | None":
        """This method with short training after the last round, run only to count its operations.

        None if it is short as it is, such as a fine-tuning.
        """
        return None


@dataclass(frozen=True, kw_only=True)
class Curves(Method):
    """A method with costly protocols: each run chooses which ones have learning curves.

    Attributes:
      curves: names of the protocols that are evaluated during training, besides "default". The
        others are evaluated on the final state only.
      ways: all protocols, in the form of `Method.protocols`.
    """

    curves: tuple[str, ...] = ()

    ways: ClassVar[dict[str, dict[str, str]]] = Method.protocols

    def __post_init__(self):
        """Raises ValueError for a protocol that the method does not have."""
        Method.__post_init__(self)
        known = {name for protocols in self.ways.values() for name in protocols} - {"default"}
        if unknown := sorted(set(self.curves) - known):
            raise ValueError(f"curves must be of {sorted(known)}, got {unknown}")

    @property
    def protocols(self) -> dict[str, dict[str, str]]:
        """The protocols that are evaluated during training."""
        return self._some_ways(lambda name: name == "default" or name in self.curves)

    @property
    def final_protocols(self) -> dict[str, dict[str, str]]:
        """The protocols that are evaluated on the final state only."""
        return self._some_ways(lambda name: name != "default" and name not in self.curves)

    def _some_ways(self, wanted) -> dict[str, dict[str, str]]:
        return {
            group: {name: way for name, way in protocols.items() if wanted(name)}
            for group, protocols in self.ways.items()
        }
