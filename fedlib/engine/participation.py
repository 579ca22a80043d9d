"""The clients that take part in a round."""

import numpy as np

from fedlib import streams

SELECTIONS = ("uniform", "residue", "anchored")  # see `sample`


def cohort_size(rate: float, population: int) -> int:
    """Clients in a round: the fraction `rate` of them, rounded down, and at least one."""
    # As a float, 0.29 * 100 is just below 29.
    return max(1, int(rate * population + 1e-9))


def sample(
    population: np.ndarray, rate: float, seed: int, round: int, selection: str = "uniform"
) -> np.ndarray:
    """Clients of one round, without replacement, in ascending order -> [C] int64

    The draw depends on (seed, round) alone, so every method sees the same cohorts.

    Args:
      population: [P] clients that may take part.
      rate: fraction of them, see `cohort_size`.
      seed, round: of the draw.
      selection: "uniform"; "residue", one client of each class of positions modulo C; or
        "anchored", in every round the first floor(C / 2) of the population, and others by chance.

    Raises:
      ValueError: for another selection.
    """
    if selection not in SELECTIONS:
        raise ValueError(f"selection must be one of {SELECTIONS}, got {selection!r}")
    size = cohort_size(rate, len(population))
    if size == len(population):
        return population
    draw = streams.generator(seed, round, "cohort")
    if selection == "residue":
        return np.sort([draw.choice(population[residue::size]) for residue in range(size)])
    anchors, others = np.split(population, [size // 2 if selection == "anchored" else 0])
    drawn = draw.choice(others, size=size - len(anchors), replace=False)
    return np.concatenate([anchors, np.sort(drawn)])
