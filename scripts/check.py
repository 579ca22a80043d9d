"""Build the methods, models and partitions of a plan, and try what needs it, without data.

Reads [[stage, specification], ...] as JSON from its input, where the stage is train, tune or
partition, and writes a list with an `Answer` for each.
"""

import contextlib
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedlib.errors import ConfigError
from fedlib.run_spec import TUNING, RunSpec, is_file
from fedlib.workflow import command, own_files, provenance

TRIED: list[str] = []  # users' methods
WRONG = ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError
PASSING = ImportError, MemoryError, OSError  # reasons that may go away without an edit


class Answer(NamedTuple):
    """What is wrong with a specification, as one line ("" if nothing), and whether that lasts.

    It does not last if it may go away without an edit, such as a missing file. Without a library
    that is missing nothing is checked.
    """

    wrong: str
    lasts: bool


def main() -> None:
    """Read, build, write."""
    warnings.filterwarnings("ignore", "Initializing zero-element", UserWarning)  # it is refused
    with contextlib.redirect_stdout(sys.stderr):  # for what users' methods print
        answers = [_answer(*piece) for piece in json.load(sys.stdin)]
    json.dump(answers, sys.stdout)


def _answer(stage: str, spec: dict) -> Answer:
    """Check a specification."""
    try:
        _check(stage)(spec)
    except ModuleNotFoundError as error:
        if (error.name or "fedlib").partition(".")[0] == "fedlib":
            raise
        print(f"{stage}: not checked before its job starts, without {error.name}", file=sys.stderr)
        return Answer("", lasts=False)
    except WRONG as error:
        told = " ".join(str(error).split()) or type(error).__name__
        return Answer(told, lasts=not isinstance(error.__cause__, PASSING))
    except SystemExit:
        return Answer("its method must not call sys.exit", lasts=True)
    return Answer("", lasts=True)


def _check(stage: str) -> Callable[[dict], object]:
    """The function that checks specifications of a stage; its libraries take seconds to import."""
    if stage in ("train", "tune"):
        return _check_run
    from fedlib.data.build import check

    return check


def _check_run(spec: dict) -> None:
    """Build a run, and try it if need be: "trial" has what that takes."""
    from fedlib.forecast import own_trial
    from fedlib.run.check import check

    how, groups = spec.pop("trial"), spec.pop("groups")
    run = RunSpec.from_json(spec, *{TUNING} & spec.keys())
    own_trial.check(run, check(run, groups), how["data"], how["raw"], how["executor"])
    if is_file(run.method):
        TRIED.append(run.method)
        covered = provenance.closure(*TRIED)
        if extra := sorted(own_files.loaded_files(provenance.ROOT, covered)):
            raise ConfigError(
                f"method {run.method} imports {', '.join(extra)} by a computed name, so that "
                "an edit of it would repeat nothing; name it in an import statement"
            )


if __name__ == "__main__":
    sys.exit(command.run(main))
