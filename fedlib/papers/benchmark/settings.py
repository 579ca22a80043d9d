"""The runs of the benchmark: methods, their settings, and their tuning.

Test examples never stop a training, choose a round or pick an expert.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fedlib.papers import _frame
from fedlib.papers.benchmark import registered_tunings
from fedlib.spec import Run

NUM_EXPERTS = 3  # the number of concepts, for all methods with experts
DIM = 20
SIZES = {"in_features": DIM, "num_classes": 2}
RATE = 0.5  # of the local solver, in worlds
RATES = (0.01, 3.0)  # range of this rate for tuning, two and a half decades
TUNING_SEED = 100  # of the split and the trials; no reported run has it
ADAM = {"server_lr": 0.03}  # of the server, in methods that have one
SERVER = {"solver": "sgd", "lr": 0.1, "batch_size": 32, "epochs": 1}  # on the server's own data


@dataclass(frozen=True, kw_only=True)
class Variant(_frame.Variant):
    """A method and its hyper-parameters.

    Attributes:
      home: the worlds that meet its assumption.
      needs: "clusters" (true ones), "everybody" (in every round), "body" (of the model), "server"
        (with data), or nothing ("").
      width: of the model, which in methods with two is the shared one.
      protocol: of its predictions.
    """

    home: tuple[str, ...] = ()
    needs: str = ""
    width: float = 1
    protocol: str = "default"


EXPERTS = {"num_experts": NUM_EXPERTS}
CLUSTERED = {**EXPERTS, "cluster_init": "full", "stop": "never", "stop_split": "val"}
METHODS = {
    "pooled": Variant("Pooled data", "pooled", home=("one",)),
    "local": Variant("Local", "local", home=("own",)),
    "fedavg": Variant("FedAvg", "fedavg", home=("one",)),
    "fedavg-plus": Variant("FedAvg, fine-tuned", "fedavg_plus", home=("priors",)),
    "ditto": Variant("Ditto", "ditto", {"lam": 0.1}),
    "apfl": Variant("APFL", "apfl", {"alpha": 0.5}),
    "known-clusters": Variant(
        "Known clusters", "oracle_clusters", home=("clusters",), needs="clusters"
    ),
    "ifca": Variant(
        "IFCA", "ifca", {**CLUSTERED, "exploration": "eps", "epsilon": 0.0}, home=("clusters",)
    ),
    "fedem": Variant("FedEM", "fedem", EXPERTS, home=("clusters", "mixtures")),
    "gated-experts": Variant("Gated experts", "gated_experts", EXPERTS, home=("regions",)),
    "fedmix": Variant("FedMix", "fedmix", {**EXPERTS, **ADAM}, home=("regions",)),
    "biased-fedavg": Variant("Biased FedAvg", "biased_fedavg", ADAM, home=("priors",)),
    "fedrep": Variant("FedRep", "fedrep", home=("heads",), needs="body"),
    "lg-fedavg": Variant("LG-FedAvg", "lg_fedavg", needs="body"),
    "pfedmm": Variant("pFedMM", "pfedmm", EXPERTS, needs="body"),
    # From here on, only in real federations.
    "label-prior": Variant("Label prior", "local"),
    "fedavg-wide": Variant("FedAvg, 3 x as wide", "fedavg", width=3),
    "fedavg-adam": Variant("FedAvg (server Adam)", "fedavg_adam", ADAM),
    "fedprox": Variant("FedProx", "fedprox", {"mu": 0.1}),
    "qffl": Variant("q-FFL", "qffl", {"q": 1.0}),
    "afl": Variant("AFL", "afl", {"lr_lambda": 0.01}),
    "pfedme": Variant("pFedMe", "pfedme", {"mu": 1.0}),
    "l2sgd": Variant("L2SGD", "l2sgd", {"p": 0.1, "lam": 0.05}),
    "local-global": Variant("Local/Global", "local_global", ADAM),
    "clustered": Variant("Clustered FL", "clustered", needs="everybody"),
    "fedmix-clients": Variant("FedMix by clients", "fedmix_clients", {**EXPERTS, **ADAM}),
    "adaptive-experts": Variant(
        "Adaptive experts",
        "adaptive_experts",
        {
            **CLUSTERED,
            **{"exploration": "eps", "epsilon": 0.1},
            **{"local_lr": 0.1, "gate_lr": 0.01, "local_epochs": 30, "gate_epochs": 30},
        },
        protocol="moe",
    ),
    "pfedmoe": Variant("pFedMoE", "pfedmoe"),
    "fml": Variant("FML", "fml", width=0.5),
    "fedkd": Variant("FedKD", "fedkd", width=0.5),
    "fedapen": Variant("FedAPEN", "fedapen", width=0.5),
    "fedproto": Variant("FedProto", "fedproto"),
    "fedgh": Variant("FedGH", "fedgh"),
    "fedtgp": Variant("FedTGP", "fedtgp", {"server_epochs": 10}),  # 100 take a quarter of the time
    "fd": Variant("FD", "fd"),
    # From here on, only where a server has data.
    "server-finetuning": Variant(
        "FedAvg, tuned on the server", "server_finetuning", {"server": SERVER}, needs="server"
    ),
    "centmoe": Variant("CentMoE", "centmoe", needs="server"),
    "avg-moe": Variant("Avg-MoE", "moe_fedavg", needs="server"),
    "fedjets": Variant("FedJETs", "fedjets", needs="server"),
    "fedmoe": Variant("Fed-MoE", "fedmoe", {"server": SERVER}, needs="server"),
    "ensemble": Variant("Ensemble of clients", "ensemble", needs="server"),
    "fedrolex": Variant("FedRolex", "fedrolex", needs="server"),
}
IN_WORLDS = tuple(METHODS)[: tuple(METHODS).index("label-prior")]
ON_SERVER = tuple(label for label, method in METHODS.items() if method.needs == "server")
GATED_ON_SERVER = ("centmoe", "avg-moe", "fedjets", "fedmoe")
TWO_MODELS = ("fml", "fedkd", "fedapen")  # methods whose clients keep the ordinary model private
PRIOR = "label-prior"  # the method that ignores inputs
AGAIN = "-retuned"  # end of the label of a run that has a tuning for each seed
GATE = 16  # units, or channels, of a separate gate network


def able(labels: Iterable[str], *there: str) -> tuple[str, ...]:
    """Those of the methods that need nothing, or something that is there."""
    return tuple(label for label in labels if METHODS[label].needs in ("", *there))


def tuning(trials: int, rates: tuple[float, float] = RATES, rung: bool = False) -> dict:
    """`Run.tuning` with this number of trials, the first one at the declared rate."""
    return {"seed": TUNING_SEED, "trials": trials, "rates": list(rates), "rung": rung}


def retuning(trials: int, rates: tuple[float, float]) -> dict:
    """`Run.tuning` with a tuning for each seed, all of whose trials end."""
    return tuning(trials, rates) | {"seed": registered_tunings.SEED, "per_seed": True}


@dataclass(frozen=True, kw_only=True)
class Setting(_frame.Setting):
    """A federation, and the methods that run on it.

    Attributes:
      labels: methods, of `METHODS`.
      rounds: of every run.
      rate: of the local solver, without tuning or in the first trial.
      model, model_params: of every run.
      cohort: share of the seen clients in a round.
      local: settings of the local solver, besides its rate.
      tuning: see `fedlib.spec.Run`; None tunes nothing. retuning: of the runs that have a tuning
        for each seed.
      clusters: number of true clusters.
      image: channels and side of an image; {} in worlds.
      architectures: arguments of the clients' models in turn, besides `model_params`, the largest
        first; a shared model has the last ones. () if all clients have the same model.
      evaluations: of a run, besides the one before training.
      seeds: in place of the scale's.
    """

    rounds: int
    rate: float = RATE
    model: str = "linear"
    model_params: Mapping = field(default_factory=lambda: SIZES)
    cohort: float = 1.0
    local: Mapping = field(default_factory=lambda: {"batch_size": 32, "epochs": 1})
    tuning: Mapping | None = None
    retuning: Mapping | None = None
    clusters: int = NUM_EXPERTS
    image: Mapping = field(default_factory=dict)
    architectures: Sequence[Mapping] = ()
    evaluations: int = 1
    seeds: tuple[int, ...] = ()

    @property
    def inputs(self) -> int:
        """Numbers in an input, for gates."""
        return self.image["in_channels"] * self.image["side"] ** 2 if self.image else DIM

    def run(self, label: str) -> Run:
        """The run of a method; `AGAIN` ends the label of one that has a tuning for each seed."""
        if label.endswith(AGAIN):
            once = self.run(label.removesuffix(AGAIN))
            title = f"{once.title}, tuned for each seed"
            return replace(once, label=label, title=title, tuning={**once.tuning, **self.retuning})
        return self.make_run(
            label,
            METHODS[label],
            params=self._own(label),
            model="constant" if label == PRIOR else self.model,
            model_params=self._arguments(label),
            modules=self._modules(label),
            rounds=self.rounds,
            local={"solver": "sgd", "lr": self.rate, **self.local},
            participation=self._participation(label),
            evaluate_every=max(1, self.rounds // self.evaluations),
            seeds=self.seeds,
            tuning=self._tuning(label),
        )

    def _participation(self, label: str) -> dict:
        """The cohort, in which FedJETs has an anchor for each expert."""
        anchored = {"selection": "anchored"} if label == "fedjets" else {}
        return {"rate": self.cohort, "aggregation": "renormalised", **anchored}

    def _tuning(self, label: str) -> dict | None:
        """The tuning of a method, which validates the method's own predictions."""
        protocol = METHODS[label].protocol
        how = {} if protocol == "default" else {"protocol": protocol}
        return {**self.tuning, **how} if self.tuning else None

    def _arguments(self, label: str) -> dict:
        """Arguments of a method's model, which may be three times or half as wide."""
        arguments = dict(self.model_params)
        if self.architectures:
            shares = label in (*TWO_MODELS, "pfedmoe")
            return arguments | dict(self.architectures[-1 if shares else 0])
        if label == PRIOR:
            return {"num_classes": arguments["num_classes"]}
        if label == "fedrolex":
            return arguments | {"hidden": 2 * arguments["hidden"]}
        if (times := METHODS[label].width) == 1:
            return arguments
        widths = ("hidden",) if self.model == "mlp" else ("channels", "hidden")
        return arguments | {width: int(arguments[width] * times) for width in widths}

    def _modules(self, label: str) -> dict:
        """Private models of methods with two, and gates that are networks of their own."""
        own = {"model": self.model, "params": dict(self.model_params)}
        private = [{**own, "params": {**own["params"], **one}} for one in self.architectures]
        large = {"large": private} if private else {}
        if label in TWO_MODELS:
            return {"large": [own], **large}
        if label == "pfedmoe":
            return {**large, "gate": {"model": "pfedmoe_gate", "params": dict(self.image)}}
        if label == "fedrolex":
            return {"small": own}
        if label in GATED_ON_SERVER:
            return {"gate": self._gate(NUM_EXPERTS)}
        if label == "adaptive-experts":
            return {"expert": own, "gate": self._gate(NUM_EXPERTS + 1)}  # one is the client's own
        return large

    def _gate(self, outputs: int) -> dict:
        """A small network that weighs experts."""
        if self.model == "mlp":
            sizes = {"in_features": self.inputs, "hidden": GATE, "num_classes": outputs}
            return {"model": "mlp", "params": sizes}
        sizes = {"conv1": GATE, "conv2": GATE, "hidden": GATE, "dropout": 0.0}
        return {"model": "gate_cnn", "params": {**self.image, **sizes, "num_classes": outputs}}

    def _own(self, label: str) -> dict:
        """Hyper-parameters that follow from the federation."""
        match label:
            case "gated-experts":
                return {"gate_features": self.inputs}
            case "known-clusters":
                return {"num_clusters": self.clusters}
            case "fedkd":
                return {"horizon": self.rounds}
            case "local-global" if self.model == "mlp":
                return {"private": "body.1"}  # the lowest layer; body.0 only flattens
        return {}
