"""Change one thing in a finished run: exactly the right jobs run again."""

import ast
import os
import shutil
from pathlib import Path

import commands
import pytest
import workflow
import yaml
from dry_runs import names, would_run

from fedlib.workflow import freshness
from fedlib.workflow.layout import RESULTS, STAGES
from fedlib.workflow.plan import SHOWING, Plan

pytestmark = pytest.mark.slow

PAPER = "pfedmm"
DECLARATION = f"fedlib/papers/{PAPER}/__init__.py"
PLAN = commands.smoke_plan()


RUNS = ("train", "evaluate")
FEDEM = names(PLAN, *RUNS, label="fedem") | names(PLAN, *SHOWING)


def append(folder, file: str, text: str) -> None:
    with open(folder / file, "a", encoding="utf-8") as target:
        target.write(text)


def redeclare(folder, change: str) -> None:
    """Change fields of the declared paper; `change` may use `paper` and `_replace`."""
    append(
        folder,
        DECLARATION,
        f"""
from dataclasses import replace as _replace

_declare = declare


def declare(scale):
    paper = _declare(scale)
    return _replace(paper, {change})
""",
    )


# --- Nothing --------------------------------------------------------------------------------------


def test_edits_that_change_no_result_repeat_nothing(folder):
    for file in [*folder.glob("fedlib/**/*.py"), *folder.glob("scripts/*.py")]:
        reformatted = ast.unparse(ast.parse(file.read_text()))
        file.write_text(f'"""Another docstring."""\n# and a comment\n{reformatted}')
    for file in ("Snakefile", "rules/train.smk", "rules/common.smk", "envs/train.yaml"):
        append(folder, file, "\n# a comment\n")
    for kind in ("models/mlp", "data/sources/digits", "data/partitions/dirichlet"):  # for no run
        file = folder / f"fedlib/{kind}.py"
        shutil.copy(file, file.with_name("brand_new.py"))
    unused = ["methods/local", "engine/gossip", "methods/parts/tables", "data/partitions/hsu"]
    plumbing = ["errors", "files", "locks", "seals", "environment", "run/progress", "workflow/plan"]
    for module in unused + plumbing:
        append(folder, f"fedlib/{module}.py", "\nX = 1\n")
    # How to compute, and the order of the configuration.
    given = yaml.safe_load((folder / workflow.SMOKE).read_text())
    (folder / workflow.SMOKE).write_text(yaml.safe_dump(dict(reversed(given.items()))))
    how = "executor=loop", "device=auto", f"mirror={folder}"
    assert would_run(folder, "--config", *how) == set()


def test_files_that_were_touched_moved_or_deleted_to_save_space_repeat_nothing(
    folder, tmp_path_factory
):
    for part in workflow.PARTS:
        for file in [folder / part, *(folder / part).rglob("*")]:
            os.utime(file)
    for file in (*PLAN.files("receipt"), *PLAN.files("manifest")):
        os.utime(folder / file)
    (folder / PLAN.path("shards", paper=PAPER, federation="digits")).unlink()
    moved = tmp_path_factory.mktemp("elsewhere") / "with a space"
    shutil.move(folder, moved)
    assert would_run(moved) == set()


# --- Code -----------------------------------------------------------------------------------------


# Of which jobs can reach a module, `test_edits.py` asks the plan.
@pytest.mark.parametrize(
    "file, again",
    [("fedlib/methods/fedem.py", FEDEM), ("scripts/download.py", names(PLAN, *STAGES))],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_module_repeats_the_jobs_that_can_reach_it(folder, file, again):
    append(folder, file, "\nX = 1\n")
    assert would_run(folder) == again


def test_what_is_shown_is_made_again_where_it_changes(folder):
    """A template; a kind of exhibit, a caption and a deleted table; a published number."""
    append(folder, "fedlib/report/pages/templates/report.css", "\nbody { color: red; }\n")
    assert would_run(folder) == names(PLAN, "report")
    expected = names(PLAN, "report")
    for stage in ("table", "figure"):
        exhibits = getattr(PLAN.papers[PAPER], stage + "s")
        module = exhibits.get("criteria", next(iter(exhibits.values()))).drawn_by
        append(folder, f"fedlib/report/{stage}s/{module}.py", "\nX = 1\n")
        mine = {key for key, one in exhibits.items() if one.drawn_by == module}
        expected |= {f"{stage} {PAPER}/{key}" for key in mine}
    shown = {name for name in expected if not name.startswith("report")}
    others = [key for key in PLAN.papers[PAPER].tables if f"table {PAPER}/{key}" not in shown]
    captioned, deleted, *_ = (x for x in others if not PLAN.published_files("table", PAPER, x))
    new = f"_replace(paper.tables[{captioned!r}], caption='New.')"
    redeclare(folder, f"tables={{**paper.tables, {captioned!r}: {new}}}")
    (folder / PLAN.path("table_tex", paper=PAPER, table=deleted)).unlink()
    expected |= {f"table {PAPER}/{key}" for key in (captioned, deleted)}
    assert would_run(folder) == expected
    numbers = f"fedlib/papers/{PAPER}/published.csv"
    append(folder, numbers, "main,x,y,accuracy,1.0,percent,Table 0\n")
    every = [(stage, PAPER, key) for stage, key, _ in PLAN.papers[PAPER].exhibits()]
    of_numbers = {f"{x[0]} {PAPER}/{x[2]}" for x in every if PLAN.published_files(*x)}
    assert of_numbers - expected
    assert would_run(folder) == expected | of_numbers


# --- Configuration --------------------------------------------------------------------------------


def test_a_selection_trains_what_is_new_and_repeats_what_shows_it(folder):
    assert would_run(folder, "--config", "labels=fedem") == set()
    more = Plan(PLAN.config | {"seeds": [0, 1, 2]})
    expected = names(more, *RUNS, seed=2) | names(more, *SHOWING)
    assert would_run(folder, "--config", "seeds=[0,1,2]") == expected


def test_an_edit_repeats_the_selected_runs_alone_and_the_others_stay_in_tables(folder):
    append(folder, "fedlib/engine/cohort.py", "\nEDITED = 1\n")
    runs = Plan(PLAN.config | {"labels": ["fedem"]})
    assert would_run(folder, "--config", "labels=fedem") == names(runs, *RUNS, *SHOWING)


# --- Files ----------------------------------------------------------------------------------------


def test_a_deleted_file_of_a_run_is_missed_and_made_again(folder):
    job = {"paper": PAPER, "federation": "digits", "label": "fedem", "seed": 1}
    state = PLAN.path("state", **job)
    (folder / state).unlink()
    assert would_run(folder, state) == names(PLAN, "train", label="fedem", seed=1)
    expected = names(PLAN, *RUNS, label="fedem", seed=1)
    assert would_run(folder) == expected | names(PLAN, *SHOWING)


def test_deleted_metrics_are_made_again_and_a_plan_says_what_follows(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for name in ("metrics", "metrics_csv"):
        path = Path(PLAN.path(name, paper=PAPER))
        path.rename(path.with_suffix(".kept"))
        assert would_run(folder) >= names(PLAN, "metrics")
        listed = {x.stage for x in freshness.list_open_jobs(PLAN, freshness.check(PLAN), RESULTS)}
        assert listed == {*SHOWING}
        path.with_suffix(".kept").rename(path)


def test_shards_that_come_out_unchanged_are_not_trained_on_again(folder):
    append(folder, "fedlib/data/sources/digits.py", "\nX = 1\n")
    done = workflow.snakemake(folder, *workflow.smoke("partitions"))
    assert done.returncode == 0, done.stdout
    assert would_run(folder) == set()
