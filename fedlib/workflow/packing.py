"""Short specifications of tables and figures.

A specification goes to its job through a shell, which allows 128 kB. It may contain a hundred runs
that share solvers, networks and notes, so equal values are written once.
"""

from fedlib.errors import ConfigError
from fedlib.files import canonical_json

CONTAINERS = dict | list | tuple


def packed(exhibit: dict) -> dict:
    """The exhibit, with every mapping and list of its runs written once.

    Returns:
      The exhibit with "common", {field of a run: its different values}, where "runs" have the
      number of the value.
    """
    runs = exhibit["runs"]
    names = {name for run in runs for name, value in run.items() if isinstance(value, CONTAINERS)}
    # By their text, as 1, 1.0 and True are equal but are not shown alike.
    common = {name: {canonical_json(run[name]): run[name] for run in runs} for name in names}
    places = {name: {text: i for i, text in enumerate(found)} for name, found in common.items()}
    return {
        **exhibit,
        "common": {name: list(found.values()) for name, found in common.items()},
        "runs": [
            {
                name: places[name][canonical_json(value)] if name in names else value
                for name, value in run.items()
            }
            for run in runs
        ],
    }


def unpacked(exhibit: dict) -> dict:
    """The exhibit that `packed` got.

    Raises:
      ConfigError: if it was not made by `packed`.
    """
    exhibit = dict(exhibit)
    try:
        common = exhibit.pop("common")
        runs = [
            {name: common[name][value] if name in common else value for name, value in run.items()}
            for run in exhibit["runs"]
        ]
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"the specification lacks what its runs have in common: {error}"
        ) from None
    return {**exhibit, "runs": runs}
