"""The runs of Adaptive Expert Models, made from a federation's settings.

"Table 1" is the paper's; sections are those of README.md.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from fedlib.papers import _frame
from fedlib.papers._frame import Variant
from fedlib.spec import Run

EPSILON = 0.33  # Table 1
LOCALS = "local"  # the local experts of all clients, alone
AT_ONCE = 10  # ours: clients whose local experts are trained between two checkpoints
SUBSET = 10  # the official code evaluates clients 0 to 9 (X5)

EXPLORATIONS = {"eps": "ε-greedy", "none": "no exploration"}
SCHEDULES = {  # of the official code, section 2.3; not in the paper
    "eps-decay": "exploration 1/(t+1)",
    "eps-decay-b": "exploration falling to ε",
    "eps-decay-k": "exploration by number of clusters",
}


def of_clusters(*numbers: int) -> tuple[str, ...]:
    """The labels of runs with these numbers of clusters."""
    return tuple(f"{label}-j{number}" for number in numbers for label in EXPLORATIONS)


def _variant(title: str, exploration: str, **params: int) -> Variant:
    return Variant(title, "adaptive_experts", {"exploration": exploration, **params})


VARIANTS = {
    **{label: _variant(title, label) for label, title in EXPLORATIONS.items()},
    **{
        f"{label}-j{number}": _variant(f"{title}, J={number}", label, num_experts=number)
        for number in range(1, 13)
        for label, title in EXPLORATIONS.items()
    },
    **{label: _variant(title, label.replace("-", "_")) for label, title in SCHEDULES.items()},
    LOCALS: Variant("Local experts", "local_experts"),
}
OFFICIAL_CLIENTS = (
    f"Of {SUBSET} clients, the first of those shown, as in the official code, which fine-tunes for "
    "all: these alone train on their own, are what the columns compare, and say which experts are "
    "in use."
)


class Profile(NamedTuple):
    """The official code's decisions, or cleaner ones.

    Attributes:
      note: of all runs.
      logit_relu: whether every network ends in a ReLU.
      stop_split: the data by which clients stop their own training.
      member: the weights of it that a mixture has, "best" or "last".
      decays: whether it has weight decay.
    """

    note: str
    logit_relu: bool
    stop_split: str
    member: str
    decays: bool


PUBLISHED = Profile(
    "Profile published, as the official code: a ReLU on all logits, weight decay in the federated "
    "training and of mixtures alone, early stopping and best round on the clients' test data, and "
    "in ensembles and mixtures the local expert of its last epoch.",
    logit_relu=True,
    stop_split="test",
    member="last",  # the official code keeps a reference to the weights where a copy is intended
    decays=False,
)
CLEAN = Profile(
    "Profile clean: no ReLU on logits, the weight decay of Table 1, and a fifth of the training "
    "data held out for every decision.",
    logit_relu=False,
    stop_split="val",
    member="best",
    decays=True,
)


@dataclass(frozen=True)
class Network:
    """A network, with the columns of Table 1.

    Attributes:
      lr, dropout, weight_decay: as in the table.
      conv1, conv2, hidden: its widths.
    """

    lr: float
    conv1: int
    conv2: int
    hidden: int
    dropout: float
    weight_decay: float

    def arguments(self) -> dict:
        """Arguments of the model's `build`."""
        return {name: getattr(self, name) for name in ("conv1", "conv2", "hidden", "dropout")}


@dataclass(frozen=True, kw_only=True)
class Setting(_frame.Setting):
    """A federation, and the settings of its runs.

    Roles are "table2"; "clean", the profile clean of one of these; and "other", for data that the
    paper shows in figures alone.

    Attributes:
      image: arguments of every network's `build` that follow from the data set: image and classes.
      model: registry name of the federated model; "leaf_cnn" or "ifca_cnn".
      shared, expert, gate: the three networks of a client.
      cohort: number of clients in a round.
      rounds: T.
      epochs, batch_size: of a client in a round.
      num_experts: J.
      epsilon: of epsilon-greedy exploration.
      gate_only: whether mixtures train their gates alone (X10).
      local_epochs, gate_epochs: most epochs of local experts and fine-tuning, and of mixtures.
      finetune_lr: of the fine-tuned baseline.
      evaluate_every: rounds between evaluations.
      personal_clients: number of clients, the first ones, that are personalised; None for all.
      labels: of `VARIANTS`. The run "local" trains a local expert for each client, whatever
        `personal_clients` is.
      both_mixtures: whether to evaluate the usual runs' mixtures both with `gate_only` and without.
    """

    image: dict
    shared: Network
    expert: Network
    gate: Network
    cohort: int
    rounds: int
    epochs: int
    batch_size: int
    num_experts: int
    epsilon: float = EPSILON
    model: str = "leaf_cnn"
    gate_only: bool = False
    local_epochs: int = 200
    gate_epochs: int = 200
    finetune_lr: float = 1e-4  # all configurations (3.3)
    # All clients score all clusters, as in ten rounds of training; tables show the end alone.
    evaluate_every: int = 50
    personal_clients: int | None = None
    both_mixtures: bool = True
    roles: tuple[str, ...] = ("table2",)

    @property
    def profile(self) -> Profile:
        """Of all runs."""
        return CLEAN if "clean" in self.roles else PUBLISHED

    @property
    def expert_decay(self) -> float:
        """Weight decay of local experts."""
        return self.expert.weight_decay if self.profile.decays else 0.0

    def run(self, label: str) -> Run:
        """The run of a label."""
        if label == LOCALS:
            return self._locals()
        variant = VARIANTS[label]
        experts = variant.params.get("num_experts", self.num_experts)
        # An output per expert, the local one included; a single one for two experts.
        gate = {**self._common, **self.gate.arguments(), "num_classes": experts + 1}
        return self.make_run(
            label,
            variant,
            params={
                "num_experts": experts,
                "epsilon": 0.0 if variant.params["exploration"] == "none" else self.epsilon,
                "horizon": self.rounds,
                "stop_split": self.profile.stop_split,
                "member": self.profile.member,
                "local_lr": self.expert.lr,
                "local_weight_decay": self.expert_decay,
                "finetune_lr": self.finetune_lr,
                "finetune_weight_decay": 1e-4 if self.profile.decays else 0.0,  # code (6.1)
                "gate_lr": self.gate.lr,
                "gate_weight_decay": self.gate.weight_decay,
                "local_epochs": self.local_epochs,
                "gate_epochs": self.gate_epochs,
                "personal_clients": self.personal_clients,
                "gate_only": self.gate_only,
                "both_mixtures": self.both_mixtures and label in EXPLORATIONS,
                "lr_decay": True,
            },
            model=self.model,
            model_params=self._arguments(self.shared),
            modules={
                "expert": {"model": self.model, "params": self._arguments(self.expert)},
                "gate": {"model": "gate_cnn", "params": gate},
            },
            rounds=self.rounds,
            local={
                "solver": "sgd",
                "lr": self.shared.lr,
                "batch_size": self.batch_size,
                "epochs": self.epochs,
                "weight_decay": self.shared.weight_decay,
            },
            participation=_frame.participation(self.cohort, _frame.num_training_clients(self.data)),
            evaluate_every=self.evaluate_every,
        )

    def _locals(self) -> Run:
        """The run of the local experts of all clients."""
        rounds = math.ceil(_frame.num_training_clients(self.data) / AT_ONCE)
        return self.make_run(
            LOCALS,
            VARIANTS[LOCALS],
            params={
                "lr_decay": True,
                "max_epochs": self.local_epochs,
                "stop_split": self.profile.stop_split,
                "keep": sorted({"best", self.profile.member}),
                "personal_clients": None,
                "groups": ["seen"],
                "at_once": AT_ONCE,
            },
            model=self.model,
            model_params=self._arguments(self.expert),
            rounds=rounds,
            local={
                "solver": "adamw",
                "lr": self.expert.lr,
                "batch_size": self.batch_size,
                "weight_decay": self.expert_decay,
            },
            evaluate_every=rounds,
        )

    def notes(self, label: str) -> tuple[str, ...]:
        """The profile, and the official code's choice of clients."""
        everyone = self.personal_clients is None or label == LOCALS
        return (self.profile.note, *(() if everyone else (OFFICIAL_CLIENTS,)))

    @property
    def _common(self) -> dict:
        """Arguments of `build` that all networks have."""
        return {**self.image, "logit_relu": self.profile.logit_relu}

    def _arguments(self, network: Network) -> dict:
        if self.model == "ifca_cnn":  # with its default widths
            return {**self._common, "dropout": network.dropout}
        return {**self._common, **network.arguments()}
