"""The runs of pFedMoE, made from a federation's settings.

The paper is Yi et al., pFedMoE, 2024 (arXiv:2402.01350), without official code; sections are those
of README.md. Every method but FedAvg and FedRep runs in the heterogeneous setting, in which clients
have five architectures in turn. Under a label with `SAME` at its end, methods run in the
homogeneous setting, in which all clients have the first one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fedlib.papers import _frame
from fedlib.spec import Run

SAME = "-homogeneous"
LR = 0.01  # of all groups (section 5)
SGD = {  # section 5; solvers start anew in every round
    **{"solver": "sgd", "lr": LR, "momentum": 0.9, "weight_decay": 1e-3, "clip_norm": 50.0},
    "keeps": "round",
}
COHORT = 10  # clients in a round (section 4.4)
SEEDS = (0, 1, 2)  # three trials, as in pFedES; which ones is ours
RECORDED = 40  # test examples of a client with recorded representations, for t-SNE; ours
SMALLEST = 5  # architecture of the small shared model (section 3)
UNEVEN = 0.5  # concentration of `path_dir`'s shares of a class; ours, no source has it


@dataclass(frozen=True)
class Variant(_frame.Variant):
    """The meaning of a label.

    Attributes:
      small: number of the small shared model's architecture; None for methods without one.
      gate: arguments of the gate's `build` that differ from the paper's; None for no gate.
      same: whether all clients have the first architecture.
    """

    small: int | None = None
    gate: dict | None = None
    same: bool = False


def _pfedmoe(what: str, small: int = SMALLEST, gate: dict | None = None, **params) -> Variant:
    return Variant(f"pFedMoE, {what}", "pfedmoe", params, small, gate or {})


OF_GATES = {
    # Section 2: normalisation of the gate's input and hidden layer.
    "pfedmoe-switch2d": _pfedmoe("2-D switch norm", gate={"input_norm": "switch2d"}),
    "pfedmoe-batch1d": _pfedmoe("batch norm", gate={"input_norm": "batch1d"}),
    "pfedmoe-layer": _pfedmoe("layer norm", gate={"input_norm": "layer"}),
    "pfedmoe-none": _pfedmoe("no norm", gate={"input_norm": "none"}),
    "pfedmoe-hidden-batch": _pfedmoe(
        "switch norm, hidden batch norm", gate={"hidden_norm": "batch"}
    ),
    "pfedmoe-hidden-layer": _pfedmoe(
        "switch norm, hidden layer norm", gate={"hidden_norm": "layer"}
    ),
    # Weights that the gate does not choose.
    "pfedmoe-fixed": _pfedmoe("both experts alike", gate_mode="fixed:0.5"),
    "pfedmoe-global": _pfedmoe("global expert only", gate_mode="global_only"),
    "pfedmoe-local": _pfedmoe("local expert only", gate_mode="local_only"),
}
VARIANTS = {
    # First, because a method's first run has the solid line.
    "pfedmoe": Variant("pFedMoE", "pfedmoe", small=SMALLEST, gate={}),
    "standalone": Variant("Standalone", "local"),
    "lg-fedavg": Variant("LG-FedAvg", "lg_fedavg"),
    "fd": Variant("FD", "fd"),
    "fedproto": Variant("FedProto", "fedproto"),
    "fedgh": Variant("FedGH", "fedgh"),
    "fedtgp": Variant("FedTGP", "fedtgp"),
    "fml": Variant("FML", "fml", small=SMALLEST),
    "fedkd": Variant("FedKD", "fedkd", small=SMALLEST),
    "fedapen": Variant("FedAPEN", "fedapen", small=SMALLEST),
    "fedavg": Variant("FedAvg (server's model)", "fedavg"),
    "fedrep": Variant("FedRep", "fedrep"),
    **OF_GATES,
    "pfedmoe-g1": _pfedmoe("extractor of CNN-1", small=1),
}
VARIANTS |= {f"{label}{SAME}": replace(x, same=True) for label, x in VARIANTS.items()}
OF_SERVER = (
    "the server's average on every client's test examples. All other rows are of clients' models "
    "after their own training, and are not comparable with it."
)
MAIN = tuple(VARIANTS)[: [*VARIANTS].index("fedavg")]
MUTUAL = ("fml", "fedkd", "fedapen")  # the paper's own category (section 8)
BASELINES = tuple(x for x in MAIN if x not in ("pfedmoe", "fedgh", "fedtgp"))  # its seven
NEW = ("fedavg", "fedrep")  # methods without published numbers
COMPARED = ("pfedmoe", "standalone", "lg-fedavg", "fd", "fedproto")  # by criteria
GATES = ("pfedmoe", *OF_GATES)
LARGE = "pfedmoe-g1"  # its shared extractor is as large as the others in the homogeneous setting
FEW = ("pfedmoe", "standalone", "lg-fedavg", "fedproto", "fedkd")  # methods on varied data


def same(labels: Iterable[str]) -> tuple[str, ...]:
    """The labels in the homogeneous setting."""
    return tuple(f"{label}{SAME}" for label in labels)


HOMOGENEOUS = same((*MAIN, *NEW, LARGE))


@dataclass(frozen=True)
class Images:
    """Arguments of networks for a data set.

    Attributes:
      image: arguments of every network's `build`: the image, its augmentation, the classes.
      architectures: further arguments of the five networks, from the largest to the smallest.
    """

    image: dict
    architectures: tuple[dict, ...]

    def model(self, number: int) -> dict:
        """Arguments of `build` of architecture 1 to 5."""
        return {**self.image, **self.architectures[number - 1]}

    def gate(self, changes: dict) -> dict:
        """Arguments of the gate's `build`."""
        known = ("in_channels", "side", "augment")
        return {name: x for name, x in self.image.items() if name in known} | changes


@dataclass(frozen=True, kw_only=True)
class Setting(_frame.Setting):
    """A federation, and the settings of its runs; labels are of `VARIANTS`.

    Attributes:
      images: of the data set.
      rounds: T.
      batch_size, epochs: of a client in a round.
      lr: of all groups.
      evaluate_every: rounds between evaluations, if there is no target.
      target: accuracy for which the cost is measured, if any; every round is then evaluated,
        because the cost is that of the first round to reach it.
      published: ending of the federation's published exhibits, if there are any.
      repeated: labels of runs with `SEEDS` in place of the scale's seeds.
    """

    images: Images
    rounds: int
    batch_size: int
    epochs: int = 1
    lr: float = LR
    evaluate_every: int = 5
    target: float | None = None
    published: str | None = None
    repeated: tuple[str, ...] = ()

    def run(self, label: str) -> Run:
        """The run of a label."""
        variant = VARIANTS[label]
        return self.make_run(
            label,
            variant,
            params=self._common(label, variant),
            model="pfedmoe_cnn",
            model_params=self.images.model(variant.small or 1),
            modules=self._modules(variant),
            rounds=self.rounds,
            local={**SGD, "lr": self.lr, "batch_size": self.batch_size, "epochs": self.epochs},
            participation=_frame.participation(COHORT, _frame.num_training_clients(self.data)),
            evaluate_every=1 if self.target else min(self.evaluate_every, self.rounds),
            seeds=SEEDS if label in self.repeated else (),
        )

    def notes(self, label: str) -> tuple[str, ...]:
        """The note on FedAvg."""
        return (OF_SERVER,) if VARIANTS[label].method == "fedavg" else ()

    def _modules(self, variant: Variant) -> dict:
        """The clients' architectures, unless all have the run's own model, and the gate."""
        found = {}
        own = (1,) if variant.same else range(1, len(self.images.architectures) + 1)
        if variant.small is not None or len(own) > 1:
            large = map(self.images.model, own)
            found["large"] = [{"model": "pfedmoe_cnn", "params": params} for params in large]
        if variant.gate is not None:
            found["gate"] = {"model": "pfedmoe_gate", "params": self.images.gate(variant.gate)}
        return found

    def _common(self, label: str, variant: Variant) -> dict:
        """Hyper-parameters of all runs of a method here."""
        if variant.method == "fedkd":
            return {"horizon": self.rounds}
        if label == "pfedmoe" and "representations" in self.roles:
            return {"recorded": RECORDED}
        return {}
