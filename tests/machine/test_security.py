"""What SECURITY.md claims, claim by claim; what other tests show is named there."""

import ast
import random
import re
import shlex
from functools import cache
from pathlib import Path

import commands
import pytest
import workflow
from workflow import ROOT

from fedlib.cli import arguments, make, run
from fedlib.data import download, downloads
from fedlib.data.raw import RawFile
from fedlib.errors import ConfigError
from fedlib.report.pages import as_html, filling
from fedlib.workflow import config
from fedlib.workflow.layout import STAGES, WILDCARDS
from fedlib.workflow.plan import Plan

PROGRAMS = [*ROOT.glob("fedlib/**/*.py"), *ROOT.glob("scripts/*.py")]
RULES = [ROOT / "Snakefile", *ROOT.glob("rules/*.smk")]


@cache
def calls(path: Path) -> list[tuple[str, ast.Call]]:
    """Every call in a file, with what is called as it is written."""
    tree = ast.parse(path.read_bytes())
    return [(ast.unparse(n.func), n) for n in ast.walk(tree) if isinstance(n, ast.Call)]


def given(call: ast.Call, name: str) -> object:
    """The value of a keyword of a call, if it is a constant."""
    return next(
        (getattr(k.value, "value", None) for k in call.keywords if k.arg == name), "not given"
    )


# -- nothing is unpickled before its checksum is verified, and then without calling anything -------

# Where states are loaded, and whose checksum has been compared by then: the function itself, or
# `fedlib.run.build.verify_file`, which is the only way to a file of weights.
LOADERS = {"fedlib/run/checkpoint.py", "fedlib/models/mobilenet_v2.py"}


def test_torch_loads_weights_only_and_only_where_a_checksum_was_compared():
    found = [
        (str(path.relative_to(ROOT)), given(call, "weights_only"))
        for path in PROGRAMS
        for name, call in calls(path)
        if name == "torch.load"
    ]
    assert sorted(found) == [(file, True) for file in sorted(LOADERS)]


def test_only_the_reader_of_cifar_knows_pickle():
    importing = {
        str(path.relative_to(ROOT))
        for path in PROGRAMS
        if re.search(r"^\s*(import|from) (pickle|cloudpickle|dill|joblib|shelve|marshal)\b",
                     path.read_text(encoding="utf-8"), re.MULTILINE)
    }  # fmt: skip
    assert importing == {"fedlib/data/cifar_batch.py"}


FORBIDDEN = """eval exec compile __import__ os.system os.popen subprocess.getoutput yaml.load
    yaml.unsafe_load yaml.full_load pickle.load pickle.loads np.fromfile tempfile.mktemp
    torch.hub.load torch.jit.load pd.read_pickle""".split()


# Text that the program itself writes: names of its own, of PyTorch's operations, and numbers.
WRITTEN_HERE = ["fedlib/engine/recording.py: exec"]


def test_no_program_calls_what_runs_a_text_or_a_pickle():
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in PROGRAMS
        for name, _ in calls(path)
        if name in FORBIDDEN
    ]
    assert found == WRITTEN_HERE


def test_numpy_reads_no_objects():
    found = [call for path in PROGRAMS for name, call in calls(path) if name == "np.load"]
    assert found and all(given(call, "allow_pickle") is False for call in found)


# -- downloads ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", sorted(downloads.FOLDER.glob("*.toml")), ids=lambda path: path.stem
)
def test_a_file_without_a_checksum_comes_over_tls(path):
    for file in downloads.table(path.stem).files.values():
        for source in (file, getattr(file, "archive", None)):
            if isinstance(source, RawFile) and not source.is_verifiable:
                assert all(url.startswith("https://") for url in source.urls), source.path


class Answer:
    """As much of an answer as tells which way it came."""

    def __init__(self, url: str, *history: str):
        self.url, self.history, self.status_code = url, [Answer(x) for x in history], 200


def test_an_encrypted_address_that_leads_to_an_open_one_gives_no_file_without_a_checksum():
    url, open_url = "https://a.org/f", "http://a.org/f"
    unknown = RawFile("set/f", None, "", urls=(url,))
    known = RawFile("set/f", None, "0" * 64, urls=(url,))
    download._check_answer(Answer("https://b.org/f", url), url, unknown)
    download._check_answer(Answer(open_url, url), url, known)  # its content is compared
    with pytest.raises(download._Failed, match="not encrypted; no checksum is published"):
        download._check_answer(Answer(open_url, url), url, unknown)
    with pytest.raises(download._Failed, match="leads to http://a.org/f"):
        download._check_answer(Answer(url, url, open_url), url, unknown)


def test_certificates_are_checked_and_archives_unpacked_member_by_member():
    for path in PROGRAMS:
        for name, call in calls(path):
            assert given(call, "verify") == "not given", f"{path}: {name}"
            assert not name.endswith((".extractall", "archive.extract")), f"{path}: {name}"


# -- no name in a configuration or declaration reaches a shell as anything but a word -------------

# Placeholders that rules leave unquoted: hexadecimal digits; names of a pattern without a meaning
# for a shell; what `option` has quoted; and one of the choices that a configuration may name.
DIGITS, PATTERN = {"params.code"}, {"wildcards.dataset"}
QUOTED = {f"resources.{name}" for name in "weights choice published mirror".split()}
CHOICES = {"resources.device", "resources.executor", "resources.gpu"}
HOSTILE = [
    *("; touch pwned", "$(touch pwned)", "`touch pwned`", "| touch pwned", "&& touch pwned"),
    *("> pwned", "\ntouch pwned\n", "' ; touch pwned '", '" ; touch pwned "', "<(touch pwned)"),
    *("{output}", "${HOME}", "*", "~", "-rf", "--code", "a b", "\\", "!!", "#"),
]


def test_every_placeholder_of_a_command_is_quoted_or_cannot_hold_a_meaning():
    text = "".join(path.read_text(encoding="utf-8") for path in RULES)
    found = re.findall(r"{([^{}]+)}", "".join(commands.COMMANDS.values()))
    plain = {name for name in found if not name.endswith(":q")}
    assert {*commands.COMMANDS} == {*STAGES} and text.count("shell:\n") == len(STAGES)
    assert plain == DIGITS | PATTERN | QUOTED | CHOICES


def test_the_patterns_of_names_admit_nothing_that_a_shell_reads():
    meant = set("\t\n !\"#$&'()*;<=>?[\\]^`{|}~")
    for name, pattern in WILDCARDS.items():
        begun = [text for text in ("a", "a-b", "0", "/seed0") if re.fullmatch(pattern, text)]
        assert begun, name
        assert not [x for text in begun for x in meant if re.fullmatch(pattern, text + x)], name


def test_no_program_starts_a_shell():
    for path in PROGRAMS:
        for name, call in calls(path):
            assert given(call, "shell") in ("not given", False), f"{path}: {name}"


KEYS = [key for key in config.DEFAULTS if key not in ("raw", "mirror")]
HARMLESS = ["a", "data", "fedem", "0", "[", "]", "=", ","]


@pytest.mark.slow
@pytest.mark.parametrize("key", KEYS)
def test_a_hostile_value_of_a_configuration_is_refused_before_there_is_a_command(key):
    draw = random.Random(key)
    for _ in range(10):
        before, after = (draw.choice(["", *HARMLESS]) for _ in range(2))
        value = before + draw.choice(HOSTILE[:14]) + after
        with pytest.raises(ConfigError):
            Plan(config.read([ROOT / "config.yaml"], ["tag=t", f"{key}={value}"]))


@pytest.mark.parametrize("target", ["demo", "keep", "list"])
def test_hostile_values_of_make_stay_words(target):
    """They are refused, or an argument of a list; there is no shell that would read them."""
    plan = arguments.plan(make.read(target, make.DEFAULTS))
    for value in HOSTILE:
        quoted = shlex.quote(value)
        given = {"PAPER": quoted, "WHAT": quoted}
        given |= {"ARGS": f"--cores {quoted}"} if target == "demo" else {}
        try:
            args = make.read(target, make.DEFAULTS | given)
        except ConfigError:
            continue
        words = [word for step in run.steps(args, plan) for word in step]
        assert all(isinstance(word, str) for word in words)
        words += [getattr(args, "what", ""), getattr(args, "paper", "")]
        assert value in words


@pytest.mark.slow
def test_hostile_folders_are_one_word_of_the_rules_commands(tmp_path):
    """Through Snakemake, which formats the commands and starts Bash, in another directory."""
    code, folder = workflow.copy_checkout(tmp_path / "code"), tmp_path / "elsewhere"
    folder.mkdir()
    raw = "r '; touch pwned; $(touch pwned) `touch pwned` \" | touch pwned"
    mirror = folder / "m '; touch pwned; $(touch pwned)"
    mirror.mkdir()
    words = ["--cores", "1", "--configfile", code / workflow.SMOKE, "--directory", folder]
    words += ["--config", f"raw={raw}", f"mirror={mirror}"]
    done = workflow.snakemake(code, f"{raw}/digits.json", *words)
    assert done.returncode == 0, done.stdout
    assert (folder / raw / "digits.json").exists()
    assert not list(tmp_path.rglob("pwned"))


# -- reports --------------------------------------------------------------------------------------


def test_the_page_of_a_report_escapes_every_text_and_may_load_and_send_nothing():
    assert as_html._template().environment.autoescape is True
    texts = [path.read_text(encoding="utf-8") for path in filling.TEMPLATES.iterdir()]
    assert not any(re.search(r"\|\s*safe\b|autoescape", text) for text in texts)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', "".join(texts))
    assert "default-src 'none'" in policy[1] and "form-action 'none'" in policy[1]
