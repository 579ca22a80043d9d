"""Requests for the costs of runs, and the facts on which estimates depend."""

import importlib.metadata
import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fedlib import files, seals
from fedlib.environment import environment, memory
from fedlib.run_spec import is_file, run_roots

ROOT = Path(__file__).resolve().parents[2]
# Cached values depend on the text of these modules: an edit may change their form or meaning.
SIZES = ROOT / "fedlib/data/sizes.py"
COSTS = ROOT / "fedlib/forecast/costs.py"
REHEARSAL = [COSTS.with_name(f"{name}.py") for name in ("counting", "rehearsal", "rehearsed")]


class Request(NamedTuple):
    """A run, and settings for the estimate of its cost.

    Attributes:
      name: "paper/federation/label".
      spec: of its evaluation, see `fedlib.run_spec.of_training`.
      data: specification of its federation.
      manifest: of its federation, if it has been cut.
      device, executor: from the configuration.
    """

    name: str
    spec: dict
    data: dict
    manifest: Path
    device: str
    executor: str

    def key(self) -> str:
        """Digest of all facts on which the estimate depends.

        They include the code of the method and its models, but not of modules that these import: an
        edit of the engine hardly changes the operations.
        """
        facts = {
            "spec": {**self.spec, "seed": 0, "data": ""},
            "data": self.data,
            "cut": files.digest(self.manifest) if self.manifest.exists() else None,
            "code": [*code_of(self.spec), *map(digest, (SIZES, *REHEARSAL, COSTS))],
            "wanted": [self.device, self.executor],
            "machine": _machine(),
        }
        return seals.spec_digest(facts)[:16]


@cache
def _machine() -> list:
    return [environment()["cpu"], importlib.metadata.version("torch"), memory(), os.cpu_count()]


def code_of(spec: dict) -> list[str]:
    """Digests of the modules of a run's method and models."""
    names = run_roots("train", spec)[1:]
    return [digest(ROOT / (n if is_file(n) else f"{n.replace('.', '/')}.py")) for n in names]


@cache
def digest(path: Path) -> str:
    """Digest of a file of code; each file is read once."""
    return files.digest(path)
