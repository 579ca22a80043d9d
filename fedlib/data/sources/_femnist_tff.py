"""FEMNIST as distributed with TensorFlow Federated.

Source: the HDF5 files of earlier versions of TensorFlow Federated, with the layout in its
  simulation/datasets/emnist.py: 3,400 writers, 671,585 training and 77,483 test examples, every
  writer in both parts. Later versions load an SQLite file with the same counts.
"""

from collections.abc import Mapping
from pathlib import Path

from fedlib import hdf5
from fedlib.data.raw import RawFile
from fedlib.data.sources._femnist_leaf import Labelled, in_both, shades
from fedlib.errors import DataError, brief


def read(raw: Path, files: Mapping[str, RawFile]) -> list[tuple[Labelled, Labelled]]:
    """Training and test examples of each writer with both, the writers sorted.

    A file has the group "examples" with a group for each writer, which has the data sets "pixels"
    [N, 28, 28] float32 and "label" [N] int32.
    """
    names = [files[name].path for name in ("tff_train", "tff_test")]
    paths = [files[name].locate(raw) for name in ("tff_train", "tff_test")]
    try:
        with hdf5.open_file(paths[0]) as first, hdf5.open_file(paths[1]) as second:
            train, test = first["examples"], second["examples"]
            writers = in_both(train, test, *names)
            return [(_examples(train[writer]), _examples(test[writer])) for writer in writers]
    except DataError:
        raise
    except (AttributeError, KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise DataError(
            f"{paths[0]} and {paths[1].name} are not the files of TFF's Federated EMNIST "
            f"({brief(error)}); delete them"
        ) from None


def _examples(group: Mapping) -> Labelled:
    """The images and labels in the group of a writer."""
    return shades(group["pixels"][()], group["label"][()].ravel())
