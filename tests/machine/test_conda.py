"""The environments of envs/ solve, and the workflow runs in them, from a channel on this disk."""

import asyncio
import importlib.util
import os
import subprocess
from pathlib import Path

import conda_channel
import pytest
import workflow
import yaml

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("rattler") is None, reason="needs py-rattler (make test-environments)"
)
NAMES = [*sorted(f"envs/{file.name}" for file in (workflow.ROOT / "envs").glob("*.yaml"))]
NAMES += ["environment.yml"]


def dependencies(name: str) -> list[str]:
    content = yaml.safe_load((workflow.ROOT / name).read_text(encoding="utf-8"))
    return content["dependencies"]


@pytest.fixture(scope="module")
def channel(tmp_path_factory) -> Path:
    """What is installed here, which is the lock, as packages of conda's."""
    folder = tmp_path_factory.mktemp("conda") / "channel"
    python = next(line for line in dependencies("envs/train.yaml") if line.startswith("python="))
    conda_channel.make(folder, python.removeprefix("python="))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_environment_solves(channel, name):
    records = asyncio.run(conda_channel.solved(dependencies(name), channel))
    found = {record.name.normalized: str(record.version) for record in records}
    asked = dict(line.split("=") for line in dependencies(name))
    assert asked.pop("python") == found.pop("python").removesuffix(".0")
    assert asked.items() <= found.items()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_environment_solves_with_a_version_that_is_not_the_locks(channel, name):
    for line in dependencies(name)[1:]:
        package, _, version = line.partition("=")
        others = [other for other in dependencies(name) if other != line]
        with pytest.raises(Exception, match=package):
            asyncio.run(conda_channel.solved([*others, f"{package}={version}9"], channel))


@pytest.mark.slow
def test_the_workflow_runs_in_environments_of_conda(channel, tmp_path):
    """With nothing else: no torch in the environment of reports, no Snakemake in any."""
    checkout, conda = workflow.copy_checkout(tmp_path / "checkout"), tmp_path / "conda"
    conda_channel.write_conda(conda)
    metrics = "results/demo-smoke/metrics/pfedmm.csv"
    options = ["--sdm", "conda", "--cores", "1", "--configfile", workflow.SMOKE]
    options += ["--config", "labels=fedavg", "seeds=0"]
    changes = {"PATH": f"{conda}/bin:{os.environ['PATH']}", conda_channel.CHANNEL: str(channel)}
    done = workflow.snakemake(checkout, metrics, *options, **changes)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("Creating conda environment") == 2
    assert (checkout / metrics).exists()
    environments = [file.parent for file in checkout.glob(".snakemake/conda/*/pyvenv.cfg")]
    have_torch = [(folder / conda_channel.SITE / "torch").exists() for folder in environments]
    assert sorted(have_torch) == [False, True]
    look = "import importlib.util, sys; print(sys.prefix, importlib.util.find_spec('snakemake'))"
    for folder in environments:
        said = subprocess.check_output([folder / "bin/python", "-c", look], text=True)
        assert said.split() == [str(folder), "None"]
