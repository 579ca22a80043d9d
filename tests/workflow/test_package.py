"""The package that pip installs: what it needs, what it contains, and that it works on its own."""

import os
import re
import shutil
import tomllib
import zipfile

import pytest
import workflow
import yaml
from support import only_in_ci
from test_environment import direct

import fedlib
from fedlib.workflow.provenance import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
PINNED_ONLY = {"contourpy"}  # in requirements/main.in for one version on every Python


def pip(*arguments):
    """Run pip without a network."""
    done = workflow.python("-m", "pip", *arguments, "--no-deps", "--no-index", "-q", cwd=None)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    source = workflow.copy_checkout(folder / "source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, source)
    pip("wheel", str(source), "--no-build-isolation", "-w", str(folder))
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def outside(wheel, tmp_path_factory):
    """Function that runs Python, with the installed wheel, in a folder without a checkout."""
    folder = tmp_path_factory.mktemp("outside")
    pip("install", "--no-compile", "--target", str(folder / "installed"), str(wheel))

    def run(code):
        changes = {"PYTHONPATH": str(folder / "installed"), "XDG_CACHE_HOME": str(folder)}
        changes |= {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
        done = workflow.python("-c", code, cwd=folder, env=os.environ | changes)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run


def test_the_packages_to_install_are_those_of_the_lock():
    named = [*PROJECT["dependencies"], *(name for extra in EXTRAS.values() for name in extra)]
    names = [re.match(r"[\w-]+", requirement)[0] for requirement in named]
    assert sorted(names) == sorted(direct().keys() - PINNED_ONLY)


def test_the_version_is_the_same_everywhere():
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(r"^## (.*)$", changes, re.MULTILINE)[1]
    assert newest == cited["version"] == fedlib.__version__


@pytest.mark.slow
def test_the_wheel_has_every_file_but_documents(wheel):
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "fedlib").rglob("*.*")}
    wanted = {name for name in files if "__pycache__" not in name and not name.endswith(".md")}
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if name.startswith("fedlib/")}
    assert wheel.name.startswith(f"fedlib_moe-{fedlib.__version__}-") and found == wanted


@pytest.mark.slow
def test_the_readmes_lines_run_outside_of_a_checkout_and_give_its_numbers(outside):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    told = outside(f"import fedlib; print(fedlib.__version__, fedlib.__file__)\n{code}")
    assert told.startswith(fedlib.__version__) and str(ROOT) not in told
    percent = [float(number) for number in re.findall(r"test accuracy ([\d.]+)% seen", told)]
    said = re.search(r"# accuracy: (\d+) %, (\d+) % and (\d+) %", code).groups()
    # Another processor may round otherwise, which training makes larger: a few of 880 examples.
    assert percent == pytest.approx([*map(float, said)], abs=2)


@pytest.mark.slow
def test_names_are_listed_outside_of_a_checkout_and_other_commands_are_refused(outside):
    code = """
import sys
from fedlib.cli import main
sys.argv[1:] = [%r]
try:
    main()
except ValueError as error:
    print(error)
"""
    assert "papers (6): " in outside(code % "list")
    assert outside(code % "plan").startswith("plan works in a checkout of the project only")


CORE = """
import sys
for name in %s:
    sys.modules[name] = None  # as if it were not installed
import numpy as np, torch, fedlib
x, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) %% 3
clients = fedlib.partition(x, y, "iid", num_clients=3, train_fraction=0.5)
course = {"local": fedlib.SGD(lr=0.1), "rounds": 1}
print(fedlib.simulate(clients, torch.nn.Linear(4, 3), "fedem", num_experts=2, **course))
"""


@only_in_ci
@pytest.mark.slow
def test_a_run_needs_no_package_of_the_extras(outside):
    extras = [re.match(r"[\w-]+", name)[0] for names in EXTRAS.values() for name in names]
    imported = {"pillow": "PIL", "scikit-learn": "sklearn", "pyyaml": "yaml"}
    assert "FedEM after 1 round;" in outside(CORE % [imported.get(name, name) for name in extras])
