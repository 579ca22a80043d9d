"""Declarations of federations and runs."""

from dataclasses import asdict, dataclass, field
from typing import NamedTuple

SHOWN_ONLY = ("federation", "label", "title", "seeds", "settled_by", "notes")  # not in a run's spec


class RunName(NamedTuple):
    """The name of a run, as text "paper/federation/label"."""

    paper: str
    federation: str
    label: str

    def __str__(self) -> str:
        """As in configurations."""
        return "/".join(self)


@dataclass(frozen=True)
class Data:
    """One federation: a data set and a partition.

    Attributes:
      name: path-safe identifier, unique in the paper ("emnist").
      dataset: module of `fedlib.data.sources` that reads it ("emnist").
      partition: {"kind": module of `fedlib.data.partitions`, ...} with the fields of that module's
        class; JSON-able.
      seed: of all its random draws.
      title: its name in tables and figures ("EMNIST").
      partition_label: short name of the partition for the tidy table ("dirichlet0.4").
      params: keyword arguments of the data set's `read`, such as {"source": "leaf"}; JSON-able.
      family: title shared by federations that differ in one parameter alone ("EMNIST" of
        "EMNIST, alpha = 10"), which sweeps draw in one panel; "" for the title.
      notes: differences from the paper at this scale; shown under every table.
      per_seed: whether every training seed has a partition of its own, for papers whose trials
        repeat the whole experiment. The data set is then dealt with a seed that is drawn from
        `seed` and the training seed. False: all seeds share the declared partition.
    """

    name: str
    dataset: str
    partition: dict
    seed: int
    title: str
    partition_label: str
    params: dict = field(default_factory=dict)
    family: str = ""
    notes: tuple[str, ...] = ()
    per_seed: bool = False

    def spec(self, seed: int | None = None) -> dict:
        """All fields that determine the shards, and with `per_seed` the training seed `seed`."""
        names = ("dataset", "params", "partition", "seed")
        declared = {name: getattr(self, name) for name in names}
        return declared | ({"replicate": seed} if self.per_seed else {})

    def describe(self) -> dict:
        """The federation as tables and figures need it."""
        return {**asdict(self), "family": self.family or self.title}


@dataclass(frozen=True)
class Run:
    """One training run, for any seed.

    Attributes:
      federation: name of the `Data` it trains on.
      label: path-safe name of the run, unique per federation ("fedem", "pfedmm-m5").
      title: its name in tables and figures ("FedEM").
      method, model: registry names (`fedlib.methods`, `fedlib.models`).
      model_params: keyword arguments of the model's `build`; `in_features` and `num_classes` may be
        left out, because they follow from the data.
      rounds: communication rounds.
      modules: further architectures that the method needs, by the name of its field: {"gate":
        {"model": "gate_cnn", "params": {...}}}, a registry name and arguments of its `build`, and
        "weights" if it starts from pretrained weights of its own. Where clients have different
        architectures, a list of these: a client has the one at its number modulo the list's length
        (`Cohort.in_turn`), unless the method decides otherwise.
      local: the local solver: {"solver": "sgd", "lr": 0.03, "batch_size": 128, ...}, keyword
        arguments of the dataclass of that name in `fedlib.engine.solvers`.
      params: the method's hyper-parameters (its dataclass fields).
      participation: {"rate": fraction of the seen clients in a round, "aggregation": "damped" or
        "renormalised"}, and other fields of `fedlib.run.simulate.Course` that are not at their
        defaults.
      evaluate_every: rounds between evaluations; round 0 and the last are always evaluated.
      weights: pretrained weights of `model`, a table of `fedlib.data.downloads`; None for random
        ones.
      class_weights: [L] factors of the training loss by label, see `fedlib.engine.task.Task`, or
        None.
      precision: of matrix products and convolutions, see `fedlib.engine.task.Task`.
      seeds: training seeds in place of the paper's, for example more of them; () for the paper's.
      settled_by: label of a run of the same federation that computes the common part of several
        runs' final evaluations once, see `fedlib.methods.base.Method.settle`; "" for none. It saves
        time and changes no number, so a configuration may leave that run out.
      tuning: None, or how to tune its learning rate and its method's `SPACE` before training, see
        `fedlib.run.tune`: {"seed": of the split and the trials, "trials": their number, the first
        one as declared, "rates": [least, most] rate of the local solver, "rung": whether most
        trials stop after a quarter of the rounds, "protocol": of the clients' predictions, by
        default "default", "fixed": names that are not tuned, such as "local.lr"}; the last three
        may be left out.
      notes: shown under every table with this run.
    """

    federation: str
    label: str
    title: str
    method: str
    model: str
    rounds: int
    local: dict
    model_params: dict = field(default_factory=dict)
    modules: dict[str, dict | list[dict]] = field(default_factory=dict)
    params: dict = field(default_factory=dict)
    participation: dict = field(default_factory=lambda: {"rate": 1.0, "aggregation": "damped"})
    evaluate_every: int = 1
    weights: str | None = None
    class_weights: tuple[float, ...] | None = None
    precision: str = "float32"
    seeds: tuple[int, ...] = ()
    settled_by: str = ""
    tuning: dict | None = None
    notes: tuple[str, ...] = ()

    def spec(self, seed: int) -> dict:
        """All fields that, together with the shards, determine the trained state and its history.

        `tuning` is not among them: a plan adds the digest of the tuned parameters.
        """
        left = (*SHOWN_ONLY, "tuning")
        return {name: x for name, x in asdict(self).items() if name not in left} | {"seed": seed}

    def describe(self) -> dict:
        """The run as tables and figures need it."""
        return {name: x for name, x in asdict(self).items() if name != "tuning" or x}
