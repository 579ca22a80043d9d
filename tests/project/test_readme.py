"""The worked examples of the documents are executed: a complete method, and a paper on own data."""

import json
import re

import numpy as np
import pytest
import torch
import workflow
from PIL import Image
from support import sgd, toy_federation

import fedlib
from fedlib import methods
from fedlib.workflow.provenance import ROOT


def block(document):
    """The one Python block of a document."""
    [found] = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    return found


@pytest.fixture
def fedper(tmp_path):
    """The class in the Python block of docs/methods.md, loaded from a file."""
    file = tmp_path / "fedper.py"
    file.write_text(block("docs/methods.md"))
    return methods.load(str(file))


def test_the_example_method_is_simulated_without_a_file_of_its_own(fedper):
    net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))
    result = fedlib.simulate(toy_federation(), net, fedper, local=sgd(), rounds=2, progress=None)
    one, other = (result.client_model(client).network.state_dict() for client in (0, 1))
    assert torch.equal(one["0.weight"], other["0.weight"])
    assert not torch.equal(one["2.weight"], other["2.weight"])


ONCE = ["--cores", "1", "--config", "papers=[shapes]", "methods=[mine/fedper.py]"]
ONCE += ["tag=t", "rounds=2", "seeds=[0]", "device=cpu"]


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """A copy of the checkout with the documented method and paper, and 150 pictures, once run."""
    folder = workflow.copy_checkout(tmp_path_factory.mktemp("shapes"))
    (folder / "fedlib/papers/shapes.py").write_text(block("docs/data.md"))
    (folder / "mine").mkdir()
    (folder / "mine/fedper.py").write_text(block("docs/methods.md"))
    pictures(folder / "data/raw/own/shapes", 50)
    done = workflow.snakemake(folder, *ONCE)
    assert done.returncode == 0, done.stdout[-3000:]
    return folder


def pictures(folder, num):
    """`num` of each of three classes, which differ in where they are bright."""
    draw = np.random.default_rng(0)
    for label, name in enumerate(["circle", "square", "triangle"]):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(num):
            pixels = draw.integers(0, 100, (16, 16), np.uint8)
            pixels[5 * label : 5 * label + 5] += 150
            Image.fromarray(pixels).save(folder / name / f"{number:03}.png")


@pytest.mark.slow
def test_own_data_and_a_method_of_ones_own_are_in_the_table_the_figure_and_the_report(shapes):
    table = (shapes / "results/demo-t/tables/shapes/main.md").read_text()
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")]
    assert rows == ["Method", "FedAvg", "FedEM", "FedPer"] and "Shapes" in table
    own = "A method of your own, from mine/fedper.py; settings are those declared for FedAvg."
    assert f"FedPer: {own}" in table
    drawn = (shapes / "figures/demo-t/shapes/rounds.svg").read_text()
    assert "<!-- FedPer -->" in drawn  # above its letters, which are outlines
    assert "FedPer" in (shapes / "results/demo-t/report.html").read_text()
    listed = json.loads((shapes / "data/raw/own-shapes.json").read_text())
    assert "own/shapes/circle/000.png" in json.dumps(listed)


def assert_is_cut_again(folder):
    """That a plan says so, which needs no record of Snakemake's."""
    told = workflow.python("-m", "fedlib", "plan", *ONCE[2:], cwd=folder, check=True).stdout
    assert re.search(r"partition +1 +input changed", told)


@pytest.mark.slow
def test_clients_are_cut_again_when_a_picture_changes(shapes, tmp_path):
    folder = workflow.clone(shapes, tmp_path)
    Image.new("L", (16, 16), 255).save(folder / "data/raw/own/shapes/circle/000.png")
    code, told = workflow.dry_run(folder, ONCE)
    assert code == 0 and "rule download:" in told and "rule partition:" in told
    assert_is_cut_again(folder)


@pytest.mark.slow
def test_clients_are_cut_again_when_a_picture_gets_another_class(shapes, tmp_path):
    """In the same place in the order, and where nobody knows the files of before."""
    folder = workflow.clone(shapes, tmp_path)
    pictures = folder / "data/raw/own/shapes"
    (pictures / "circle/049.png").rename(pictures / "square/+.png")
    (folder / "data/raw/own-shapes.json").unlink()
    assert_is_cut_again(folder)
