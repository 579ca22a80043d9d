"""The packages of fedlib: what may import what, and how much there may be of it."""

import ast
import re
from functools import cache

import networkx as nx
import pytest

from fedlib.workflow.provenance import PACKAGE, ROOT, file_of, imports

# What the modules of a package may import of the others, by package; a module at the top of
# fedlib stands for itself. Everything may import the ground.
GROUND = {
    *("draws", "environment", "errors", "fields", "files", "hdf5", "locks", "mapped"),
    *("run_spec", "seals", "spec", "streams", "tree"),
}
ROOMS = {
    "federation": set(),
    "results": set(),
    "data": {"federation"},
    "engine": {"federation"},
    "models.layers": {"engine.ambient"},
    "models": {"models.layers", "engine.ambient"},
    "methods.parts": {"engine", "federation", "models.layers"},
    "methods": {"methods.parts", "engine", "federation", "models.layers"},
    "run": {"methods", "models", "engine", "federation", "results"},
    "forecast": {"run", "data", "engine", "models", "federation", "results"},
    "report": {"federation", "results"},
    "papers": set(),
    "api": {
        *("data", "run", "methods", "models.layers", "engine", "federation", "results"),
        "report.looks",
    },
    "workflow": {"papers", "data.downloads", "forecast.estimates"},
    "cli": {"workflow", "report", "forecast", "run", "engine.choice", "federation", "results"},
    "__main__": {"cli", "workflow.command"},
}


def modules():
    """Dotted names of all modules below fedlib."""
    files = sorted((ROOT / PACKAGE).rglob("*.py"))
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    return [name.removesuffix(".__init__") for name in names]


def room(module):
    """The innermost package of the table, or the module itself at the top -> "methods.parts" """
    name = module.removeprefix(PACKAGE).removeprefix(".")
    while name and name not in ROOMS and name not in GROUND:
        name = name.rpartition(".")[0]
    return name


MODULES = modules()


def imported(module):
    """The modules that `module` imports; packages count where nothing in them is named."""
    named = imports(module) - {module, PACKAGE}
    return {name for name in named if not any(n.startswith(name + ".") for n in named)}


def allowed(module, other):
    """Whether the rules let `module` import `other`."""
    here = room(module)
    rights = ROOMS.get(here, set()) | GROUND | {here}
    return other.removeprefix(PACKAGE + ".") in rights or room(other) in rights


def test_every_module_is_in_a_room():
    assert not [module for module in MODULES if not room(module) and module != PACKAGE]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_what_its_room_may(module):
    assert not [other for other in sorted(imported(module)) if not allowed(module, other)]


@cache
def nodes(module):
    """The syntax of a module."""
    return list(ast.walk(ast.parse(file_of(ROOT, module).read_bytes())))


def statements(module):
    """The import statements of a module, those for type checkers, too."""
    return [node for node in nodes(module) if isinstance(node, ast.Import | ast.ImportFrom)]


def loaded(module):
    """What a module gives to `import_module`, but for names that a registry looks up."""
    calls = [node for node in nodes(module) if isinstance(node, ast.Call)]
    names = [call.args[0] for call in calls if "import_module" in ast.unparse(call.func)]
    return [name.value for name in names if isinstance(name, ast.Constant)]


def named(node):
    """Pairs of what an import statement names in full, and what the module calls it."""
    origin = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
    return [(origin + alias.name, alias.asname) for alias in node.names]


def test_imports_have_no_circle_not_even_by_name_or_for_type_checkers():
    graph = nx.DiGraph()
    for module in MODULES:
        imported = [name for node in statements(module) for name, _ in named(node)]
        for name in imported + loaded(module):
            other = name if name in MODULES else name.rpartition(".")[0]
            if other in MODULES and PACKAGE not in (module, other):
                graph.add_edge(module, other)
    assert graph.size() > len(MODULES)
    assert graph.has_edge("fedlib.run.simulate", "fedlib.engine.gossip")  # by name
    assert not list(nx.simple_cycles(graph))


def test_modules_are_called_what_they_are_imported_as():
    names = [pair for module in MODULES for node in statements(module) for pair in named(node)]
    renamed = [name for name, called in names if called not in (None, name.rpartition(".")[2])]
    assert not {*renamed} & {*MODULES}


def test_contributing_draws_every_room_after_those_it_imports():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    picture = re.search(r"^    ground .*?\n\n", text, re.S | re.M)[0]
    drawn = re.findall(r"[a-z_0-9.]+", " ".join(line[16:] for line in picture.splitlines()))
    assert set(drawn) == ROOMS.keys() | GROUND
    for name, rights in ROOMS.items():
        assert not [x for x in rights if drawn.index(room(f"{PACKAGE}.{x}")) > drawn.index(name)]


METHODS = [m for m in MODULES if m.startswith(f"{PACKAGE}.methods.") and ".parts" not in m]


@pytest.mark.parametrize("module", METHODS)
def test_a_method_knows_nothing_of_devices(module):
    assert f"{PACKAGE}.engine.device" not in imported(module)


# Lines of code, without comments and docstrings. One in, one out: what is added takes the place of
# something.
BUDGETS = {("fedlib", "scripts"): 30_210, ("tests",): 24_450}


def code_lines(text):
    """The numbers of the lines that have code: no blank line, comment or docstring -> set"""
    numbered = enumerate(text.splitlines(), 1)
    lines = {i for i, line in numbered if line.strip() and not line.lstrip().startswith("#")}
    for node in ast.walk(ast.parse(text)):
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, kinds) and ast.get_docstring(node) is not None:
            lines -= {*range(node.body[0].lineno, node.body[0].end_lineno + 1)}
    return lines


def test_lines_of_code_are_those_without_words_about_them():
    text = '"""A module."""\n\nx = (\n    1,  # one\n)\n\n# a comment\n'
    assert code_lines(text) == {3, 4, 5}


@pytest.mark.parametrize("folders", BUDGETS, ids=" and ".join)
def test_one_comes_in_where_one_goes_out(folders):
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    found = sum(len(code_lines(file.read_text(encoding="utf-8"))) for file in files)
    assert 0.9 * BUDGETS[folders] < found <= BUDGETS[folders]
