"""The probability simplex."""

import torch
from torch import Tensor


def project(v: Tensor, total: float | Tensor = 1.0) -> Tensor:
    """The point nearest to `v` among those that are not negative and sum to `total`: [n] -> [n]

    It is max(v - theta, 0), with the theta that makes the sum right. If the j largest entries stay
    positive, theta is (their sum - total) / j. Any other j gives a smaller value, so theta is the
    maximum over j.

    Source: Duchi et al., "Efficient Projections onto the l1-Ball for Learning in High Dimensions",
    ICML 2008.
    """
    largest_first = v.sort(descending=True).values
    counts = torch.arange(1, len(v) + 1, dtype=v.dtype, device=v.device)
    theta = ((largest_first.cumsum(0) - total) / counts).max()
    return (v - theta).clamp(min=0)
