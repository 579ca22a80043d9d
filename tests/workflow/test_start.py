"""What is imported: most of a short job's time is the import of packages that it may not need."""

import pytest
import stages
from support import only_in_ci
from workflow import python

from fedlib.results import RunResult

COMPILERS = ("torch._dynamo", "torch._inductor", "sympy", "triton")
OTHERS = ("torchvision", "pandas", "pyarrow", "scipy", "matplotlib")


def loaded(program: str) -> set[str]:
    """Names in `sys.modules` after a Python program."""
    program += "\nimport sys; print('\\n', *sys.modules)"
    done = python("-c", program, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("program", "unneeded"),
    [
        ("import fedlib", ("numpy", "torch", "pandas")),
        ("from fedlib.environment import environment; environment()", ("torch", "numpy", "h5py")),
        (
            "import fedlib.data.build, fedlib.data.sources, fedlib.data.partitions",
            ("fedlib.data.sources.", "fedlib.data.partitions."),
        ),
        (
            "from fedlib.workflow.plan import Plan; plan = Plan({})\n"
            "import fedlib.workflow.freshness\n"
            "[(plan.spec(s, **w), plan.code(s, **w)) for s, w in plan.jobs()]",
            ("torch", "numpy", "pandas", "yaml"),
        ),
        pytest.param(
            "import fedlib.report.metrics, fedlib.report.pages.as_html\n"
            "from importlib import import_module\n"
            "from fedlib.spec.exhibits import KINDS\n"
            "modules = {(s, x.drawn_by) for s in KINDS for x in KINDS[s].values()}\n"
            "[import_module(f'fedlib.report.{s}s.{x}') for s, x in modules]",
            ("torch", "fedlib.engine", "fedlib.methods", "matplotlib.pyplot"),
            marks=[pytest.mark.slow, only_in_ci],
        ),
    ],
    ids=["fedlib", "the environment", "registries", "a plan", "the report"],
)
def test_nothing_is_imported_that_is_not_needed(program, unneeded):
    assert not [name for name in loaded(program) if name.startswith(unneeded)]


@only_in_ci
@pytest.mark.slow
def test_training_and_evaluation_import_pytorch_but_no_compiler_and_no_tables(tmp_path):
    folder = stages.shards(tmp_path) / "run"
    given = {"train": stages.options(folder), "evaluate": stages.evaluation(folder)}
    program = ["import runpy, sys"]
    for stage, words in given.items():
        program += [
            f"sys.argv[:] = {[f'scripts/{stage}.py', *words]!r}",
            "try: runpy.run_path(sys.argv[0], run_name='__main__')",
            "except SystemExit as done: assert not done.code, done.code",
        ]
    modules = loaded("\n".join(program))
    assert "torch" in modules
    assert not modules & {*COMPILERS, *OTHERS}
    evaluated = RunResult.load(folder / "evaluation.h5").diagnostics
    assert evaluated["flops_per_example"] > 0  # counting needs no compiler either
