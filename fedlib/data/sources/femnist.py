"""FEMNIST: the handwritten characters of NIST Special Database 19, with their writers.

Labels are 0-9, A-Z, a-z in this order. The images show dark ink on white paper, 28 x 28 pixels. The
sources have separate files, and none replaces another:

  nist  the two archives of NIST, processed as by LEAF; all characters
  leaf  LEAF's own files: a training and a test part of each writer
  tff   Federated EMNIST of TensorFlow Federated: as leaf, with 3,400 writers

Source: S. Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018 (arXiv:1812.01097); S.
  Reddi et al., "Adaptive Federated Optimization", ICLR 2021.
Deviation: every image is there once. The official code of FedEM repeats the first image of each
  writer except the first writer.
"""

from pathlib import Path

import numpy as np

from fedlib.data import downloads
from fedlib.data.checks import check_choice
from fedlib.data.examples import TEST, TRAIN, Examples, ownership
from fedlib.data.sources import _femnist_leaf, _femnist_nist, _femnist_tff

NUM_CLASSES = 62
HAS = {
    "nist": ("classes", "images", "owner"),
    "leaf": ("classes", "images", "owner", "part"),
    "tff": ("classes", "images", "owner", "part"),
}
SCALINGS = {  # mean and deviation
    "standard": ((0.1307,), (0.3081,)),  # MNIST's; specification of pFedMM, section 3.7
    "unit": ((0.0,), (1.0,)),  # pixels in [0, 1], 1 for paper, as LEAF and IFCA do
    "symmetric": ((0.5,), (0.5,)),  # pixels in [-1, 1]; specification of Fed-MoE, section 4.1
}


def read(raw: Path, *, source: str = "nist", scaling: str = "standard") -> Examples:
    """Images [M, 1, 28, 28] uint8, from the raw files below `raw`; owners are the writers.

    Args:
      raw: folder of raw files.
      source: "nist", "leaf" or "tff", see above. The latter two give only writers with both parts.
      scaling: one of `SCALINGS`.

    Raises:
      ConfigError: for an invalid value.
      DataError: if a raw file is missing or invalid.
    """
    check_choice("scaling", scaling, SCALINGS)
    files = downloads.files("femnist", source)
    if source == "nist":
        x, y, writer = _femnist_nist.read(raw, files)
        names, owner = np.unique(writer, return_inverse=True)
        return Examples(x, y, NUM_CLASSES, *SCALINGS[scaling], owner=owner, num_owners=len(names))
    writers = (_femnist_leaf if source == "leaf" else _femnist_tff).read(raw, files)
    pieces = [piece for both in writers for piece in both]  # training, test, training, test, ...
    sizes = [len(labels) for _, labels in pieces]
    x, y = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
    return Examples(x, y, NUM_CLASSES, *SCALINGS[scaling], **ownership(sizes, TRAIN, TEST))
