"""A run's curves as an event file, which TensorBoard shows.

Every number comes from `fedlib.report.metrics.run_rows`, so that TensorBoard, tables and figures
cannot disagree. Tags are named by the columns of the tidy metrics, and TensorBoard makes a section
of their first part:

    seen/default/test/accuracy    group, protocol, split and metric, over rounds
    unseen/carry/train/loss       a view of the final evaluation only: one point, at the last round
    all/bytes_down, all/train_loss, and other costs of training
    seen/pi_0                     histogram over the seen clients of their weights of one expert
    specification                 the run's, as text

Scalars have 32 bits, because TensorBoard's fast loader shows none that have 64; the numbers behind
tables are in the tidy metrics, in full.

Source: the event files of TensorBoard 2 (https://www.tensorflow.org/tensorboard), written with its
  own protocol buffers and record writer.
Deviation: the time of an event is its round, in seconds after 1970 began, so that the same run
  gives the same bytes. TensorBoard's axes of time therefore show rounds.
"""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.histogram.summary_v2 import histogram_pb
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from fedlib.errors import DataError
from fedlib.files import atomic
from fedlib.report.metrics import PRIMARY, run_rows
from fedlib.results import RunResult
from fedlib.run_spec import of_training

VERSION = "brain.Event:2"  # of the format; the first record of every event file says it
SPECIFICATION = "specification"  # tag of the text


def write(history: RunResult, evaluation: RunResult, path: str | Path) -> int:
    """Write the event file of one run, atomically; the number of scalars in it.

    Raises:
      DataError: if the evaluation is not one of the run that the history tells of.
    """
    rows = scalars(history, evaluation)
    buffer = io.BytesIO()
    writer = RecordWriter(buffer)
    for event in _events(rows, history, evaluation):
        writer.write(event.SerializeToString(deterministic=True))
    with atomic(path) as temporary:
        temporary.write_bytes(buffer.getvalue())
    return len(rows)


def scalars(history: RunResult, evaluation: RunResult) -> pd.DataFrame:
    """Every scalar of a run -> DataFrame with the columns tag, round and value, rounds ascending.

    Raises:
      DataError: if the evaluation is not one of the run that the history tells of.
    """
    evaluated = of_training(evaluation.spec)
    if history.spec != evaluated:
        raise DataError(
            "history and evaluation are of different run specifications, "
            f"{history.spec} and {evaluated}; evaluate again"
        )
    rows = run_rows(history, evaluation)
    parts = rows[["group", "protocol", "split", "metric"]].itertuples(index=False)
    rows = rows.assign(tag=["/".join(filter(None, part)) for part in parts])
    curves = rows[rows["at"] == "round"]
    last = rows[(rows["at"] == "last") & ~rows["tag"].isin(curves["tag"])]
    shown = pd.concat([curves, last])[["tag", "round", "value"]]
    return shown.sort_values("round", kind="stable", ignore_index=True)


def _events(rows: pd.DataFrame, history: RunResult, evaluation: RunResult) -> Iterator[Event]:
    """The version, then one event per round; the text is in an event before the first round."""
    yield Event(wall_time=0, file_version=VERSION)
    text = _as_markdown(history.spec)
    yield Event(wall_time=0, step=0, summary=text_pb(SPECIFICATION, text))
    for number, block in rows.groupby("round"):
        values = [v for row in block.itertuples() for v in scalar_pb(row.tag, row.value).value]
        yield Event(wall_time=number, step=number, summary=Summary(value=values))
    last = int(history.round[-1])
    values = list(_histograms(history, evaluation))
    if values:
        yield Event(wall_time=last, step=last, summary=Summary(value=values))


def _histograms(history: RunResult, evaluation: RunResult) -> Iterator[Summary.Value]:
    """One histogram per expert: its weight in each seen client's mixture, after the last round."""
    pi = evaluation.diagnostics.get("pi", history.diagnostics.get("pi"))
    if pi is None or PRIMARY not in history.scores:
        return
    clients = history.scores[PRIMARY].clients
    if pi.ndim != 2 or clients.max() >= len(pi):
        raise DataError(
            f"mixture weights of shape {pi.shape} do not cover client {clients.max()}; "
            "delete the run's files and run again"
        )
    for expert, weights in enumerate(pi[clients].T):
        yield from histogram_pb(f"{PRIMARY.group}/pi_{expert}", weights).value


def _as_markdown(spec: dict) -> str:
    """`spec` as indented JSON, which four spaces before each line make a block of code."""
    lines = json.dumps(spec, indent=2, sort_keys=True).splitlines()
    return "\n".join("    " + line for line in lines)
