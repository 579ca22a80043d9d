"""Federations from arrays in memory, checked and packed like a user's own files."""

from collections.abc import Collection, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from fedlib import federation
from fedlib.api import datasets
from fedlib.data import partitions
from fedlib.data.checks import validate
from fedlib.data.draws import divide
from fedlib.data.examples import FEATURES, TEST, TRAIN, VAL, Dealt, Examples
from fedlib.data.sources import own
from fedlib.data.sources._own_files import Content, content
from fedlib.errors import ConfigError, DataError, nearest
from fedlib.federation import GROUPS, SPLITS

TRAIN_FRACTION = 0.8  # of a client's examples, where a partition needs one
Arrays = tuple[Any, Any]  # inputs [N, ...] and labels [N]: anything that NumPy makes arrays of


class Federation(federation.Federation):
    """Examples, and the client that owns each for training, validation or testing.

    Make it by `from_arrays`, `from_datasets` or `fedlib.partition`. Inputs are [N, F],
    [N, H, W] or [N, C, H, W], as arrays, tensors or data frames, and are copied. [N, H, W] gets a
    channel, but not signals [N, C, T] with `signals=True`. Bytes [N, H, W] or [N, C, H, W]
    are pixels and are divided by 255; integers [N, T] of 32 or 64 bits are tokens and stay
    integers; other numbers become float32. A list of N texts becomes tokens [N, length], see
    `fedlib.data.tokenisers`.
    Labels are whole numbers from 0, or words, which are numbered in sorted order: `class_name`.
    """

    @classmethod
    def from_arrays(
        cls,
        train: Sequence[Arrays],
        test: Sequence[Arrays],
        val: Sequence[Arrays] | None = None,
        *,
        unseen: Sequence[int] = (),
        num_classes: int | None = None,
        signals: bool = False,
        length: int | None = None,
        tokeniser: str | Path | None = None,
    ) -> "Federation":
        """A federation of clients that already have their data.

        Args:
          train: inputs and labels of each client.
          test: the same for testing, with the same clients in the same order.
          val: the same for validation, for methods that stop early; None for none. Some clients
            may have no examples here.
          unseen: positions of clients that do not train and are only tested.
          num_classes: L, if some class has no example; None for the number of classes in the data.
          signals: whether inputs [N, C, T] stay what they are, and get no channel.
          length: of texts: tokens of each.
          tokeniser: of texts: a file as tokenizer.json of Hugging Face; None for their own words.

        Raises:
          ConfigError: if a part has not a pair for each client, or no client is left to train.
          DataError: for a client without training or test examples, or invalid arrays; names the
            client.
        """
        parts = {"train": train, **({} if val is None else {"val": val}), "test": test}
        for name, pairs in parts.items():
            _check_list(name, pairs, "a pair for each client")
            for client, pair in enumerate(pairs):
                _check_arrays(f"{name} data of client {client}", pair, 2)
        if len({*map(len, parts.values())}) > 1:
            counts = ", ".join(f"{name} of {len(pairs)}" for name, pairs in parts.items())
            raise ConfigError(f"each part must be of the same clients, got {counts} clients")
        _check_unseen(unseen, len(train))
        contents, of_contents = [], []
        of_part = dict(zip(SPLITS, (TRAIN, VAL, TEST), strict=True))
        for name, pairs in parts.items():
            for client, pair in enumerate(pairs):
                if name == "val" and np.shape(pair[1]) == (0,):
                    continue
                made = _content(f"{name} data of client {client}", *pair, signals=signals)
                contents.append(made._replace(client=np.full(len(made.y), client)))
                of_contents.append(of_part[name])
        examples = _pool(contents, of_contents, num_classes, length, tokeniser)
        group = np.isin(np.arange(len(train)), [*unseen]).astype(np.uint8)
        rows = [examples.of_owner(of_part[name]) for name in SPLITS]
        return cls._pack(Dealt(examples, *rows, group))

    @classmethod
    def from_datasets(
        cls,
        train: Sequence[Any],
        test: Sequence[Any] | None = None,
        *,
        x: str = "image",
        y: str = "label",
        test_fraction: float = 0.2,
        seed: int = 0,
        **more: Any,
    ) -> "Federation":
        """A federation of clients with a data set each.

        Args:
          train: for each client a `torch.utils.data.Dataset` or `DataLoader` of pairs (input,
            label), or a `datasets.Dataset` of Hugging Face. All of it is read once, in its order:
            of a loader that shuffles, other test examples are drawn each time, and an image that
            transforms crop at random keeps its crop.
          test: the same for testing; None draws the test examples from `train`.
          x, y: names of the columns of inputs and labels, of Hugging Face's data sets.
          test_fraction, seed: of that draw, for each client.
          more: further arguments of `from_arrays`, such as `unseen`, or `length` for texts.

        Raises:
          ConfigError: for a part that is no list, a column that does not exist, or data that give
            no pairs.
          DataError: as `from_arrays`.
        """
        for name, part in (("train", train), ("test", train if test is None else test)):
            _check_list(name, part, "a data set for each client")
        train_fraction = round(1 - validate("test_fraction", test_fraction, float), 12)  # 1 - 0.9
        seed = validate("seed", seed, int)
        pairs = [
            [datasets.arrays(data, x, y, f"data of client {i}") for i, data in enumerate(part)]
            for part in (train, test or ())
        ]
        if test is not None:
            return cls.from_arrays(*pairs, **more)
        parts = [(pair, divide(np.arange(len(pair[1])), train_fraction, seed)) for pair in pairs[0]]
        for i, ((_, labels), (trains, tests)) in enumerate(parts):
            if len(labels) and not (len(trains) and len(tests)):
                lack = f"none of {len(labels)} examples {'tests' if len(trains) else 'trains'}"
                why = f"{lack} at test_fraction {test_fraction}"
                raise ConfigError(f"data of client {i}: {why}; leave it out, or give test=")
        taken = ([(x[rows[i]], y[rows[i]]) for (x, y), rows in parts] for i in (0, 1))
        return cls.from_arrays(*taken, **more)

    @classmethod
    def _pack(cls, dealt: Dealt) -> "Federation":
        """The federation that the data stage would make, as this class."""
        packed = dealt.federation()
        return cls(**{field.name: getattr(packed, field.name) for field in fields(packed)})

    def __repr__(self) -> str:
        groups = [f"{len(self.ids(name))} {name}" for name in GROUPS if len(self.ids(name))]
        sizes = [f"{self.split(name).sizes.sum()} {name}" for name in SPLITS]
        lack = f"{self.left_out} left out, who lack training or test examples"
        groups += [lack] * bool(self.left_out)
        return (
            f"Federation: clients {', '.join(groups)}; examples {', '.join(sizes)}; "
            f"{self.num_classes} classes, inputs {list(self.x.shape[1:])} {self.x.dtype}"
        )


def partition(
    x: Any,
    y: Any,
    kind: str,
    *,
    seed: int = 0,
    client: Any = None,
    test: tuple | None = None,
    num_classes: int | None = None,
    signals: bool = False,
    length: int | None = None,
    tokeniser: str | Path | None = None,
    **parameters: Any,
) -> Federation:
    """A data set, dealt to clients in the same way as by the workflow.

    Args:
      x, y: inputs and labels of all examples, see `Federation`.
      kind: "dirichlet", "iid", "pathological", "natural", ...: a name in `fedlib.data.partitions`.
      seed: of every draw.
      client: [N] owner of each example, a number or a name, for kinds with natural clients, which
        keep these.
      test: inputs and labels (and clients) of a test part. Nobody trains on it. Without it, kinds
        that join the parts test on what `train_fraction` leaves, and others on every fourth example
        of each class or client.
      num_classes: L, if some class has no example; None for the number of classes in the data.
      signals, length, tokeniser: as for `Federation.from_arrays`.
      parameters: fields of the kind's class, such as `num_clients` and `alpha`. A `train_fraction`
        that is left out is 0.8, as in pFedMM's settings, if nothing was given to test on.

    Raises:
      ConfigError: for an unknown or invalid kind or parameter.
      DataError: for invalid arrays, or arrays without information that the kind needs.
    """
    if kind not in partitions.PARTITIONS:
        raise ConfigError(f"no partition {kind!r}; {nearest(kind, partitions.PARTITIONS)}")
    if test is None and "train_fraction" in {x.name for x in fields(partitions.load(kind))}:
        parameters = {"train_fraction": TRAIN_FRACTION, **parameters}
    dealer = partitions.parse({"kind": kind, **parameters})
    if test is not None:
        _check_arrays("test", test, 3)
    if "owner" not in dealer.needs and (client is not None or len(test or ()) == 3):
        raise ConfigError(f"partition {kind} deals regardless of clients; leave client out")
    given = {"the data": (x, y, client), **({} if test is None else {"the test part": test})}
    contents = [_content(name, *arrays, signals=signals) for name, arrays in given.items()]
    parts = None if test is None else [TRAIN, TEST]
    examples = _pool(contents, parts, num_classes, length, tokeniser)
    if missing := [FEATURES[need] for need in dealer.needs if need not in examples.features]:
        raise DataError(f"partition {kind} needs {' and '.join(missing)}, which the data lack")
    return Federation._pack(dealer.deal(examples, validate("seed", seed, int)))


def _check_list(name: str, part: Any, of: str) -> None:
    """Raises ConfigError unless this is a list with something; `of` says what it has."""
    if not isinstance(part, Sequence) or not part:
        empty = "an empty " if isinstance(part, Sequence) else ""
        raise ConfigError(f"{name} must be a list, {of}, got {empty}{type(part).__name__}")


def _check_arrays(name: str, given: Any, most: int) -> None:
    """Raises ConfigError unless these are inputs, labels and, as one of three, clients."""
    if not isinstance(given, Sequence) or not 2 <= len(given) <= most:
        values = f"{len(given)} values" if isinstance(given, Sequence) else type(given).__name__
        form = ", ".join(("inputs", "labels", "clients")[:most])
        raise ConfigError(f"{name} must be ({form}), got {values}")


def _check_unseen(unseen: Any, num_clients: int) -> None:
    """Raises ConfigError unless these are positions of clients, and not of all."""
    whole = isinstance(unseen, Collection) and all(isinstance(x, int | np.integer) for x in unseen)
    # Flags would be the positions 0 and 1.
    if not whole or bool in map(type, unseen) or not {*unseen} < {*range(num_clients)}:
        raise ConfigError(
            f"unseen must be some of the clients 0 to {num_clients - 1}, and not all, got "
            f"{unseen!r:.80}"
        )


def _check_order(name: str, *given: Any) -> None:
    """Raises DataError if only some data of pandas were shuffled: they are read by position."""
    first, *others = [x.index for x in given if hasattr(x, "iloc")] or [None]
    if any(not x.equals(first) and {*x} == {*first} for x in others):
        raise DataError(f"{name}: indexes of x, y or client differ in order; give .to_numpy()")


def _content(name: str, x: Any, y: Any, client: Any = None, *, signals: bool) -> Content:
    """Arrays of a part, checked and copied; `content` copies all but bytes."""
    _check_order(name, x, y, client)
    found = content(name, x, y, client, signals=signals)
    return found._replace(x=found.x.copy()) if found.x.dtype == np.uint8 else found


def _pool(contents, parts, num_classes, length, tokeniser) -> Examples:
    """`own.pool`, where pixels become numbers in [0, 1] and other inputs stay as they are."""
    scaling = "unit" if contents[0].x.dtype == np.uint8 else "none"
    how = {"scaling": scaling, "num_classes": num_classes, "length": length, "file": tokeniser}
    return own.pool(contents, parts, **how)
