"""Lock, conda environments, imports and the CI entry point agree with each other."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from fedlib.workflow import provenance
from fedlib.workflow.provenance import ROOT

# Where conda, or an import statement, has another name for what pip calls a package.
PIP_NAME = {
    "PIL": "pillow",
    "matplotlib-base": "matplotlib",
    "pytorch": "torch",
    "sklearn": "scikit-learn",
    "snakemake-minimal": "snakemake",
    "yaml": "pyyaml",
}

# Which scripts run in which environment, and the packages whose modules those scripts load by name.
STAGES = {
    "train": (
        ("download", "partition", "tune", "train", "evaluate"),
        ("fedlib.data.sources", "fedlib.data.partitions", "fedlib.methods", "fedlib.models"),
    ),
    "report": (
        ("metrics", "table", "figure", "report"),
        ("fedlib.report.tables", "fedlib.report.figures"),
    ),
}
FILES = {name: f"envs/{name}.yaml" for name in STAGES} | {"all": "environment.yml"}


def locked() -> list[tuple[str, str]]:
    """(name, version) of every requirement in the lock."""
    lock = (ROOT / "requirements/main.lock").read_text(encoding="utf-8")
    return re.findall(r"^([a-z0-9._-]+)==([^ ]+)", lock, re.MULTILINE)


def direct() -> dict[str, str | None]:
    """Packages named in requirements/main.in, and their versions where it pins them."""
    lines = (ROOT / "requirements/main.in").read_text(encoding="utf-8").splitlines()
    named = [line.partition("==") for line in lines if line and not line.startswith("#")]
    return {name: version or None for name, _, version in named}


def environment(name: str) -> dict[str, str]:
    """Packages of a conda environment and their versions, by pip's names."""
    content = yaml.safe_load((ROOT / FILES[name]).read_text(encoding="utf-8"))
    pinned = [line.split("=") for line in content["dependencies"]]
    return {PIP_NAME.get(package, package): version for package, version in pinned}


def third_party(path: Path) -> set[str]:
    """What a file imports beyond the standard library and this project, by pip's names."""
    names = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module.partition(".")[0])
    return {PIP_NAME.get(name, name) for name in names - sys.stdlib_module_names - {"fedlib"}}


@pytest.mark.parametrize("name", ["main", "docs", "slurm"])
def test_a_lock_has_one_version_of_each_package_with_a_hash_and_no_address(name):
    lock = (ROOT / f"requirements/{name}.lock").read_text(encoding="utf-8")
    requirements = re.split(r"^(?=[^ ])", lock, flags=re.MULTILINE)[1:]
    names = [text.partition("==")[0] for text in requirements]
    assert len(names) == len({*names}) > 0
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", text) for text in requirements)
    assert not re.search(r"://|^ *-|\bfile:| @ ", lock.replace("    --hash=", ""), re.MULTILINE)
    if name != "main":  # an extra has nothing of the main lock
        wanted = (ROOT / f"requirements/{name}.in").read_text(encoding="utf-8").splitlines()
        wanted = [line for line in wanted if not line.startswith("#")]
        assert [text.split()[0] for text in requirements] == wanted
        assert {*names}.isdisjoint(dict(locked()))


def test_every_direct_dependency_is_locked_at_the_version_asked_for():
    versions = dict(locked())
    assert direct().keys() - versions.keys() == set()
    pinned = {name: pin for name, pin in direct().items() if pin}
    assert {name: versions[name] for name in pinned} == pinned


@pytest.mark.parametrize("name", FILES)
def test_a_conda_environment_has_the_versions_of_the_lock(name):
    packages = environment(name)
    assert packages.pop("python").startswith("3.")
    versions = dict(locked())
    assert packages == {package: versions.get(package) for package in packages}
    content = yaml.safe_load((ROOT / FILES[name]).read_text(encoding="utf-8"))
    assert (content["channels"][0], content["channels"][-1]) == ("conda-forge", "nodefaults")


def test_one_environment_has_all_that_the_workflow_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["figures"], *extras["text"], *extras["workflow"]]
    named = {re.match(r"[\w-]+", requirement)[0] for requirement in needed}
    assert environment("all").keys() == {"python", *named}
    assert {environment(name)["python"] for name in FILES} == {environment("all")["python"]}


@pytest.mark.parametrize("name", STAGES)
def test_a_conda_environment_has_what_its_scripts_import(name):
    scripts, packages = STAGES[name]
    roots = [f"scripts/{script}.py" for script in scripts]
    for package in packages:
        folder = provenance.file_of(ROOT, package).parent
        roots += [f"{package}.{path.stem}" for path in folder.glob("[!_]*.py")]
    files = (provenance.file_of(ROOT, name) for name in provenance.closure(*roots))
    imported = set().union(*map(third_party, files))
    assert imported - environment(name).keys() == set()


def test_every_third_party_import_is_a_direct_dependency():
    files = [*ROOT.glob("fedlib/**/*.py"), *ROOT.glob("scripts/*.py")]
    assert {x: odd for x in files if (odd := third_party(x) - direct().keys())} == {}
