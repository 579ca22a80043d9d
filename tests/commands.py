"""The command of a job as its rule makes it, without Snakemake."""

import ast
import re
import shlex
from types import SimpleNamespace

from workflow import ROOT, SMOKE

from fedlib.workflow.config import read
from fedlib.workflow.plan import Plan
from fedlib.workflow.shell import option

RULES = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("rules/*.smk"))
# The text of each rule's command, by its stage.
COMMANDS = {
    rule: ast.literal_eval(f"({words})")
    for rule, words in re.findall(
        r"^rule (\w+):\n(?:(?!^rule ).*\n)*?    shell:\n((?: {8}\".*\n)+)", RULES, re.MULTILINE
    )
}
# What a job needs only because it was planned earlier, and because others run beside it.
PLANNED = (" --code {params.code}", " --gpus {resources.gpu}", " >> {log:q} 2>&1")
FOLDERS = ("checkpoints", "tuning", "runs", "results", "figures")
ONLY_OUTPUT = {"download": "receipt", "evaluate": "evaluation"}


def smoke_plan(*words: str) -> Plan:
    """The plan of the tests' configuration, and of key=value `words`."""
    return Plan(read([ROOT / "config.yaml", ROOT / SMOKE], words))


def command(plan: Plan, stage: str, **wildcards: object) -> str:
    """Shell command of one job; `write_specifications` of the plan writes what it may read."""
    files = _Files(plan, stage, wildcards)
    optional = _optional(plan, stage, wildcards)
    text = COMMANDS[stage]
    absent = [f" {{resources.{name}}}" for name, words in optional.items() if not words]
    for words in (*PLANNED, *absent):
        text = text.replace(words, "")
    resources = {name: _Word(plan.config[name]) for name in ("raw", "device", "executor")}
    resources["scripts"] = _Word("scripts")
    resources |= {name: getattr(files, name) for name in FOLDERS}
    return text.format(
        wildcards=SimpleNamespace(**wildcards),
        params=SimpleNamespace(spec=_Word(plan.spec_option(stage, **wildcards))),
        input=files,
        output=files,
        resources=SimpleNamespace(**resources, **optional),
    )


def _optional(plan: Plan, stage: str, wildcards: dict) -> dict[str, str]:
    """Options of a command that not every job of the stage has, as text."""
    found = {"mirror": [plan.config["mirror"] or ""]}
    if stage in ("tune", "train", "evaluate"):
        found |= {"weights": plan.weights(**wildcards), "choice": plan.choice(**wildcards)}
    elif stage in ("table", "figure"):
        found["published"] = plan.published_files(stage, wildcards["paper"], wildcards[stage])
    return {name: option(name, *values) for name, values in found.items()}


class _Word(str):
    """A text that ":q" quotes for a shell, as Snakemake does."""

    def __format__(self, specification: str) -> str:
        return shlex.quote(self) if specification == "q" else str(self)


class _Files:
    """The files of a job by their names in `PATHS`; formatted, its only output."""

    def __init__(self, plan: Plan, stage: str, wildcards: dict):
        self._plan, self._stage, self._wildcards = plan, stage, wildcards

    def __getattr__(self, name: str) -> _Word:
        return _Word(self._plan.path(name, **self._wildcards))

    def __format__(self, specification: str) -> str:
        return format(getattr(self, ONLY_OUTPUT[self._stage]), specification)
