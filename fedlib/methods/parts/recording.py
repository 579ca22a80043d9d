"""Gate weights and representations of test examples, in the shapes that evaluations keep.

For `Method.measure`. The figures `expert_weights` and `representations` (t-SNE) of
`fedlib.report.figures` show them.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedlib.engine.cohort import Cohort

BINS = 20  # of a histogram over [0, 1]
CLIENTS = 5  # the first clients, whose examples are kept


def in_bins(values: Tensor) -> Tensor:
    """A 1 in the bin of each value in [0, 1], 1.0 in the last bin: [B] -> [B, BINS]"""
    return one_hot((values * BINS).long().clamp(0, BINS - 1), BINS).to(values.dtype)


def some_examples(vectors: Tensor, cohort: Cohort, number: int) -> dict[str, Tensor]:
    """Vectors and classes of some test examples of the first `CLIENTS`, NaN for other clients.

    The examples are evenly spaced in a client's test part, which may be sorted by class.

    Args:
      vectors: [C, N, K, F] of all test examples, as `Cohort.score` gives them.
      cohort: of these clients.
      number: n, examples per client; a client with fewer has all its examples, then NaN.

    Returns:
      "representations" [C, n, K, F] and "representation_labels" [C, n].
    """
    federation = cohort.data.federation
    kept = vectors.new_full((len(vectors), number, *vectors.shape[2:]), torch.nan)
    labels = vectors.new_full((len(vectors), number), torch.nan)
    for place, client in enumerate(cohort.host_ids.tolist()):
        rows = federation.split("test").of(client)
        if client >= CLIENTS or not len(rows):
            continue
        chosen = np.unique(np.linspace(0, len(rows) - 1, number).round().astype(np.int64))
        kept[place, : len(chosen)] = vectors[place, torch.from_numpy(chosen).to(vectors.device)]
        labels[place, : len(chosen)] = torch.from_numpy(federation.y[rows[chosen]]).to(labels)
    return {"representations": kept, "representation_labels": labels}
