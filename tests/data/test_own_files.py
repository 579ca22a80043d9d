"""What a user's file imports: which files of theirs are in the code of its runs."""

import os
import site
import sys
from types import SimpleNamespace

import pytest
from workflow import python

from fedlib.workflow import own_files, provenance
from fedlib.workflow.provenance import ROOT

SCRIPT = """
import runpy, sys, torch
from fedlib.workflow import provenance
sys.path.insert(0, sys.argv[1])
runpy.run_path(sys.argv[1] + "/mine/own.py")
provenance.assert_covered(sys.argv[1] + "/mine/own.py", *(n for n in sys.modules if "fedlib" in n))
"""


@pytest.fixture
def digest(tmp_path, monkeypatch):
    """Function that writes files into a new checkout -> the digest of mine/own.py there."""
    versions = iter(range(9))

    def write(files):
        base = tmp_path / str(next(versions))
        monkeypatch.setattr(provenance, "ROOT", base)
        for name, text in files.items():
            (base / name).parent.mkdir(parents=True, exist_ok=True)
            (base / name).write_text(text)
        return provenance.code_digest("mine/own.py")

    return write


CASES = {
    "package": {
        "mine/own.py": "import mine.pack",
        "mine/pack/__init__.py": "from .inner import HALF",
        "mine/pack/inner.py": "HALF = 0.5",
    },
    "above": {
        "mine/own.py": "def f():\n    from mine.pack.inner import a",
        "mine/pack/inner/__init__.py": "from .. import other as a",
        "mine/pack/other.py": "HALF = 0.5",
    },
    "deep": {
        "mine/own.py": "try:\n    import mine.a.b.c\nfinally:\n    pass",
        "mine/a/b/c.py": "def late():\n    import lib.d",
        "lib/d.py": "from lib.e import *",
        "lib/e.py": "HALF = 0.5",
    },
    "init": {
        "mine/own.py": "import mine.helpers, numpy.linalg, torch",
        "mine/helpers.py": "",
        "mine/__init__.py": "HALF = 0.5",
    },
    "beside": {
        "mine/own.py": "import sys\nsys.path.insert(0, 'mine')\nfrom helpers import HALF",
        "mine/helpers.py": "HALF = 0.5",
    },
}


@pytest.mark.parametrize("case", CASES)
def test_an_edit_of_what_it_imports_changes_its_digest_and_a_comment_does_not(case, digest):
    files = CASES[case]
    edited = {name: text.replace("0.5", "50") for name, text in files.items()}
    noted = {name: f"# A remark.\n{text}" for name, text in files.items()}
    before = digest(files)
    assert digest(edited) != before
    assert digest(noted | {"mine/unused.py": "X = 1"}) == before


def test_what_python_is_told_to_find_counts_and_installed_packages_do_not(tmp_path, monkeypatch):
    (tmp_path / "lib" / "tools_of_mine").mkdir(parents=True)
    (tmp_path / "lib/tools_of_mine/losses.py").write_text("HALF = 0.5")
    monkeypatch.syspath_prepend(tmp_path / "lib")
    own_files._known_folders.cache_clear()
    own = tmp_path / "mine/own.py"
    found = own_files.imported_files("tools_of_mine.losses.HALF", own, ROOT)
    assert found == [tmp_path / "lib/tools_of_mine/losses.py"]
    for installed in ("os.path", "numpy.linalg", "torch", "nowhere_at_all", "..far.above", "."):
        assert own_files.imported_files(installed, own, ROOT) == []


def test_a_module_whose_file_is_gone_or_none_is_not_loaded_code(tmp_path, monkeypatch):
    (tmp_path / "there.py").touch()
    for name, file in {"there": tmp_path / "there.py", "gone": tmp_path / "gone.py"}.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(__file__=str(file)))
    mine = [path for path in own_files.loaded_files(ROOT).values() if path.is_relative_to(tmp_path)]
    assert mine == [tmp_path / "there.py"]
    (tmp_path / "link").symlink_to(tmp_path)  # by which the file that imports it was given
    assert f"{tmp_path}/there.py" not in own_files.loaded_files(ROOT, [f"{tmp_path}/link/there.py"])


def test_what_pip_installed_for_the_user_alone_is_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(site, "getusersitepackages", lambda: str(tmp_path / "site"))
    own_files._library_folders.cache_clear()
    assert own_files.is_installed(tmp_path / "site/tools.py")
    assert not own_files.is_installed(tmp_path / "tools.py")
    own_files._library_folders.cache_clear()


@pytest.mark.parametrize("name", ["'mine.' + 'late'", "'mine.seen'"])
def test_a_file_that_is_imported_by_a_computed_name_is_refused(name, tmp_path):
    (tmp_path / "mine").mkdir()
    text = f"import importlib, mine.seen\nimportlib.import_module({name})"
    for file, content in {"own": text, "late": "", "seen": ""}.items():
        (tmp_path / f"mine/{file}.py").write_text(content)
    (tmp_path / "sitecustomize.py").touch()  # which Python runs before every program
    done = python("-c", SCRIPT, tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    told = f"undeclared code dependency {tmp_path}/mine/late.py: loaded by this job"
    assert (told in done.stderr) == ("late" in name) == (done.returncode != 0), done.stderr
