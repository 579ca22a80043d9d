"""The workflow as a module of another one, in a foreign folder."""

import textwrap

import pytest
import workflow
import yaml

pytestmark = pytest.mark.slow
RUN = {"papers": ["pfedmm"], "federations": ["digits"], "labels": ["fedavg"], "seeds": [0]}
RUN |= {"tag": "module", "rounds": 2, "device": "cpu"}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    return workflow.copy_checkout(tmp_path_factory.mktemp("a clone"))


def files(folder):
    return {
        path.relative_to(folder) for path in folder.rglob("*") if "__pycache__" not in str(path)
    }


def test_another_workflow_uses_it_as_a_module(checkout, tmp_path):
    before = files(checkout)
    snakefile = f"""
        configfile: "config.yaml"

        module fedlib:
            snakefile: "{checkout}/Snakefile"
            config: config["fedlib"]

        use rule * from fedlib as fedlib_*

        onstart:
            fedlib.onstart()

        rule mine:
            default_target: True
            input: "results/demo-module/tables/pfedmm/main.csv"
            output: "mine.csv"
            shell: "python -c 'import shutil; shutil.copy(\\"{{input[0]}}\\", \\"{{output}}\\")'"
        """
    (tmp_path / "Snakefile").write_text(textwrap.dedent(snakefile))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"fedlib": RUN}))
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


def test_a_module_with_a_prefix_is_refused(checkout, tmp_path):
    module = f'module fedlib:\n    snakefile: "{checkout}/Snakefile"\n    prefix: "mine"\n'
    (tmp_path / "Snakefile").write_text(f"{module}\nuse rule * from fedlib\n")
    code, output = workflow.dry_run(tmp_path)
    assert code == 1 and "a module of this workflow cannot have one" in output
