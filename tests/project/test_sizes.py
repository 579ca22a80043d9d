"""How long a file and a function may be. What a paper declares is data, of any length."""

import ast

import pytest
from test_rooms import code_lines

from fedlib.workflow.provenance import PACKAGE, ROOT

LINES, CODE_LINES = 400, 40
FILES = sorted(file.relative_to(ROOT) for file in (ROOT / PACKAGE).rglob("*.py"))
COMPUTING = [file for file in FILES if "papers" not in file.parts]
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def functions(text):
    """(name, lines of code) of every function and method."""
    lines = code_lines(text)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, FUNCTIONS)]
    return [(node.name, len(lines & {*range(node.lineno, node.end_lineno + 1)})) for node in nodes]


@pytest.mark.parametrize("file", FILES, ids=str)
def test_a_file_is_no_longer_than_one_can_read_at_once(file):
    assert len((ROOT / file).read_text("utf-8").splitlines()) <= LINES


@pytest.mark.parametrize("file", COMPUTING, ids=str)
def test_a_function_fits_on_a_page(file):
    found = functions((ROOT / file).read_text("utf-8"))
    assert not [(name, lines) for name, lines in found if lines > CODE_LINES]
