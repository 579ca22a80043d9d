"""Numbers of examples that the owners of a federation have, before any data is downloaded.

The declared partition deals a stand-in for the data set: as many examples, with labels in turn,
owners of equal size, and inputs of one pixel. Sizes that follow from counts alone are exact. Sizes
that depend on labels have the right distribution. Natural clients (writers, roles) have equal
sizes here, unlike the real ones, which are in a manifest.
"""

import inspect
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np

from fedlib.data import build, downloads, sources
from fedlib.data.examples import TEST, TRAIN, Examples
from fedlib.federation import GROUPS, SPLITS, Tokens

CIFAR = (3, 32, 32)
NIST = (1, 28, 28)
COARSE = 20  # coarse labels of CIFAR-100, with equally many classes


class Stock(NamedTuple):
    """The size of a data set.

    Attributes:
      train, test: numbers of examples in its official parts; test 0 means one part only.
      shape: of an input.
      owners: approximate number of natural clients; 0 for none.
      apart: owners of the training part, if no owner is in both parts; 0 otherwise.
      tokens: vocabulary and padding of texts that are cut into tokens.
    """

    train: int
    test: int
    shape: tuple[int, ...] = ()
    owners: int = 0
    apart: int = 0
    tokens: Tokens | None = None


# By data set, or data set and source; data sets without a download are read instead. Sources:
# docs/data.md and the publishers' pages; roles of Shakespeare are counted as in FedEM.
STOCKS = {
    "cifar10": Stock(50_000, 10_000, CIFAR),
    "cifar100": Stock(50_000, 10_000, CIFAR),
    "emnist:all": Stock(697_932, 116_323, NIST),
    "emnist:test": Stock(96_936, 19_387, NIST),
    "femnist:nist": Stock(814_255, 0, NIST, owners=3_597),
    "femnist:leaf": Stock(733_000, 81_000, NIST, owners=3_597),
    "femnist:tff": Stock(671_585, 77_483, NIST, owners=3_400),
    "mnist:mnist": Stock(60_000, 10_000, NIST),
    "mnist:qmnist": Stock(60_000, 10_000, NIST, owners=836, apart=539),
    "sent140": Stock(1_600_000, 359, tokens=Tokens(30_522, 0)),  # BERT's
    "shakespeare": Stock(3_300_000, 900_000, (80,), owners=1_000),
    "yelp": Stock(650_000, 50_000, tokens=Tokens(50_257, 50_256)),  # GPT-2's
}


class Sizes(NamedTuple):
    """A federation without its examples; everything is JSON-able.

    Attributes:
      shape: of an input; labels: shape of an example's label, () for one class.
      dtype: of inputs, by its NumPy name.
      num_classes: L.
      tokens: vocabulary and padding of texts; None for other inputs.
      bounds: the least values of each feature or channel, and the largest, of a user's own data;
        None for other data.
      group: name of each owner's group.
      train, val, test: numbers of examples of each owner.
    """

    shape: list[int]
    labels: list[int]
    dtype: str
    num_classes: int
    tokens: list[int] | None
    bounds: list[list[float]] | None
    group: list[str]
    train: list[int]
    val: list[int]
    test: list[int]


def sizes(spec: dict, raw: str | Path = Path()) -> Sizes:
    """The sizes of a federation as declared, see `fedlib.data.build.build`.

    Args:
      spec: as there.
      raw: the folder data/raw; only a user's own files are read there.

    Raises:
      ConfigError: for an invalid declaration.
      DataError: for invalid own files.
    """
    partition = build.check(spec)
    examples, shape, labels = _stand_in(spec, Path(raw))
    if own := spec["dataset"] == "own":  # read from files, which decide what there is
        build.check_examples(partition, examples, spec)
    dealt = partition.deal(examples, build.seed_of(spec))
    pool = dealt.examples
    axes = (0, *range(2, pool.x.ndim))
    return Sizes(
        shape=list(shape),
        labels=list(labels),
        dtype=str(pool.x.dtype),
        num_classes=pool.num_classes,
        tokens=None if pool.tokens is None else list(map(int, pool.tokens)),
        bounds=[end(axes).tolist() for end in (pool.x.min, pool.x.max)] if own else None,
        group=[GROUPS[number] for number in dealt.group],
        **{name: list(map(len, getattr(dealt, name))) for name in SPLITS},
    )


def of_manifest(manifest: dict, declared: Sizes) -> Sizes:
    """`declared` with the sizes in the manifest of a federation that exists."""
    counts = {name: list(map(int, owned)) for name, owned in manifest["sizes"].items()}
    return declared._replace(**counts, group=list(manifest["group"]))


def _stand_in(spec: dict, raw: Path) -> tuple[Examples, tuple[int, ...], tuple[int, ...]]:
    """Stand-in examples, and the shapes of a real input and of an example's label."""
    dataset, params = spec["dataset"], spec["params"]
    module = sources.load(dataset)
    source = params.get("source") or downloads.table(dataset).default
    key = f"{dataset}:{source}" if source else dataset
    if key not in STOCKS:
        return _generate(module, spec, raw)
    stock = _resize(STOCKS[key], params, module.NUM_CLASSES)
    num, has = stock.train + stock.test, sources.has(dataset, params.get("source"))
    part = np.repeat(np.array([TRAIN, TEST], np.uint8), [stock.train, stock.test])
    takes = inspect.signature(module.read).parameters
    shape = stock.shape or (params.get("length", takes["length"].default),)
    image = "images" in has
    examples = Examples(
        x=np.zeros((num, shape[0], 1, 1), np.uint8) if image else np.zeros((num, 1), np.int32),
        y=np.arange(num) % module.NUM_CLASSES,
        num_classes=module.NUM_CLASSES,
        part=part if "part" in has else None,
        owner=_owners(stock) if "owner" in has else None,
        num_owners=stock.owners,
        coarse=np.arange(100) * COARSE // 100 if "coarse" in has else None,
        tokens=stock.tokens,
    )
    if "owner" in has and len(shape) == 1:  # a label for each character, by number as the inputs
        characters = np.zeros((num, 1), np.uint8)
        return examples._replace(x=characters, y=characters), shape, shape
    return examples, shape, ()


def _generate(
    module: ModuleType, spec: dict, raw: Path
) -> tuple[Examples, tuple[int, ...], tuple[int, ...]]:
    """The examples of a data set without a download, and the shapes of an input and a label.

    Where no size depends on `dim`, the inputs have one number.
    """
    takes = inspect.signature(module.read).parameters
    drawn = {"seed": build.seed_of(spec)} if "seed" in takes else {}
    one = {"dim": 1} if "dim" in takes else {}
    examples = module.read(raw, **spec["params"] | one, **drawn)
    shape = (spec["params"].get("dim", takes["dim"].default),) if one else examples.x.shape[1:]
    return examples, shape, examples.y.shape[1:]


def _resize(stock: Stock, params: dict, num_classes: int) -> Stock:
    """The stock with the examples of each class that the data set's parameters ask for."""
    asked = {part: params.get(f"{part}_per_class") for part in ("train", "test")}
    return stock._replace(**{part: num_classes * each for part, each in asked.items() if each})


def _owners(stock: Stock) -> np.ndarray:
    """Owner of each example; every part is shared equally -> [M] int64"""
    if stock.apart:
        train = np.arange(stock.train) * stock.apart // stock.train
        test = np.arange(stock.test) * (stock.owners - stock.apart) // stock.test
        return np.concatenate([train, stock.apart + test])
    parts = [np.arange(n) * stock.owners // n for n in (stock.train, stock.test) if n]
    return np.concatenate(parts)
