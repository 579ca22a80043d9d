"""The page that shows everything, and the captions of Snakemake's report."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import made_up
import pytest
from docutils.core import publish_string
from jinja2 import Environment, StrictUndefined

from fedlib import tables
from fedlib.errors import DataError
from fedlib.exhibits import metrics, published
from fedlib.reporting import report
from fedlib.tables import render
from fedlib.workflow import specs
from fedlib.workflow.plan import Plan

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = ROOT / "fedlib/papers/published/pfedmm.csv"


def report_spec(exhibit: dict) -> dict:
    heading = {name: exhibit[name] for name in ("name", "title", "caption")}
    return {
        "folder": "demo",
        "scale": exhibit["scale"],
        "folder_note": "",
        "papers": [
            {
                "name": "pfedmm",
                "title": "pFedMM",
                "citation": "Somebody, 2025.",
                "scale_note": exhibit["scale_note"],
                "seeds": exhibit["seeds"],
                "federations": [
                    {"name": "emnist", "title": "EMNIST", "notes": ["half of the images."]},
                    {"name": "cifar10", "title": "CIFAR-10", "notes": []},
                ],
                "tables": [heading],
                "figures": [{"name": "curves", "title": "Curves", "caption": "Over_rounds."}],
            }
        ],
    }


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder with runs, one table and one (empty) figure, and the specification of its report."""
    root = tmp_path_factory.mktemp("project")
    exhibit = made_up.exhibit(["fedavg", "pfedmm"], published="main")
    results, images = root / "results/demo", root / "figures/demo"
    made_up.save_runs(exhibit, results / "runs/pfedmm")
    spec = made_up.metrics_spec(exhibit)
    tidy, clients = metrics.collect(spec, results / "runs/pfedmm")
    sheet = tables.load("accuracy")(exhibit, tidy, clients, published.read(PUBLISHED))
    paths = [results / f"tables/pfedmm/main.{form}" for form in ("csv", "md", "tex")]
    render.write(sheet, *paths)
    (images / "pfedmm").mkdir(parents=True)
    for form in ("pdf", "png"):
        (images / f"pfedmm/curves.{form}").touch()
    return SimpleNamespace(
        root=root, results=results, figures=images, spec=report_spec(exhibit), sheet=sheet
    )


@pytest.fixture
def page(project) -> str:
    out = project.results / "REPORT.md"
    return report.build(project.spec, project.results, project.figures, out)


def test_tables_are_on_the_page_as_they_are(project, page):
    assert render.to_markdown(project.sheet).rstrip() in page


def test_links_to_figures_lead_to_files(project, page):
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert links == ["../../figures/demo/pfedmm/curves.png", "../../figures/demo/pfedmm/curves.pdf"]
    for link in links:
        assert (project.results / link).exists()


def test_the_front_says_scale_seeds_and_data(page):
    assert "**This is scale demo, not the papers' own.**" in page
    assert "- Scale demo: embedded data, 20 clients, 30 rounds." in page
    assert "- Seeds: 1, 2." in page
    assert "- EMNIST: half of the images." in page
    assert "- CIFAR-10: as in the paper." in page


def test_the_summary_is_the_mean_of_the_tables_differences(project, page):
    numbers = project.sheet.numbers
    cells = numbers.loc[numbers["metric"] == "accuracy", "difference"]
    row = next(line for line in page.splitlines() if line.startswith("| pFedMM  |"))
    fields = [field.strip() for field in row.split("|")]
    assert fields[3:6] == ["All", "4", render.points(cells.mean())]
    assert fields[6] == f"{100 * cells.abs().mean():.1f}"
    assert fields[7] == render.points(cells[cells.abs().idxmax()])


def test_machines_are_those_that_the_runs_recorded(page):
    assert "As recorded by 8 training runs." in page
    assert "- device: cpu\n- torch: 2.14.1" in page


def test_without_the_runs_there_is_no_section_on_machines(project, tmp_path):
    (tmp_path / "tables").symlink_to(project.results / "tables")
    page = report.build(project.spec, tmp_path, project.figures, tmp_path / "REPORT.md")
    assert "Machines" not in page


def test_without_published_numbers_the_summary_says_so(project, tmp_path):
    folder = tmp_path / "tables/pfedmm"
    folder.mkdir(parents=True)
    (folder / "main.md").write_text("### Main\n")
    (folder / "main.csv").write_text("metric,difference\naccuracy,\n")
    page = report.build(project.spec, tmp_path, project.figures, tmp_path / "REPORT.md")
    assert report.NEVER_COMPARED in page


@pytest.mark.parametrize(
    ("missing", "stage"), [("tables/pfedmm/main.md", "table"), ("pfedmm/curves.png", "figure")]
)
def test_a_missing_file_is_named_with_its_stage(project, missing, stage):
    folder = project.results if stage == "table" else project.figures
    (folder / missing).rename(folder / "aside")
    try:
        with pytest.raises(DataError, match=f"{missing} does not exist; run the {stage} stage"):
            report.build(project.spec, project.results, project.figures, project.root / "R.md")
    finally:
        (folder / "aside").rename(folder / missing)


@pytest.mark.slow
def test_script_writes_the_page(project, page):
    out = project.results / "REPORT.md"
    command = [
        *(sys.executable, ROOT / "scripts/report.py", "--spec", json.dumps(project.spec)),
        *("--results", project.results, "--figures", project.figures, "--out", out),
    ]
    subprocess.run(command, check=True)
    assert out.read_text() == page


@pytest.mark.parametrize("scale", ["demo", "reduced", "full"])
@pytest.mark.parametrize("tag", ["", "quick"])
@pytest.mark.parametrize("caption", ["table", "figure", "workflow"])
def test_captions_are_valid_text_at_every_scale(caption, scale, tag):
    template = (ROOT / f"rules/captions/{caption}.rst").read_text()
    config = {"scale": scale, "tag": tag, "rounds": 3 if tag else None}
    snakemake = SimpleNamespace(
        wildcards=SimpleNamespace(paper="pfedmm", table="main", figure="curves"),
        config=config | {"about": specs.about(Plan(config))},
    )
    text = Environment(undefined=StrictUndefined).from_string(template).render(snakemake=snakemake)
    html = publish_string(text, writer="html5", settings_overrides={"halt_level": 2}).decode()
    assert scale in html
    if caption == "workflow":
        assert ("at most 3" in html) == bool(tag)
        assert "Models start from" in html
