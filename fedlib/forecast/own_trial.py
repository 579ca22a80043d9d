"""The trial of a user's method (`fedlib.run.trial`) before there are data, on made-up examples."""

from typing import Any

from fedlib.data.sizes import sizes
from fedlib.engine.executors import Loop
from fedlib.errors import ConfigError, DataError, of_file
from fedlib.forecast import made_up
from fedlib.forecast.estimates import ROOT
from fedlib.run import fitting, trial

TRAIN, SCORED, CLIENTS = (10, 7), 4, 3  # examples of clients in turn, others of each, clients


def check(spec: dict, built: Any, data: dict, raw: str) -> None:
    """Try a run of a user's method.

    Args:
      spec: from `fedlib.spec.Run.spec`.
      built: the method, without values. A very large model is not tried before its job.
      data: specification of its federation.
      raw: the folder data/raw, see `fedlib.data.sizes.sizes`.

    Raises:
      ConfigError: for what `fedlib.run.trial.check` refuses, and for errors in the user's file.
    """
    if any(task.is_heavy for task in fitting.tasks_of(built)):
        return
    try:
        owned = sizes(data, raw)
    except (ConfigError, DataError):  # told by the check of the federation, or by its job
        return
    spec = fitting.completed(spec, fitting.Shapes(tuple(owned.shape), owned.num_classes))
    try:
        few = made_up.simulation(spec, owned, Loop(), train=TRAIN, scored=SCORED, clients=CLIENTS)
        trial.check(few)
    except (ConfigError, DataError):
        raise
    except Exception as error:  # a user's code may raise anything
        raise of_file(error, str(ROOT / spec["method"]), spec["method"]) from error
