import ast
import textwrap
from pathlib import Path

import pytest
from workflow import python

from fedlib import run_spec
from fedlib.errors import StaleCodeError
from fedlib.workflow import provenance


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Function that writes a package called fedlib, and makes digests be those of its code."""

    class Writer:
        versions = 0

        def __call__(self, sources=(), **modules):
            # A folder for each version, because what was parsed is remembered by its path.
            Writer.versions += 1
            base = tmp_path / str(Writer.versions)
            for name, source in {"__init__": "", **dict(sources), **modules}.items():
                file = base / ("" if name.startswith("scripts/") else "fedlib") / f"{name}.py"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(textwrap.dedent(source))
            monkeypatch.setattr(provenance, "ROOT", base)

        def digest(self, source, **others):
            self(a=source, **others)
            return provenance.code_digest("fedlib.a")

    return Writer()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """File in which meanings are remembered; a process that knows none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    provenance.meanings.cache_clear()
    yield tmp_path / "cache" / "fedlib" / "meanings.json"
    provenance.meanings.cache_clear()


SOURCE = """
    def f(x, *, y=1):
        total = x + y  # add
        if total is None:
            raise ValueError(f"no total of {x}", y)
        return f"{x:>{y}} is {total}"

    class C:
        z: int = 2
    """


@pytest.mark.parametrize(
    "same",
    [
        SOURCE.replace("  # add", ""),
        SOURCE.replace("# add", "# something else altogether"),
        '"""A docstring."""\n' + textwrap.dedent(SOURCE),
        SOURCE.replace("total = x", '"""What f does."""\n        total = x'),
        SOURCE.replace("x + y", "(\n            x\n            + y\n        )"),
        SOURCE.replace('f"{x:>{y}} is {total}"', "f'{x:>{y}} ' f'is {total}'"),
        SOURCE + "\n\n",
        SOURCE.replace('f"no total of {x}"', '"no sum"'),
        SOURCE.replace("f(x, *, y=1):", "f(x: int, *, y: float = 1) -> str:"),
        SOURCE.replace("total = x", "total: float = x"),
        SOURCE.replace("total = x", "late: str\n        total = x"),
        SOURCE.replace("z: int = 2", 'z: int = 2\n        look = "C", "#000000", "o"'),
    ],
    ids="no-comment comment module-doc doc layout quotes blank-lines error arguments variable "
    "declaration look".split(),
)
def test_text_that_means_the_same_has_the_same_digest(package, same):
    assert package.digest(same) == package.digest(SOURCE)


@pytest.mark.parametrize(
    "old, new",
    [
        ("x + y", "x - y"),
        ("y=1", "y=1.0"),
        ("y=1", "y=True"),
        ("*, y", "y"),
        ("is {total}", "is  {total}"),
        (":>{y}", ":<{y}"),
        ("return", "yield"),
        ("ValueError", "TypeError"),
        ('{x}", y)', '{x}", x)'),
        ("is None", "is not None"),
        ("z: int", "z: ClassVar[int]"),
        ("z: int = 2", "z = 2"),
    ],
)
def test_every_change_of_meaning_changes_the_digest(package, old, new):
    assert package.digest(SOURCE.replace(old, new)) != package.digest(SOURCE)


@pytest.fixture
def restarted(package, monkeypatch):
    """Function: the digest of modules as a new process finds it, and the files that it parses."""
    parse = ast.parse

    def restart(**modules):
        package(**modules)
        provenance.meanings.cache_clear()
        parsed = []
        monkeypatch.setattr(
            ast, "parse", lambda *given: parsed.append(Path(given[1]).name) or parse(*given)
        )
        digest = provenance.code_digest("fedlib.a")
        provenance.meanings().write()
        return digest, [name for name in parsed if name != "__init__.py"]

    return restart


def test_a_file_is_parsed_once_by_all_processes_and_again_when_it_is_edited(restarted):
    code = {"a": "import fedlib.b", "b": "X = 1"}
    before, parsed = restarted(**code)
    assert sorted(parsed) == ["a.py", "b.py"]
    after, parsed = restarted(**code | {"b": "X = 2"})
    assert after != before and parsed == ["b.py"]
    assert restarted(**code) == (before, [])


def test_the_same_text_in_another_package_means_something_else(package):
    """A relative import is of another module there."""
    code = {"__init__": "", "b": "from . import x", "x": ""}
    package({f"{name}/{file}": text for name in ("one", "two") for file, text in code.items()})
    for name in ("one", "two"):
        assert f"fedlib.{name}.x" in provenance.closure(f"fedlib.{name}.b")


def test_what_was_remembered_by_other_rules_is_not_used(restarted, monkeypatch):
    restarted(a="")
    monkeypatch.setattr(provenance, "_RULES", "others")
    assert restarted(a="")[1] == ["a.py"]


def test_closure_follows_every_kind_of_import(package):
    package(
        {
            "pkg/__init__": "from ..h import x",
            "pkg/e": "from . import sibling\nfrom .. import i",
            "pkg/sibling": "",
            "pkg/unused": "",
        },
        a="import fedlib.b\nfrom fedlib import c\nfrom . import d\nfrom .pkg import e",
        b="def late():\n    from fedlib.f import g",
        c="import numpy\nimport fedlibrary",
        d="",
        f="",
        h="",
        i="",
        unused="",
    )
    names = "b c d f h i pkg pkg.e pkg.sibling".split()
    expected = ["fedlib", "fedlib.a", *(f"fedlib.{name}" for name in names)]
    assert provenance.closure("fedlib.a") == tuple(sorted(expected))


def test_the_parent_packages_of_a_root_are_in_its_closure_and_imports_may_be_circular(package):
    code = {"pkg/__init__": "import fedlib.b", "pkg/a": "", "scripts/do": "import fedlib.pkg.a"}
    package(code, b="import fedlib.c", c="import fedlib.b")
    names = ("fedlib", "fedlib.b", "fedlib.c", "fedlib.pkg", "fedlib.pkg.a", "scripts/do.py")
    assert provenance.closure("scripts/do.py") == names


def test_what_only_a_type_checker_imports_does_not_count(package):
    guarded = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import fedlib.b\n"
    package(a=guarded + "else:\n    import fedlib.c\n", b="", c="")
    assert provenance.closure("fedlib.a") == ("fedlib", "fedlib.a", "fedlib.c")
    without = package.digest("from typing import TYPE_CHECKING\n", b="")
    assert package.digest(guarded, b="") == without


@pytest.mark.parametrize(
    "source",
    [
        "try: pass\nexcept ImportError: import fedlib.b",
        "try: pass\nexcept* ValueError: import fedlib.b",
        "try: pass\nfinally: import fedlib.b",
        "match 1:\n    case 1: import fedlib.b",
        "with open('x'):\n    for _ in ():\n        pass\n    else: import fedlib.b",
        "while False: pass\nelse: import fedlib.b",
        "if 1: pass\nelif 2: import fedlib.b",
        "class K:\n    async def late(self):\n        async for _ in self: import fedlib.b",
    ],
)
def test_an_import_counts_in_every_kind_of_block(package, source):
    package(a=source, b="")
    assert provenance.closure("fedlib.a") == ("fedlib", "fedlib.a", "fedlib.b")


def test_a_change_anywhere_in_the_closure_and_nowhere_else_changes_the_digest(package):
    before = package.digest("import fedlib.b", b="import fedlib.c", c="X = 1", d="")
    assert package.digest("import fedlib.b", b="import fedlib.c", c="X = 2", d="") != before
    assert package.digest("import fedlib.b", b="import fedlib.c", c="X = 1", d="Y = 1") == before
    assert package.digest("import fedlib.b", b="import fedlib.c\nX = 1", c="", d="") != before


def test_the_looks_of_methods_count_for_what_shows_them(monkeypatch):
    roots = "fedlib.report.looks", "fedlib.report.frames"

    def digests():
        provenance._code_digest.cache_clear()
        return [provenance.code_digest(root) for root in roots]

    before, looks = digests(), run_spec.methods() | {"fedavg": ("FedAvg", "#FFFFFF", "o", "solid")}
    monkeypatch.setattr(run_spec, "methods", lambda: looks)
    after = digests()
    provenance._code_digest.cache_clear()
    assert [one != other for one, other in zip(before, after, strict=True)] == [True, False]


def test_a_new_module_is_registered_by_its_file_and_changes_no_other_digest(package):
    package(dict.fromkeys(("pkg/__init__", "pkg/one", "pkg/part/two", "pkg/_it"), ""))
    before = provenance.code_digest("fedlib.pkg.one")
    package(dict.fromkeys(("pkg/__init__", "pkg/one", "pkg/three"), ""))
    assert provenance.code_digest("fedlib.pkg.one") == before
    assert provenance.registry("pkg") == ("one", "three")


def test_a_root_that_does_not_exist_is_refused(package):
    package(a="")
    with pytest.raises(ModuleNotFoundError, match=r"no fedlib\.nothing in .*must exist"):
        provenance.code_digest("fedlib.nothing")


def test_planned_code_is_compared_with_the_code_on_disk():
    digest = provenance.code_digest("fedlib.spec")
    provenance.check_code(digest, "fedlib.spec")
    provenance.check_code(None, "fedlib.spec")
    with pytest.raises(StaleCodeError, match=f"planned 0123456789abcdef, found {digest}"):
        provenance.check_code("0123456789abcdef", "fedlib.spec")


def test_a_job_that_loads_what_was_not_declared_fails():
    script = (
        "import importlib\nfrom fedlib.workflow import provenance\n"
        "importlib.import_module('fedlib.spec')\n"
        "provenance.assert_covered('fedlib.spec')\n"
        "provenance.assert_covered('fedlib')"
    )
    done = python("-c", script)
    assert "line 5" in done.stderr
    assert (
        "undeclared code dependency " in done.stderr and " fedlib.spec.contrasts, " in done.stderr
    )
    assert "import it statically or add it to the job's roots" in done.stderr


def test_plumbing_is_in_no_digest(package):
    def digest(size, rounds):
        code = {"checkpoint": f"SIZE = {size}", "simulate": f"ROUNDS = {rounds}", "__init__": ""}
        code = {f"run/{name}": text for name, text in code.items()}
        package(code, a="from fedlib.run import checkpoint, simulate")
        return provenance.code_digest("fedlib.a")

    assert digest(1, 1) == digest(2, 1) != digest(1, 2)


def test_plumbing_reaches_nothing_that_computes():
    ground = {"fedlib", "fedlib.fields", "fedlib.run", "fedlib.run_spec"}
    assert set(provenance.reachable(*provenance.PLUMBING)) <= provenance.PLUMBING | ground
