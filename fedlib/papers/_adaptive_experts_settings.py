"""Federations, models, hyper-parameters and runs of Adaptive Expert Models, at every scale.

"Table 1" is the paper's; "configurations" are those that the official code EricssonResearch/fl-moe
ships; sections are those of docs/papers/adaptive_experts.md.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fedlib.spec import Data, Run

# Of the partitions, which every trial draws anew, as the official code does without a seed (X15).
SEED = 12345
EPSILON = 0.33  # Table 1
ROUNDS = 500  # stage A of the tuning, section 6.3; the shipped 100 stop too early for this rate
PS = (0.2, 0.4, 0.6, 0.8, 1.0)  # Table 2
MANY_CLUSTERS = (1, 2, 3, 4, 5, 6, 7, 8)  # Figure 4
VAL_FRACTION = 0.2  # ours, profile clean (X6)
OPT_OUT = 0.5  # the default of the official code, which every configuration sets to 0 (X16)
LOCALS = "local"  # run of the local experts, which those of all others on its federation are
AT_ONCE = 10  # ours: clients whose local experts are trained between two checkpoints
SUBSET = 10  # clients 0 to 9 are the ones that the official code evaluates (X5)

ROLES = {
    "table2": "Table 2 and the figures about it",
    "clean": "the profile clean of one of Table 2's",
    "clients": "another number of clients, which the paper does not state",
    "opt_out": "clients that never train",
    "other": "data that the paper shows in figures alone",
}
EXPLORATIONS = {"eps": "ε-greedy", "none": "no exploration"}
SCHEDULES = {  # in the official code, section 2.3; the paper shows none of them
    "eps_decay": "exploration 1/(t+1)",
    "eps_decay_b": "exploration falling to ε",
    "eps_decay_k": "exploration by number of clusters",
}
PUBLISHED_PROFILE = (
    "Profile published: a ReLU on the logits of every network, no weight decay outside the "
    "federated training, early stopping and best round on the clients' test data, as in the "
    "official code (X3, X4, X6)."
)
OFFICIAL_CLIENTS = (
    f"Of {SUBSET} clients, the first of those shown, as in the official code (X5): these alone "
    "train on their own, are what the columns compare, and say which experts are in use."
)
CLEAN_PROFILE = (
    "Profile clean: no ReLU on logits, the weight decay of Table 1, and a fifth of the training "
    "data held out for every decision."
)


@dataclass(frozen=True)
class Network:
    """A network as Table 1 lists it.

    Attributes:
      lr, dropout, weight_decay: as there.
      conv1, conv2, hidden: its widths.
    """

    lr: float
    conv1: int
    conv2: int
    hidden: int
    dropout: float
    weight_decay: float

    def arguments(self) -> dict:
        """What the model's `build` takes of it."""
        names = ("conv1", "conv2", "hidden", "dropout")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Setting:
    """How the two-stage method is run on one federation.

    Attributes:
      data: the federation.
      image: arguments of every network's `build` that the images fix.
      num_classes: L.
      model: registry name of the federated model; "leaf_cnn" or "ifca_cnn".
      shared, expert, gate: the three networks of a client.
      num_clients, cohort: K, and how many of them take part in a round.
      rounds: T.
      epochs, batch_size: of a client in a round.
      num_experts: J.
      epsilon: of epsilon-greedy exploration.
      gate_only: whether mixtures train their gates alone (X10).
      local_epochs, gate_epochs: most epochs of local experts and fine-tuning, and of mixtures.
      finetune_lr: of the fine-tuned baseline.
      evaluate_every: rounds between evaluations.
      personal_clients: how many clients train on their own, the first ones; None is all of them.
      explorations: which of the two there are.
      both_mixtures: whether mixtures are evaluated that train what `gate_only` does not say, too.
      sweep: further numbers of experts, each with and without exploration.
      schedules: further schedules of exploration.
      locals_apart: whether a run trains the local experts of all others; it saves what they take.
      role: what the federation is there for, one of `ROLES`.
    """

    data: Data
    image: dict
    num_classes: int
    shared: Network
    expert: Network
    gate: Network
    num_clients: int
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
    finetune_lr: float = 1e-4  # all configurations
    evaluate_every: int = 10
    personal_clients: int | None = None
    explorations: tuple[str, ...] = tuple(EXPLORATIONS)
    both_mixtures: bool = True
    sweep: tuple[int, ...] = ()
    schedules: tuple[str, ...] = ()
    locals_apart: bool = True
    role: str = "table2"

    @property
    def clean(self) -> bool:
        """Whether this is the profile clean, and not the profile published."""
        return self.role == "clean"

    def runs(self) -> Iterator[Run]:
        """With and without exploration, other numbers of experts and schedules; local experts."""
        for label in self.explorations:
            told, both = EXPLORATIONS[label], self.both_mixtures
            yield self._run(label, label, told, self.num_experts, both=both)
        for number in self.sweep:
            for label, told in EXPLORATIONS.items():
                if number != self.num_experts:
                    title = f"{told}, J={number}"
                    yield self._run(f"{label}-j{number}", label, title, number)
        for label in self.schedules:
            yield self._run(label.replace("_", "-"), label, SCHEDULES[label], self.num_experts)
        if self.locals_apart:
            yield self._locals()

    def _run(self, label: str, exploration: str, title: str, experts: int, both=False) -> Run:
        return Run(
            federation=self.data.name,
            label=label,
            title=title,
            method="adaptive_experts",
            model=self.model,
            model_params=self._arguments(self.shared),
            modules={
                "expert": {"model": self.model, "params": self._arguments(self.expert)},
                "gate": {
                    "model": "gate_cnn",
                    # An output per expert, the local one included; two share a single one.
                    "params": {**self.image, **self.gate.arguments(), **self._relu}
                    | {"num_classes": experts + 1},
                },
            },
            rounds=self.rounds,
            local={
                "solver": "sgd",
                "lr": self.shared.lr,
                "batch_size": self.batch_size,
                "epochs": self.epochs,
                "weight_decay": self.shared.weight_decay,
            },
            params={
                "num_experts": experts,
                "exploration": exploration,
                "epsilon": 0.0 if exploration == "none" else self.epsilon,
                "horizon": self.rounds,
                "stop_split": self._stop_split,
                "member": self._member,
                "local_lr": self.expert.lr,
                "local_weight_decay": self._local_weight_decay,
                "finetune_lr": self.finetune_lr,
                "finetune_weight_decay": 1e-4 if self.clean else 0.0,
                "gate_lr": self.gate.lr,
                "gate_weight_decay": self.gate.weight_decay,
                "local_epochs": self.local_epochs,
                "gate_epochs": self.gate_epochs,
                "personal_clients": self.personal_clients,
                "gate_only": self.gate_only,
                "both_mixtures": both,
                "lr_decay": True,
            },
            # The cohort has ceil(C K) clients; a share that is cut to K_s wherever it is rounded.
            participation={
                "rate": math.nextafter(self.cohort / self.num_clients, 1),
                "aggregation": "renormalised",
            },
            evaluate_every=self.evaluate_every,
            settled_by=LOCALS if self.locals_apart else "",
            notes=self._notes(),
        )

    def _locals(self) -> Run:
        """What the other runs would train their local experts by, each for itself."""
        rounds = math.ceil((self.personal_clients or self.num_clients) / AT_ONCE)
        return Run(
            federation=self.data.name,
            label=LOCALS,
            title="Local experts",
            method="local_experts",
            model=self.model,
            model_params=self._arguments(self.expert),
            rounds=rounds,
            local={
                "solver": "adamw",
                "lr": self.expert.lr,
                "batch_size": self.batch_size,
                "weight_decay": self._local_weight_decay,
            },
            params={
                "lr_decay": True,
                "max_epochs": self.local_epochs,
                "stop_split": self._stop_split,
                "keep": ["best"] if self.clean else ["best", self._member],
                "personal_clients": self.personal_clients,
                # Of a federation where some opt out those are shown.
                "groups": ["unseen"] if self.role == "opt_out" else ["seen"],
                "at_once": AT_ONCE,
            },
            evaluate_every=rounds,
            notes=self._notes(),
        )

    @property
    def _relu(self) -> dict:
        return {"logit_relu": not self.clean}

    @property
    def _stop_split(self) -> str:
        return "val" if self.clean else "test"

    @property
    def _member(self) -> str:
        # The official code keeps a reference to the weights where it means to copy them.
        return "best" if self.clean else "last"

    @property
    def _local_weight_decay(self) -> float:
        return self.expert.weight_decay if self.clean else 0.0

    def _notes(self) -> tuple[str, ...]:
        profile = CLEAN_PROFILE if self.clean else PUBLISHED_PROFILE
        return (profile,) if self.personal_clients is None else (profile, OFFICIAL_CLIENTS)

    def _arguments(self, network: Network) -> dict:
        common = {**self.image, "num_classes": self.num_classes, **self._relu}
        if self.model == "ifca_cnn":  # its widths are its defaults
            return {**common, "dropout": network.dropout}
        return {**common, **network.arguments()}


def clean(setting: Setting) -> Setting:
    """The same federation and method in the profile clean, which holds data out."""
    data = replace(
        setting.data,
        name=f"{setting.data.name}-clean",
        title=f"{setting.data.title}, clean",
        family=f"{setting.data.family or setting.data.title}, clean",
        partition={**setting.data.partition, "val_fraction": VAL_FRACTION},
    )
    return _as(setting, "clean", data, personal_clients=None)


def _as(setting: Setting, role: str, data: Data, **changes) -> Setting:
    """`setting` for another purpose, with its two runs alone."""
    return replace(setting, data=data, role=role, sweep=(), schedules=(), **changes)


def of_20_clients(setting: Setting) -> Setting:
    """The official configuration cifar10: 20 clients, all in every round, without exploration.

    The number of clients is to be the one whose IFCA is nearer to Table 2's at p = 0.2 (4.1).
    """
    data = replace(
        setting.data,
        name=f"{setting.data.name}-k20",
        title=f"{setting.data.title}, 20 clients",
        partition={**setting.data.partition, "num_clients": 20},
    )
    only = {"explorations": ("none",), "both_mixtures": False, "locals_apart": False}
    return _as(setting, "clients", data, num_clients=20, cohort=20, **only)


def opted_out(setting: Setting) -> Setting:
    """The same federation, half of whose clients never train."""
    data = replace(
        setting.data,
        name=f"{setting.data.name}-optout",
        title=f"{setting.data.title}, half opt out",
        family=f"{setting.data.family}, half opt out",
        partition={**setting.data.partition, "unseen_fraction": OPT_OUT},
    )
    return _as(setting, "opt_out", data)


def demo() -> tuple[str, tuple[int, ...], tuple[Setting, ...]]:
    """Of `demo_all`, one trial, half the rounds, and two thirds of the epochs of the rest."""
    note, seeds, settings = demo_all()
    epochs = {"local_epochs": 4, "gate_epochs": 4}
    return note, seeds[:1], tuple(replace(x, rounds=x.rounds // 2, **epochs) for x in settings)


def demo_all() -> tuple[str, tuple[int, ...], tuple[Setting, ...]]:
    """Digits in place of CIFAR-10, with settings of ours."""
    shared = Network(0.1, 8, 16, 64, 0.2, 1e-4)
    small = {
        "image": {"in_channels": 1, "side": 8, "padding": 2},
        "num_classes": 10,
        "shared": shared,
        "expert": replace(shared, lr=3e-3),
        "gate": Network(3e-3, 4, 4, 16, 0.2, 1e-4),
        "num_clients": 10,
        "cohort": 5,
        "evaluate_every": 2,
        "epochs": 3,
        "batch_size": 10,
        "num_experts": 3,
        "local_epochs": 6,
        "gate_epochs": 6,
        "finetune_lr": 1e-3,
        "rounds": 20,
    }
    # Of two small runs a third one costs more than it saves: one federation shows that it works.
    low, middle, high = (
        Setting(_majority_digits(p), both_mixtures=p == 0.6, locals_apart=p == 0.6, **small)
        for p in (0.2, 0.6, 1.0)
    )
    middle = replace(middle, schedules=("eps_decay",), sweep=(1, 2))
    rotated = Data(
        name="rotated-digits",
        dataset="digits",
        partition={"kind": "rotated", "num_clients": 10, "rotations": [0, 180]},
        seed=SEED,
        title="Rotated digits",
        partition_label="rotated180",
        notes=(DIGITS_NOTE,),
        per_seed=True,
    )
    return (
        "demo: small federations that need no download and settings chosen for them; shows that "
        "everything runs, not what the paper claims.",
        (0, 1),
        (
            low,
            middle,
            high,
            replace(clean(middle), both_mixtures=False, locals_apart=False),
            Setting(
                rotated,
                role="other",
                both_mixtures=False,
                locals_apart=False,
                **small
                | {
                    "num_experts": 2,
                    "batch_size": 50,
                    "rounds": 10,
                    "local_epochs": 4,
                    "gate_epochs": 4,
                },
            ),
        ),
    )


def reduced() -> tuple[str, tuple[int, ...], tuple[Setting, ...]]:
    """Real CIFAR-10 with fewer clients, images, experts, rounds and epochs, and small networks."""
    note = (
        "CIFAR-10: 20 clients of 100 training and 50 test images instead of 50 of 500 and 100, "
        "small networks, three cluster models instead of six, 80 rounds instead of 500, and at "
        "most 26 epochs of a client's own training and 11 of its mixture instead of 200."
    )
    small = Network(0.03, 16, 32, 128, 0.3, GLOBAL.weight_decay)
    few = {
        "num_clients": 20,
        "cohort": 5,
        "rounds": 80,
        "num_experts": 3,
        "local_epochs": 26,
        "gate_epochs": 11,
        "personal_clients": None,
        "both_mixtures": False,
        "sweep": (),
        "schedules": (),
        "shared": small,
        "expert": replace(small, lr=1e-3),
        # A larger rate makes mixtures fit 100 images and forget: worse than IFCA at p = 0.2.
        "gate": Network(1e-4, 8, 8, 8, 0.3, GATE.weight_decay),
    }
    sizes = {"num_clients": 20, "train_examples": 100, "test_examples": 50}
    settings = []
    for setting in map(_cifar10, (0.2, 0.6, 1.0)):
        data = setting.data
        data = replace(data, partition={**data.partition, **sizes}, notes=(note,))
        settings.append(replace(setting, data=data, **few))
    return (
        "reduced: the paper's partition of real CIFAR-10 with fewer clients, images, rounds and "
        "trials, and networks and hyper-parameters to match.",
        (0, 1),
        tuple(settings),
    )


def full() -> tuple[str, tuple[int, ...], tuple[Setting, ...]]:
    """The paper's settings where it states them, and those of its configurations elsewhere."""
    published = tuple(map(_cifar10, PS))
    return (
        "full: the paper's data, models and hyper-parameters; clients, rounds and batches, which "
        "it does not state, are those of the official configurations.",
        tuple(range(6)),  # Table 2: 6 to 15 trials
        (
            *published,
            *map(clean, published),
            of_20_clients(published[0]),
            opted_out(published[2]),
            _rotated(2),
            _rotated(4),
            _femnist(),
        ),
    )


# Table 1.
GLOBAL = Network(5.86e-3, 128, 32, 1024, 0.80, 1.10e-3)
LOCAL = Network(2.69e-4, 32, 256, 256, 0.76, 9.89e-3)
GATE = Network(3e-6, 12, 12, 8, 0.78, 6.88e-4)
DIGITS_NOTE = "scikit-learn's 1,797 handwritten digits; not a data set of the paper."


def _majority(p: float, **sizes: int) -> dict:
    return {"kind": "majority", "p": p, **sizes}


def _majority_digits(p: float) -> Data:
    return Data(
        name=f"digits-p{p:.1f}",
        dataset="digits",
        # The largest clients for which p may be 1: class 0 is a majority class of all ten.
        partition=_majority(p, num_clients=10, train_examples=24, test_examples=8),
        seed=SEED,
        title=f"Digits, p={p:.1f}",
        partition_label=f"majority{p:.1f}",
        family="Digits by majority fraction",
        notes=(DIGITS_NOTE,),
        per_seed=True,
    )


def _cifar10(p: float) -> Setting:
    """50 clients of 500 images; a fraction p of them is of two classes (section 4.1)."""
    data = Data(
        name=f"cifar10-p{p:.1f}",
        dataset="cifar10",
        params={"scaling": "measured"},
        # The paper does not say how many clients; the official configurations have 20 and 50.
        partition=_majority(p, num_clients=50, train_examples=500, test_examples=100),
        seed=SEED,
        title=f"CIFAR-10, p={p:.1f}",
        partition_label=f"majority{p:.1f}",
        family="CIFAR-10 by majority fraction",
        per_seed=True,
    )
    return Setting(
        data,
        image={"in_channels": 3, "side": 32},
        num_classes=10,
        shared=GLOBAL,
        expert=LOCAL,
        gate=GATE,
        num_clients=50,  # configurations cifar10_eps and cifar10_noeps
        cohort=5,
        rounds=ROUNDS,
        epochs=3,  # Table 1
        batch_size=10,  # every CIFAR-10 configuration
        num_experts=6,  # Table 2
        personal_clients=SUBSET,
        sweep=MANY_CLUSTERS,
        schedules=tuple(SCHEDULES) if p == 0.6 else (),
    )


def _rotated(count: int) -> Setting:
    """200 clients; equal parts of them see the images turned by 360 / count degrees (4.2)."""
    angles = [angle for angle in (0, 90, 180, 270) if count == 4 or angle % 180 == 0]
    data = Data(
        name=f"rotated-cifar10-{count}",
        dataset="cifar10",
        params={"scaling": "measured"},
        partition={"kind": "rotated", "num_clients": 200, "rotations": angles},
        seed=SEED,
        title=f"CIFAR-10, {count} rotations",
        partition_label=f"rotated{count}",
        per_seed=True,
    )
    # Column cifar10rot_none, whose epsilon is the 0.82 of the paper (6.2); widths are the model's.
    return Setting(
        data,
        image={"in_channels": 3, "side": 32},
        num_classes=10,
        model="ifca_cnn",
        shared=Network(5.1480e-4, 64, 64, 384, 0.21621, 5.3481e-4),
        expert=Network(2.0164e-4, 64, 64, 384, 0.72738, 0.018944),
        gate=Network(2.1109e-5, 16, 16, 128, 0.41649, 0.013608),
        num_clients=200,
        cohort=20,
        rounds=600,
        epochs=5,
        batch_size=50,
        num_experts=2,
        epsilon=0.81528,
        local_epochs=600,
        gate_epochs=600,
        sweep=(3, 4, 6),
        role="other",
    )


def _femnist() -> Setting:
    """182 writers with at least 100 images (4.3); the paper finds nine experts best.

    All trials share them: LEAF has drawn the writers, and the official split has a seed.
    """
    data = Data(
        name="femnist",
        dataset="femnist",
        params={"source": "nist", "scaling": "unit"},
        partition={
            "kind": "writer",
            "num_clients": 182,
            "min_examples": 100,
            "train_fraction": 0.8,
        },
        seed=SEED,
        title="FEMNIST",
        partition_label="writer",
    )
    # Configuration femnist, with the widths of 5.5.
    return Setting(
        data,
        image={"in_channels": 1, "side": 28},
        num_classes=62,
        shared=Network(0.072390, 32, 64, 2048, 0.65935, 7.2729e-4),
        expert=Network(1.6732e-3, 32, 64, 2048, 0.48828, 0.014623),
        gate=Network(3.0704e-3, 64, 16, 256, 0.27526, 0.026879),
        num_clients=182,
        cohort=6,
        rounds=4000,
        epochs=3,
        batch_size=10,
        num_experts=9,
        epsilon=0.061528,
        gate_only=True,
        evaluate_every=50,
        sweep=(3, 6, 12),
        role="other",
    )
