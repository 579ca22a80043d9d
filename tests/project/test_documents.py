"""What the documents say exists."""

import re

import pandas as pd
import pytest
from every_method import METHODS, make
from pyarrow import parquet

import fedlib
from fedlib.report import packs
from fedlib.results import CLIENT_COLUMNS
from fedlib.workflow.provenance import ROOT

PLACES = "*.md docs/*.md docs/*/README.md data/raw/*.md results/*.md figures/*.md".split()
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix() for pattern in PLACES for path in ROOT.glob(pattern)
)

OLD = {"picks", "client_weights", "sync_weights"}  # methods that were kept earlier recorded them


def read(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document):
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", read(document))
    files = [target for target in targets if "://" not in target]
    folder = (ROOT / document).parent
    assert [target for target in files if not (folder / target).exists()] == []


def test_every_protocol_is_defined():
    defined = {*re.findall(r"`(\w+)`", read("docs/metrics.md"))}
    for name in METHODS:
        method = make(name)
        for ways in (*method.protocols.values(), *method.final_protocols.values()):
            assert {*ways} <= defined, name


def test_every_metric_and_column_of_clients_is_defined():
    """Of the runs that are kept. Numbers at the end tell columns of one name apart."""
    defined = {*re.findall(r"`(\w+)`", read("docs/metrics.md"))} | {*CLIENT_COLUMNS}
    for pack in (ROOT / "docs/results").rglob(packs.FOLDER):
        metrics = pd.read_parquet(pack / packs.METRICS)["metric"].unique()
        clients = parquet.read_schema(pack / packs.CLIENTS).names
        found = {re.sub(r"(_\d+)+$", "_0", name) for name in clients}
        assert {*metrics, *found} - OLD <= defined, pack


def anchors(document: str) -> set[str]:
    """What a link can name after a #: headings, as GitHub spells them, and HTML anchors."""
    headings = re.findall(r"^#+ (.*)$", read(document), re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", heading.lower()) for heading in headings)
    return {*re.findall(r'<a id="([^"]+)"', read(document)), *(x.replace(" ", "-") for x in plain)}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_headings_that_are_there(document):
    here = (ROOT / document).parent
    for target, anchor in re.findall(r"\]\(([^)#:]*\.md)?#([^)]+)\)", read(document)):
        page = (here / target).resolve().relative_to(ROOT).as_posix() if target else document
        assert anchor in anchors(page), f"{page}#{anchor}"


@pytest.mark.parametrize("document", [x for x in DOCUMENTS if x != "CHANGELOG.md"])  # of its time
def test_make_targets_exist(document):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    code = re.findall(r"`[^`\n]+`", read(document)) + re.findall(
        r"^(?: {4}|make).*$", read(document), re.MULTILINE
    )
    assert set(re.findall(r"\bmake ([a-z-]+)", "\n".join(code))) - targets == set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_modules_and_scripts_exist(document):
    text = read(document)
    scripts = re.findall(r"scripts/\w+\.py", text)
    assert [name for name in scripts if not (ROOT / name).exists()] == []
    paths = re.findall(r"`(fedlib/[\w./]+\.\w+)`", text)
    dotted = [name.split(".") for name in re.findall(r"`(fedlib(?:\.\w+)+)`", text)]
    there = {file.relative_to(ROOT).as_posix() for file in (ROOT / "fedlib").rglob("*")}
    there |= {name.removesuffix(".py") for name in there}
    there |= {f"fedlib/{name}" for name in dir(fedlib)}
    # The last part of a dotted name may be something in a module.
    missing = [d for d in dotted if not {"/".join(d), "/".join(d[:-1])} & there]
    # By whoever follows the README.
    written = {"fedlib/methods/fedper.py", "fedlib/papers/shapes.py"}
    assert [path for path in paths if path not in there | written] + missing == []
