"""The site of the documents, which `make docs` builds."""

import importlib.util
import json
import os
import re
import runpy

import pytest
from workflow import python

import fedlib
from fedlib.workflow.provenance import ROOT

PAGES = ("*.md", "docs/*.md", "docs/*/README.md", "docs/site/*.rst", "benchmarks/README.md")


def test_every_document_is_in_the_navigation():
    navigation = (ROOT / "docs/site/navigation.md").read_text(encoding="utf-8")
    files = [file.relative_to(ROOT) for pattern in PAGES for file in ROOT.glob(pattern)]
    pages = {file.with_suffix("").as_posix() for file in files} - {"README"}  # the front page
    assert sorted(re.findall(r"^[\w/-]+$", navigation, re.MULTILINE)) == sorted(pages)


def test_the_reference_has_every_public_name():
    page = (ROOT / "docs/site/reference.rst").read_text(encoding="utf-8")
    assert [name for name in fedlib.__all__ if not re.search(rf"fedlib\.{name}\b", page)] == []


def test_the_notebook_is_the_tutorial_whose_code_a_test_runs():
    made = runpy.run_path(ROOT / "docs/site/notebook.py")["notebook"]
    text = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    kept = json.loads((ROOT / "docs/tutorial.ipynb").read_text(encoding="utf-8"))
    assert kept == made(text), "python docs/site/notebook.py writes it again"


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("sphinx") is None, reason="`make docs` installs it")
def test_the_site_is_built_without_a_warning(tmp_path):
    # A warning is a link that leads nowhere, or a page that is not in the navigation.
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = python("-m", "sphinx", "-q", "-W", "-c", "docs/site", ".", tmp_path, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    for page, has in {
        "docs/site/all_methods": "fedlib.methods.fedem.FedEM",
        "docs/site/reference": "fedlib.Result.accuracy",
        "index": "url=README.html",
    }.items():
        assert has in (tmp_path / f"{page}.html").read_text(encoding="utf-8"), page
