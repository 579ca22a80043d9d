"""Declarations of federations and runs."""

from dataclasses import asdict, dataclass, field, fields
from typing import NamedTuple

from fedlib.run_spec import Recipe, RunSpec


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
class Run(Recipe):
    """One training run, for any seed.

    Attributes:
      federation: name of the `Data` it trains on.
      label: path-safe name of the run, unique per federation ("fedem", "pfedmm-m5").
      title: its name in tables and figures ("FedEM").
      seeds: training seeds in place of the paper's, for example more of them; () for the paper's.
      tuning: None, or how to tune its learning rate and its method's `SPACE` before training: the
        fields of a `fedlib.run_spec.Tuning`; "rung", "protocol", "fixed" and "per_seed" may be left
        out.
      notes: shown under every table with this run.
    """

    federation: str
    label: str
    title: str
    seeds: tuple[int, ...] = ()
    tuning: dict | None = None
    notes: tuple[str, ...] = ()

    def spec(self, seed: int, data: str = "") -> RunSpec:
        """What determines the trained state and its history; `data` as in `RunSpec`.

        `tuning` is not among it: a plan adds the digest of the tuned parameters.
        """
        own = {x.name: getattr(self, x.name) for x in fields(Recipe)}
        return RunSpec(**own, seed=seed, data=data)

    def describe(self) -> dict:
        """The run as tables and figures need it."""
        return {name: x for name, x in asdict(self).items() if name != "tuning" or x}
