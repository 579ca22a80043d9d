"""Who does the work items; a module for each, with `run(item, setting, cores, clock) -> versions`.

Each runs in a process of its own: `python -m benchmarks.measure ITEM CONTENDER`. Only the module
that is asked for is imported, because peers have environments of their own.
"""

from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True)
class Contender:
    """Somebody who can do work items.

    Attributes:
      module: of this package.
      title: how the tables call it.
      settings: ways of doing it, the best of which counts; ("",) for one way.
      packages: whose versions matter.
      lends: of peers, whether it computes with the project's PyTorch.
      models: of peers, what it can train; None is everything.
    """

    module: str
    title: str
    settings: tuple[str, ...] = ("",)
    packages: tuple[str, ...] = ("torch",)
    lends: bool = True
    models: tuple[str, ...] | None = None

    def load(self):
        """The module; importing it needs the contender's environment."""
        return import_module(f"{__name__}.{self.module}")


OWN = {
    "ours": Contender("ours", "this engine", ("loop", "traced", "batched")),
    "pfedmm": Contender("ours", "this engine, pFedMM with 3 heads", ("loop",)),
    "plain": Contender("plain", "plain loop"),
    "fedem": Contender("fedem", "FedEM's loop, expert by expert"),
    "floor": Contender("floor", "centralised floor"),
}
PEERS = {
    "pfl": Contender("pfl_research", "pfl-research", ("threads", "processes"), ("pfl", "torch")),
    "flwr": Contender("flower", "Flower and Ray", packages=("flwr", "ray", "torch")),
    "fedjax": Contender(
        "fedjax_peer",
        "FedJAX",
        packages=("fedjax", "jax"),
        lends=False,
        models=("emnist_cnn", "mlp", "linear", "lenet5"),  # it has no batch statistics
    ),
}
CONTENDERS = OWN | PEERS
