"""Options of the rules' commands, the names of their jobs, and the files of long specifications."""

import shlex
from pathlib import Path

from fedlib.errors import ConfigError
from fedlib.files import write_text
from fedlib.workflow.layout import STAGES
from fedlib.workflow.plan import LONG, Plan

OF_SEEDS = {"partition": "replicate", "tune": "for_seed"}  # stages whose jobs may be of one seed


def option(name: str, *values: str) -> str:
    """The words --name value for a command line; "" without a value."""
    return shlex.join([f"--{name}", *values]) if any(values) else ""


def job(stage: str = "", name: str = "") -> tuple[str, dict]:
    """The (stage, wildcards) of a job by name: "train", "pfedmm/digits/fedem/seed0".

    Raises:
      ConfigError: for an unknown stage, or a name of none of its jobs.
    """
    if stage not in STAGES:
        raise ConfigError(f"no stage {stage!r}; there are {', '.join(STAGES)}")
    parts = name.split("/") if name else []
    names = STAGES[stage]
    if stage in OF_SEEDS and len(parts) == len(names) + 1:
        names = (*names, "seed")
    wildcards = dict(zip(names, parts, strict=False))
    if "seed" in wildcards:
        wildcards["seed"] = wildcards["seed"].removeprefix("seed")
    if len(parts) != len(names) or not wildcards.get("seed", "0").isdecimal():
        pattern = "/".join(f"seed{w.upper()}" if w == "seed" else w.upper() for w in names)
        raise ConfigError(f"a {stage} job is named {pattern or 'by nothing'}, got {name!r}")
    if stage in OF_SEEDS and "seed" in wildcards:
        wildcards[OF_SEEDS[stage]] = f"/seed{wildcards.pop('seed')}"
    return stage, wildcards


def write_specifications(plan: Plan, root: Path = Path()) -> None:
    """Write the files with the specifications of all jobs of `LONG` stages."""
    for stage, wildcards in plan.jobs():
        if stage in LONG:
            path = root / plan.given(stage, **wildcards).removeprefix("@")
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                write_text(path, plan.spec(stage, **wildcards))
