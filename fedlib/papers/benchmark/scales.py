"""The federations of the benchmark at every scale."""

from fedlib.papers._frame import Scale
from fedlib.papers.benchmark import federations
from fedlib.papers.benchmark.settings import IN_WORLDS, SIZES, Setting, able, tuning
from fedlib.spec import Data

SEED = 20261123  # of all draws; each training seed has its own worlds
CLIENTS = {"num_clients": 50, "val_examples": 15, "test_examples": 200}  # a fifth of them unseen
ROUNDS = 40
PHASE_METHODS = ("local", "fedavg", "fedavg-plus", "ifca", "fedem")
WORLDS = ("own", "one", "clusters", "mixtures", "regions", "priors", "heads")  # all of the source


def demo() -> Scale:
    """Four cells of the phase diagram and two federations of digits."""
    few = ("local", "fedavg", "fedem")
    return (
        "demo: small, with few rounds and three trials to tune in; shows that everything runs.",
        (1,),
        (
            *(_cell(n, delta, few, 3, rounds=10) for delta in (0.0, 1.0) for n in (16, 128)),
            *federations.demo(),
        ),
    )


def reduced() -> Scale:
    """All worlds, and a phase diagram of 16 cells."""
    return (
        "reduced: twelve trials to tune every method in.",
        (1, 2, 3),
        _whole(12, (0.0, 0.1, 0.3, 1.0), (8, 32, 128, 512), again=True),
    )


def full() -> Scale:
    """The same with more cells, trials and seeds."""
    return (
        "full: 32 trials to tune every method in.",
        tuple(range(1, 11)),
        _whole(32, (0.0, 0.03, 0.1, 0.3, 1.0), (8, 32, 128, 512, 2048)),
    )


def _whole(trials: int, deltas: tuple, sizes: tuple, again: bool = False) -> tuple[Setting, ...]:
    """All worlds, a phase diagram of these divergences and sizes, and all federations."""
    return (
        *(_world(name, trials) for name in WORLDS),
        *(_cell(n, delta, PHASE_METHODS, trials) for delta in deltas for n in sizes),
        *federations.all_of_them(trials, again),
    )


def _world(name: str, trials: int) -> Setting:
    """A world with all methods that can run in it."""
    model = {"model": "mlp", "model_params": {**SIZES, "hidden": 16}} if name == "heads" else {}
    # The name of the world with true clusters is "clusters".
    labels = able(IN_WORLDS, "body" if model else "", name)
    alpha = 0.3 if name == "priors" else 0.1
    data = _data(name, name, {"world": name, "train_examples": 60, "alpha": alpha})
    how = {"rounds": ROUNDS, "tuning": tuning(trials), **model}
    return Setting(data=data, labels=labels, roles=("worlds",), **how)


def _cell(
    n: int, delta: float, labels: tuple[str, ...], trials: int, rounds: int = ROUNDS
) -> Setting:
    """A cell of the phase diagram: `n` training examples, concepts with divergence `delta`."""
    params = {"world": "mixtures", "train_examples": n, "divergence": delta, "alpha": 0.1}
    title = f"mixtures, {n} examples, divergence {delta:g}"
    data = _data(f"n{n}-d{delta:g}", title, params, family="Phase diagram")
    how = {"rounds": rounds, "tuning": tuning(trials)}
    return Setting(data=data, labels=labels, roles=("phase",), **how)


def _data(name: str, title: str, params: dict, family: str = "") -> Data:
    return Data(
        name=name,
        dataset="worlds",
        params={**CLIENTS, **params},
        partition={"kind": "natural", "unseen_fraction": 0.2},
        seed=SEED,
        title=title,
        partition_label=params["world"],
        family=family,
        notes=("Made up by this project.",),
        per_seed=True,
    )
