"""The container file has all that the workflow needs."""

import re
from fnmatch import fnmatch

import workflow

FILE = workflow.ROOT / "Containerfile"


def test_the_container_has_the_python_of_conda_s_environments():
    python = re.search(r"^FROM python:([\d.]+)-", FILE.read_text(encoding="utf-8"), re.MULTILINE)[1]
    for file in (workflow.ROOT / "envs").glob("*.yaml"):
        assert f"- python={python}\n" in file.read_text(encoding="utf-8")


def test_the_container_has_all_that_the_workflow_consists_of():
    copied = re.findall(r"^COPY (.*) \./", FILE.read_text(encoding="utf-8"), re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    assert names == {*workflow.PARTS, "requirements/main.lock"}


def test_what_the_container_copies_is_not_ignored():
    lines = (workflow.ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = (*workflow.PARTS, "requirements/main.lock")  # by its name, or with its folder
    assert [x for x in copied for y in lines if fnmatch(f"{x}/", f"{y.strip('/')}/*")] == []
