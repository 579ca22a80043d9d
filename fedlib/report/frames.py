"""Data frames on disk: Parquet files with a digest of their content, and csv for people."""

import io
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from fedlib import seals
from fedlib.errors import DataError
from fedlib.files import atomic


def write_parquet(
    frame: pd.DataFrame, path: str | Path, made: seals.Made | None = None, **how: object
) -> None:
    """Write a frame without its index as Parquet, atomically and sealed.

    Args:
      made: origin of the frame, recorded in the footer.
      how: arguments of `pyarrow.parquet.ParquetWriter`, such as a compression.
    """
    table = pa.Table.from_pandas(frame, preserve_index=False)
    with atomic(path) as temporary:
        with pa.parquet.ParquetWriter(temporary, table.schema, **how) as writer:
            writer.write_table(table)
            notes = {"seal": seals.BLANK.decode()} | ({seals.MADE: str(made)} if made else {})
            writer.add_key_value_metadata(notes)
        seals.close(temporary)


def read_parquet(path: str | Path, has: tuple[str, ...] = ()) -> pd.DataFrame:
    """The frame that `write_parquet` wrote.

    Args:
      has: columns of frames of this kind.

    Raises:
      DataError: if the file is missing, changed, or of another kind.
    """
    content = seals.verify(path)
    try:
        frame = pd.read_parquet(io.BytesIO(content))
    except pa.ArrowInvalid:
        raise DataError(f"{path} is another file, not Parquet; delete it and run again") from None
    if lacking := ", ".join(name for name in has if name not in frame):
        raise DataError(
            f"{path} is another file: it has no column {lacking}; delete it and run again"
        )
    return frame


def read_of(path: str | Path, spec: str | None, has: tuple[str, ...]) -> pd.DataFrame:
    """`read_parquet` of the result of a specification.

    Args:
      spec: digest of the specification; None for a frame without one.

    Raises:
      DataError: see `read_parquet`, and if the frame is of another specification.
    """
    frame = read_parquet(path, has)
    made = seals.origin(path)
    seals.check_spec(path, made and made.spec, spec)
    return frame


def write_csv(frame: pd.DataFrame, path: str | Path) -> None:
    """Write a frame without its index as csv, atomically."""
    with atomic(path) as temporary:
        options = pa.csv.WriteOptions(quoting_style="needed")
        pa.csv.write_csv(pa.Table.from_pandas(frame, preserve_index=False), temporary, options)
