"""Declarations of papers: federations, runs, tables and figures. Plain data, no behaviour.

Every declaration becomes canonical JSON, which a job gets as its input, and which decides whether
the job must run again. So a field that changes a result belongs in `spec()`, and a field that is
only shown (a title, a note) must stay out of it.
"""

from dataclasses import asdict, dataclass, field
from functools import partial

from fedlib.spec import figures, tables  # noqa: F401 - the kinds, which register themselves
from fedlib.spec.exhibits import PRIMARY, Exhibit, View, declared

SHOWN_ONLY = ("federation", "label", "title", "seeds", "settled_by", "notes")  # not in a run's spec
# A table or figure by the name of its kind.
Table, Figure = partial(declared, "table"), partial(declared, "figure")
SCALES = ("demo", "demo-all", "reduced", "full")


def scale_of(folder: str) -> str:
    """The scale of a folder of results: "demo" of "demo-quick", whose tag is "quick"."""
    return max((x for x in SCALES if f"{folder}-".startswith(f"{x}-")), key=len, default=folder)


@dataclass(frozen=True)
class Data:
    """One federation: a data set, times a partition.

    Attributes:
      name: path-safe identifier, unique in the paper ("emnist").
      dataset: module of `fedlib.data.sources` that reads it ("emnist").
      partition: how it is dealt to clients: {"kind": module of `fedlib.data.partitions`, ...} with
        the fields of that module's class; JSON-able.
      seed: of every draw that the federation needs.
      title: how tables and figures call it ("EMNIST").
      partition_label: short name of the partition for the tidy table ("dirichlet0.4").
      params: keyword arguments of the data set's `read`, such as {"source": "leaf"}; JSON-able.
      family: title shared by federations that differ in one parameter alone ("EMNIST" of
        "EMNIST, alpha = 10"), which sweeps draw in one panel; "" for the title.
      notes: what differs from the paper at this scale; shown under every table.
      per_seed: whether every training seed has a partition of its own, as where a paper's trials
        repeat the whole experiment. The data set is then cut with a seed that is drawn from its
        parameter `seed` and the training seed. False: all seeds share the declared partition.
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
        """What determines the shards; `seed` is the training seed, where `per_seed`."""
        names = ("dataset", "params", "partition", "seed")
        declared = {name: getattr(self, name) for name in names}
        return declared | ({"replicate": seed} if self.per_seed else {})

    def describe(self) -> dict:
        """The federation as tables and figures need it."""
        return {**asdict(self), "family": self.family or self.title}


@dataclass(frozen=True)
class Run:
    """One training run up to its seed.

    Attributes:
      federation: name of the `Data` it trains on.
      label: path-safe name of the run, unique per federation ("fedem", "pfedmm-m5").
      title: how tables and figures call it ("FedEM").
      method, model: registry names (`fedlib.methods`, `fedlib.models`).
      model_params: keyword arguments of the model's `build`. What the data decide, `in_features`
        and `num_classes`, may be left out.
      rounds: communication rounds.
      modules: further architectures that the method needs, by the name of its field: {"gate":
        {"model": "gate_cnn", "params": {...}}}, a registry name and arguments of its `build`; and
        "weights", if it starts from pretrained ones of its own. A list of such where clients differ
        in their architecture: of which client has which, the method decides, by its number modulo
        theirs (`Cohort.in_turn`) unless it says otherwise.
      local: the local solver: {"solver": "sgd", "lr": 0.03, "batch_size": 128, ...}, keyword
        arguments of the dataclass of that name in `fedlib.engine.solvers`.
      params: the method's hyper-parameters (its dataclass fields).
      participation: {"rate": fraction of the seen clients in a round, "aggregation": "damped" or
        "renormalised"}, and whatever else of `fedlib.run.simulate.Course` is not as there.
      evaluate_every: rounds between evaluations; round 0 and the last are always evaluated.
      weights: pretrained weights of `model`, a module of `fedlib.data`; None for random ones.
      class_weights: [L] factors of the training loss by label, see `fedlib.engine.task.Task`, or
        None.
      precision: of matrix products and convolutions, see `fedlib.engine.task.Task`.
      seeds: in place of the paper's, for runs of which more are wanted; () for the paper's.
      settled_by: label of a run of the same federation that does beforehand what the final
        evaluations of several have in common, see `fedlib.methods.base.Method.settle`; "" for
        none. Saves time and changes no number, so the configuration may leave that run out.
      notes: what a reader must know about this run; shown under every table it is in.
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
    notes: tuple[str, ...] = ()

    def spec(self, seed: int) -> dict:
        """What determines the trained state and its history, together with the shards."""
        fields = {name: value for name, value in asdict(self).items() if name not in SHOWN_ONLY}
        return {**fields, "seed": seed}

    def describe(self) -> dict:
        """The run as tables and figures need it."""
        return asdict(self)


@dataclass(frozen=True)
class Paper:
    """Everything a paper's reproduction consists of, at one scale.

    Attributes:
      name: path-safe identifier; title, citation: of the paper.
      scale: one of `SCALES`; scale_note: what this scale is, in one sentence.
      seeds: training seeds of every run that has none of its own.
      data, runs: see `Data` and `Run`.
      tables, figures: by path-safe name.
    """

    name: str
    title: str
    citation: str
    scale: str
    scale_note: str
    seeds: tuple[int, ...]
    data: tuple[Data, ...]
    runs: tuple[Run, ...]
    tables: dict[str, Exhibit]
    figures: dict[str, Exhibit]

    def federation(self, name: str) -> Data:
        """The declared federation of that name; KeyError with the choices otherwise."""
        for data in self.data:
            if data.name == name:
                return data
        known = ", ".join(data.name for data in self.data)
        raise KeyError(f"no federation {name}; {self.name} at scale {self.scale} declares {known}")

    def exhibits_of(self, federation: str, label: str) -> list[Exhibit]:
        """The tables and figures that a run is in."""
        exhibits = [*self.tables.values(), *self.figures.values()]
        return [exhibit for exhibit in exhibits if exhibit.shows(federation, label)]

    def views_of(self, federation: str, label: str) -> set[View]:
        """Views of a run that are shown besides the primary one."""
        about = self.exhibits_of(federation, label)
        return {view for exhibit in about for view in exhibit.views(federation, label)} - {PRIMARY}

    def tested(self, federation: str, label: str) -> list[str]:
        """Whose test examples every method must be able to predict that is shown where a run is.

        Clients that train always have a predictor and unseen ones may have none. A server has test
        examples where clients have not, and what cannot predict them has no number at all.
        """
        about = self.exhibits_of(federation, label)
        shown = View("server") in self.views_of(federation, label)
        return ["server"] if shown or any(exhibit.of_server for exhibit in about) else []

    def seeds_of(self, run: Run) -> tuple[int, ...]:
        """Training seeds of a run."""
        return run.seeds or self.seeds

    def run(self, federation: str, label: str) -> Run:
        """The declared run; KeyError with the choices otherwise."""
        for run in self.runs:
            if (run.federation, run.label) == (federation, label):
                return run
        known = ", ".join(f"{run.federation}/{run.label}" for run in self.runs)
        raise KeyError(
            f"no run {federation}/{label}; {self.name} at scale {self.scale} declares {known}"
        )
