"""The workflow in a foreign folder: as a module from a clone, and as `snakedeploy` leaves it."""

import re
import shutil
import subprocess
import textwrap

import pytest
import workflow
import yaml
from support import EVERYTHING, only_in_ci

from fedlib.workflow.config import DEFAULTS

pytestmark = pytest.mark.slow
RUN = {"papers": ["pfedmm"], "federations": ["digits"], "labels": ["fedavg"], "seeds": [0]}
RUN |= {"tag": "module", "rounds": 2, "device": "cpu"}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    return workflow.copy_checkout(tmp_path_factory.mktemp("a clone"))


def write(folder, snakefile, config):
    """A foreign folder with a Snakefile and a configuration where they are by convention."""
    for path, text in {"workflow/Snakefile": snakefile, "config/config.yaml": config}.items():
        (folder / path).parent.mkdir()
        (folder / path).write_text(text)


def files(folder):
    return {
        path.relative_to(folder) for path in folder.rglob("*") if "__pycache__" not in str(path)
    }


def test_another_workflow_uses_it_as_a_module(checkout, tmp_path):
    before = files(checkout)
    snakefile = f"""
        configfile: "config/config.yaml"

        module fedlib:
            snakefile: "{checkout}/workflow/Snakefile"
            config: config["fedlib"]

        use rule * from fedlib as fedlib_*

        shell.prefix("export MINE=yes; ")

        onstart:
            fedlib.onstart()

        rule mine:
            default_target: True
            input: "results/demo-module/tables/pfedmm/main.csv"
            output: "mine.csv"
            shell: "test $MINE = yes && export PATH=$PWD/bin:$PATH && python {{input}} {{output}}"
        """
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").write_text('#!/bin/sh\ncp "$1" "$2"\n')  # an environment of theirs
    (tmp_path / "bin/python").chmod(0o755)
    write(tmp_path, textwrap.dedent(snakefile), yaml.safe_dump({"fedlib": RUN}))
    done = workflow.snakemake(tmp_path, "--cores", "1")
    assert done.returncode == 0, done.stdout
    assert "federation,dataset,label" in (tmp_path / "mine.csv").read_text()
    assert (tmp_path / "data/raw/digits.json").is_file()
    assert files(checkout) == before
    assert "warning" not in done.stdout.lower()
    code, output = workflow.dry_run(tmp_path)
    assert code == 0 and "Nothing to be done" in output, output
    code, output = workflow.dry_run(tmp_path, ["fedlib_all"])
    assert code == 0 and "rule fedlib_report:" in output and "rule fedlib_train:" not in output
    report = workflow.snakemake(tmp_path, "--report", "report.html")
    assert report.returncode == 0, report.stdout


# As snakedeploy 0.17.1 writes it.
DEPLOYED = """from snakemake.utils import min_version


min_version("6.10.0")


configfile: "config/config.yaml"


# declare https://github.com/lab/fedlib as a module
module fedlib:
    snakefile: 
        github("lab/fedlib", path="workflow/Snakefile", tag="v9")
    config:
        config


# use all rules from https://github.com/lab/fedlib
use rule * from fedlib
"""  # noqa: W291


@only_in_ci  # the test before it makes the same module from a folder
@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_snakedeploy_puts_it_into_a_folder_where_it_is_fetched_from_a_tag_and_runs(tmp_path):
    hosted, folder, cache = (tmp_path / name for name in ("host/lab/fedlib", "mine", "cache"))
    workflow.copy_checkout(hosted)
    identity = ["-c", "user.name=Me", "-c", "user.email=me@example.org"]
    for words in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "."], ["tag", "v9"]):
        subprocess.run(["git", *words], cwd=hosted, check=True)
    folder.mkdir()
    config = yaml.safe_load((hosted / "config/config.yaml").read_text())
    assert config.keys() == DEFAULTS.keys()
    write(folder, DEPLOYED, yaml.safe_dump(config | RUN))
    shutil.copytree(hosted / "profiles", folder / "profiles")
    redirected = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_VALUE_0": "https://github.com/"}
    redirected["GIT_CONFIG_KEY_0"] = f"url.file://{tmp_path}/host/.insteadOf"
    targets = [] if EVERYTHING else ["results/demo-module/tables/pfedmm/main.csv"]
    done = workflow.snakemake(folder, "-p", *targets, XDG_CACHE_HOME=str(cache), **redirected)
    assert done.returncode == 0, done.stdout
    script = rf"python {cache}/.*/fedlib-moe/\w+/scripts/partition.py "
    assert re.search(script, done.stdout), done.stdout
    assert "FedAvg" in (folder / "results/demo-module/tables/pfedmm/main.md").read_text()


def test_values_of_the_command_line_that_a_module_does_not_read_are_told(checkout, tmp_path):
    module = f'module fedlib:\n    snakefile: "{checkout}/workflow/Snakefile"\n'
    module += '    config: {"papers": ["pfedmm"]}\n'
    write(tmp_path, f"{module}\nuse rule * from fedlib\n", "{}")
    code, output = workflow.dry_run(tmp_path, ["--config", "seeds=[7]", "papers=[pfedmm]"])
    assert code == 0 and re.search("(?<!papers, )seeds: of the command line", output), output


def test_a_module_with_a_prefix_is_refused(checkout, tmp_path):
    module = f'module fedlib:\n    snakefile: "{checkout}/workflow/Snakefile"\n    prefix: "mine"\n'
    write(tmp_path, f"{module}\nuse rule * from fedlib\n", "{}")
    code, output = workflow.dry_run(tmp_path)
    assert code == 1 and "a module of this workflow cannot have one" in output
