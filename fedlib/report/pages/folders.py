"""Folders of results: the numbers of their runs after the last round, and where their files are."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fedlib.errors import ConfigError, DataError
from fedlib.report import exhibits, frames
from fedlib.report.metrics import CLIENT_COLUMNS, PRIMARY

Run = tuple[str, str, str]  # paper, federation, label
RUN = ["paper", "federation", "label"]


@dataclass(frozen=True)
class Results:
    """A folder of results.

    Attributes:
      name: of the folder below results/.
      root: of the checkout.
      paths: where its files are below the root, by name, see `fedlib.workflow.layout`.
      last: its metrics at the last evaluation, see `fedlib.report.metrics`.
    """

    name: str
    root: Path
    paths: Mapping[str, str]
    last: pd.DataFrame

    def seeds(self) -> dict[Run, list[int]]:
        """The seeds of every run."""
        runs = self.last[[*RUN, "seed"]].drop_duplicates()
        return {run: sorted(rows["seed"]) for run, rows in runs.groupby(RUN, sort=False)}

    def clients(self, paper: str) -> pd.DataFrame:
        """The seen clients of a paper after the last round, by the default protocol; maybe none.

        Raises:
          DataError: if the file is damaged.
        """
        file = self.root / self.paths["clients"].format(folder=self.name, paper=paper)
        if not file.exists():
            return pd.DataFrame(columns=CLIENT_COLUMNS)
        return exhibits.pick(
            frames.read_parquet(file, CLIENT_COLUMNS), at="last", **PRIMARY._asdict()
        )

    def path(self, name: str, run: Run, seed: int, **wildcards: str) -> Path:
        """A file of a run, by its name in `paths`."""
        wildcards |= dict(zip(RUN, run, strict=True)) | {"folder": self.name, "seed": str(seed)}
        return self.root / self.paths[name].format(**wildcards)


def read(root: Path, name: str, paths: Mapping[str, str]) -> Results:
    """The folder results/`name` of the checkout in `root`; for `paths` see `Results`.

    Raises:
      ConfigError: if there is no such folder.
      DataError: if it has no metrics, or damaged ones.
    """
    folder = root / paths["results"].format(folder=name)
    beside = [path for path in root.glob(paths["results"].format(folder="*")) if path.is_dir()]
    if name not in (path.name for path in beside):
        there = sorted(path.name for path in beside if (path / "metrics").is_dir())
        raise ConfigError(
            f"there are no results named {name!r}; in results/ there are "
            f"{', '.join(there) or 'none yet'}"
        )
    files = sorted(folder.glob("metrics/*.parquet"))
    found = [frames.read_parquet(file) for file in files if file.suffixes[-2:-1] != [".clients"]]
    if not found:
        raise DataError(f"results/{name} has no metrics yet; the workflow makes them")
    last = [metrics[metrics["at"] == "last"] for metrics in found]
    return Results(name, root, paths, pd.concat(last, ignore_index=True))
