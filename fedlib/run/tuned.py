"""The specification with which a tuned run is trained: the declared one, with the chosen values.

`fedlib.run.tune` chooses the values. The history of the run contains the result.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlib import seals
from fedlib.errors import DataError
from fedlib.results import RunResult
from fedlib.run_spec import TUNED, of_training

RAN = "ran"  # in the provenance of a history: the specification with which a tuned run was trained
VALUES, TUNING = "values", "tuning"  # of a choice: values by name, digest of the tuning


def merged(spec: Mapping, values: Mapping[str, Any]) -> dict:
    """A run's specification with other values, each by its entry and name: {"local.lr": 0.1}."""
    made = {name: value for name, value in spec.items() if name not in (TUNED, TUNING)}
    for where, value in values.items():
        entry, name = where.split(".")
        made[entry] = {**made[entry], name: value}
    return made


def write_choice(path: Path, values: Mapping[str, Any], tuning: Mapping) -> None:
    """Write the chosen values, and the digest of the tuning's specification."""
    seals.write_json(path, {VALUES: dict(values), TUNING: seals.spec_digest(tuning)})


def to_train(spec: Mapping, choice: Path | None) -> dict:
    """The specification with which to train.

    Args:
      spec: as declared; a tuned run has the digest of its tuning.
      choice: file from `write_choice`; None for a run that is not tuned.

    Raises:
      DataError: if the choice of a tuned run is missing or belongs to another tuning, or if there
        is one for a run that is not tuned.
    """
    if TUNED not in spec:
        if choice:
            raise DataError(f"{choice} is given to a run that is not tuned; leave out --choice")
        return dict(spec)
    if choice is None:
        raise DataError("the run is tuned: give what was chosen for it as --choice")
    found = seals.read_json(choice, has=(VALUES, TUNING))
    seals.check_spec(choice, found[TUNING], spec[TUNED])
    return merged(spec, found[VALUES])


def trained(spec: Mapping, history: Path) -> dict:
    """The specification with which the run of a history was trained.

    Args:
      spec: of its evaluation, as declared.

    Raises:
      DataError: if the history of a tuned run does not contain it.
    """
    if TUNED not in spec:
        return of_training(spec)
    ran = RunResult.load(history).provenance.get(RAN)
    if ran is None:
        raise DataError(f"{history} does not say what was chosen for its run; train it again")
    return ran
