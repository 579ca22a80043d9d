"""The numbers that a paper printed, and the reproduced numbers they correspond to."""

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pandas as pd

from fedlib.errors import DataError

ROW = "published_row"  # column of a table's numbers with the `Value.row` of published ones
COLUMNS = ("exhibit", "dataset", "label", "metric", "value", "unit", "source")
# Units per fraction of 1; a "number" is not a fraction but a count or a learning rate.
UNITS = {"percent": 100.0, "points": 100.0, "number": 1.0}

CURVES = "curves.csv"

# Two of our labels whose published numbers and curves have each other's name, by paper and data
# set: the paper's curve of one is ours of the other.
EXCHANGED = {("pfedmm", "emnist"): ("local", "fedprox")}


class Value(float):
    """A published number as a fraction, or a count; its `row` of the paper's file tells it apart.

    Attributes:
      row: from 0; NaN of a number that is not published.
    """

    row: float

    def __new__(cls, value: float, row: float = np.nan) -> "Value":
        """A number of a row."""
        number = super().__new__(cls, value)
        number.row = row
        return number


NONE = Value(np.nan)


def read(path: str | Path) -> pd.DataFrame:
    """The published numbers in a csv file, as printed, with `COLUMNS`.

    Raises:
      DataError: if the file is missing, or has other columns, unknown units, a missing number or
        a repeated cell.
    """
    try:
        table = pd.read_csv(path, keep_default_na=False)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist") from None
    if tuple(table.columns) != COLUMNS:
        raise DataError(
            f"{path} must have the columns {', '.join(COLUMNS)}, got {', '.join(table.columns)}"
        )
    known = table["unit"].isin(UNITS) & pd.to_numeric(table["value"], errors="coerce").notna()
    wrong = table[~known | table.duplicated([*COLUMNS[:4]])]
    if len(wrong):
        *cell, value, unit, _ = wrong.iloc[0]
        raise DataError(
            f"{path}: {'/'.join(map(str, cell))} must be given once, as a number with the unit "
            f"{' or '.join(UNITS)}, got {value!r} and {unit!r}"
        )
    return table


def curves(published: Path) -> pd.DataFrame | None:
    """The curves of a paper's figures, beside the file of its numbers; None if it has none.

    Returns:
      DataFrame dataset, label, round, accuracy, a fraction.
    """
    file = published.with_name(CURVES)
    if not file.exists():
        return None
    table = pd.read_csv(file)
    return table.assign(accuracy=table["accuracy"] / UNITS["percent"])


def numbers(published: pd.DataFrame, exhibit: str, dataset: str, labels: Collection[str]) -> set:
    """The rows in percent of an exhibit that are about a run on a data set.

    Args:
      labels: of the run; one is in the exhibit's rows, or at the end of its name.
    """
    mine = published[published["exhibit"] == exhibit]
    mine = mine[(mine["dataset"] == dataset) & (mine["unit"] == "percent")]
    whole = exhibit.endswith(tuple(f"-{label}" for label in labels))
    return {*mine.index[mine["label"].isin([*labels]) | whole]}


def difference(first: float, second: float, decimals: int = 1) -> float:
    """`first` minus `second`, fractions, as a reader computes it from the printed percentages.

    Both are first rounded to `decimals` of percent, so that 68.1 - 69.4 is always -1.3.
    """
    return round((to_percent(first, decimals) - to_percent(second, decimals)) / 100, 8)


def off(ours: float, published: float, decimals: int = 1) -> float:
    """Our number, rounded to `decimals` of percent, minus the paper's."""
    return round(to_percent(ours, decimals) / 100 - published, 8)


def to_percent(fraction: float, decimals: int = 1) -> float:
    """A fraction as percent, rounded to `decimals`; halves go away from zero, 40.25 to 40.3.

    A mean within floating-point error of a half counts as a half, so that a number prints the same
    wherever it comes from.
    """
    scaled = abs(fraction) * 10 ** (2 + decimals)
    if np.isnan(scaled):
        return np.nan
    # Adding 0.0 makes 0.0 of -0.0.
    return float(np.copysign(np.floor(scaled + 0.5 + 1e-6) / 10**decimals, fraction)) + 0.0


def fractions(
    published: pd.DataFrame | None, exhibit: str | None, metric: str = "accuracy"
) -> dict[tuple[str, str], Value]:
    """{(dataset, label): number} of one exhibit; empty if none are published."""
    if published is None or exhibit is None:
        return {}
    rows = published[(published["exhibit"] == exhibit) & (published["metric"] == metric)]
    values = (rows["value"] / rows["unit"].map(UNITS).astype(float)).round(8)  # 0.476, not 0.47600…
    numbers = map(Value, values, rows.index)
    return dict(zip(zip(rows["dataset"], rows["label"], strict=True), numbers, strict=True))
