"""Data frames on disk: Parquet files that vouch for themselves, and csv for people."""

import io
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from fedlib import seals
from fedlib.files import atomic

NOTE = "seal"  # in the footer


def write_parquet(frame: pd.DataFrame, path: str | Path, **how: object) -> None:
    """Write a frame without its index as Parquet, atomically and sealed.

    Args:
      how: of `pyarrow.parquet.ParquetWriter`, such as a compression.
    """
    table = pa.Table.from_pandas(frame, preserve_index=False)
    with atomic(path) as temporary:
        with pa.parquet.ParquetWriter(temporary, table.schema, **how) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata({NOTE: seals.BLANK.decode()})
        seals.close(temporary)


def read_parquet(path: str | Path) -> pd.DataFrame:
    """The frame that `write_parquet` wrote.

    Raises:
      DataError: if the file is missing, or not as it was written.
    """
    return pd.read_parquet(io.BytesIO(seals.checked(path)))


def write_csv(frame: pd.DataFrame, path: str | Path) -> None:
    """Write a frame without its index as csv, atomically."""
    with atomic(path) as temporary:
        options = pa.csv.WriteOptions(quoting_style="needed")
        table = pa.Table.from_pandas(frame, preserve_index=False)
        pa.csv.write_csv(table, temporary, options)
