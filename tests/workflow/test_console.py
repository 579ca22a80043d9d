"""One line says how far a workflow is, and a failure stands out."""

import io
import logging
import threading
from functools import partial
from types import SimpleNamespace

import pytest

from fedlib.workflow import console, internals
from fedlib.workflow.console import ERASE, Console


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """The time in seconds, as a list of one number to be changed."""
    now = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    return now


def report(console, event, level=logging.INFO, text="", **about):
    """An event, as Snakemake reports it."""
    record = logging.LogRecord("snakemake", level, "", 0, text, None, None)
    vars(record).update({"event": event, **about})
    console.handle(record)


@pytest.fixture
def told(clock):
    """A console that writes to a file, and a function that lets Snakemake report an event to it."""
    made = Console(io.StringIO())
    yield made, partial(report, made)
    made.close()


def begin(tell, number, rule="train", output=(), **wildcards):
    tell("job_info", jobid=number, rule_name=rule, wildcards=wildcards, output=list(output))


RUN = {"paper": "pfedmm", "federation": "digits", "label": "fedem", "seed": "3"}


def test_the_line_says_how_many_jobs_are_done_which_are_at_work_and_how_long_is_left(told, clock):
    made, tell = told
    tell("run_info", stats={"train": 3, "evaluate": 1, "total": 4})
    begin(tell, 1, **RUN)
    assert made.line() == "0 of 4 jobs, 0:00: train pfedmm/digits/fedem/3"
    clock[0] = 60
    tell("job_finished", job_id=1)
    begin(tell, 2, "evaluate", **RUN)
    # A training took a minute, which says nothing of the evaluation.
    assert made.line() == "1 of 4 jobs, 1:00: evaluate pfedmm/digits/fedem/3"
    clock[0] = 62
    tell("job_finished", job_id=2)
    # 2 x 60 s of train, at the 62 seconds of work in 62 seconds that there were.
    assert made.line() == "2 of 4 jobs, 1:02, about 2:00 left: "
    clock[0] = 2 * 3600 + 62
    assert made.line().startswith("2 of 4 jobs, 2:01:02, ")


def test_jobs_side_by_side_take_less_time(told, clock):
    made, tell = told
    tell("run_info", stats={"train": 6, "total": 6})
    for number in (1, 2):
        begin(tell, number, **RUN)
    clock[0] = 10
    for number in (1, 2):
        tell("job_finished", job_id=number)
    assert "about 0:20 left" in made.line()  # 4 x 10 s, two at a time


def test_a_file_gets_a_line_now_and_then_and_one_at_the_end(told, clock):
    made, tell = told
    tell("run_info", stats={"train": 100, "total": 100})
    for number in range(100):
        begin(tell, number, **RUN)
        clock[0] += 1
        tell("job_finished", job_id=number)
    tell(None, text=f"{internals.NAMES_LOG}.snakemake/log/x.log")
    made.close()
    lines = made.stream.getvalue().splitlines()
    assert len(lines) == 4  # after 30, 60 and 90 s, and the end
    assert lines[0].startswith("30 of 100 jobs, 0:30, about 1:10 left")
    assert lines[-1] == "100 of 100 jobs, 1:40; Snakemake's log: .snakemake/log/x.log"


def test_a_terminal_has_one_line_that_is_rewritten_and_fits(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    made = Console(Terminal())
    report(made, "run_info", stats={"train": 1, "total": 1})
    begin(partial(report, made), 1, **RUN)
    assert made.stream.getvalue() == f"{ERASE}0 of 1 jobs, 0:00: "[: len(ERASE) + 19]
    made.close()


def test_a_failure_is_told_with_the_end_of_its_log_and_without_snakemake_s_command(told, tmp_path):
    made, tell = told
    log = tmp_path / "train.log"
    log.write_text("\n".join([*map(str, range(20)), "error: no such \x1b]0;data\x07"]))
    tell("run_info", stats={"train": 2, "total": 2})
    begin(tell, 1, **RUN)
    tell("error", logging.ERROR, f"RuleException:\n{internals.COMMAND_FAILED} 'x', line 3:\nX")
    tell("job_error", logging.ERROR, jobid=1, rule_name="train", log=[str(log)])
    tell("error", logging.ERROR, "WorkflowError:\nAt least one job did not complete successfully.")
    made.close()
    lines = made.stream.getvalue().splitlines()
    assert lines[:2] == ["FAILED: train pfedmm/digits/fedem/3", f"    {log} ends:"]
    assert lines[2:-1] == [f"    | {n}" for n in range(6, 20)] + [
        r"    | error: no such \x1b]0;data\x07"
    ]
    assert lines[-1].startswith("0 of 2 jobs, 1 failed")


@pytest.mark.parametrize("error", [OSError(28, "full"), BrokenPipeError(), ValueError("closed")])
def test_what_cannot_be_written_ends_no_workflow(told, tmp_path, error):
    made, tell = told
    (log := tmp_path / "train.log").touch()
    written, write = [], made.stream.write

    def fail(text):
        written.append(text)
        raise error

    made.stream.write = fail
    tell("run_info", stats={"train": 1, "total": 1})
    tell("job_error", logging.ERROR, jobid=1, rule_name="train", log=[str(log)])
    assert "    | its log is empty; is the disk full?" in written[-1].splitlines()
    made.stream.write = write


def test_jobs_that_end_with_an_interrupt_have_not_failed(told, monkeypatch):
    made, tell = told
    monkeypatch.setattr(console.command, "STOPPING", stopping := threading.Event())
    tell("run_info", stats={"train": 3, "total": 3})
    begin(tell, 1, **RUN)
    stopping.set()
    tell("job_error", logging.ERROR, jobid=1, rule_name="train", log=["x.log"])
    tell("error", logging.ERROR, "WorkflowError:\nAt least one job did not complete successfully.")
    made.close()
    assert made.stream.getvalue() == "0 of 3 jobs, 0:00\n"


def test_the_same_trouble_is_told_once(told, tmp_path):
    made, tell = told
    tell("run_info", stats={"download": 2, "total": 2})
    for number, text in enumerate(["no network"] * 3 + ["no disk"]):
        log = tmp_path / f"{number}.log"
        log.write_text(text)
        begin(tell, number, "download", dataset="emnist")
        tell("job_error", jobid=number, rule_name="download", log=[str(log)])
    written = made.stream.getvalue()
    assert (written.count("    | no network"), written.count("    | no disk")) == (1, 1)
    again = "FAILED: download emnist, with the same lines as download emnist\n"
    assert (written.count("FAILED: "), written.count(again)) == (4, 2)


def test_what_a_cluster_says_of_a_job_is_told(told, tmp_path):
    made, tell = told
    for number in (1, 2):
        begin(tell, number, "download", dataset="emnist")
        said = "SLURM sbatch failed. The error message was 'invalid partition'\n    sbatch call: x"
        named = {"rule_name": "download", "log": [str(tmp_path / f"{number}.log")]}
        tell("job_error", jobid=number, rule_msg=said, **named)
    written = made.stream.getvalue()
    assert written.count("    | SLURM sbatch failed. The error message was 'invalid") == 1
    assert "sbatch call" not in written and "with the same lines as download emnist" in written


def test_what_is_wrong_with_the_workflow_itself_is_told(told):
    made, tell = told
    tell("error", logging.ERROR, "WorkflowError:\nscale: unknown 'big'")
    tell(None, logging.WARNING, "the clock is wrong")
    tell(None, logging.INFO, "Select jobs to execute...")
    assert made.stream.getvalue() == "WorkflowError:\nscale: unknown 'big'\nthe clock is wrong\n"


def test_the_first_table_of_accuracies_is_shown_and_no_other(told, tmp_path):
    made, tell = told
    tell("run_info", stats={"table": 3, "figure": 2, "total": 5})
    for number, name in enumerate(("size", "accuracy1", "accuracy2")):
        table = tmp_path / f"{name}.md"
        table.write_text(f"| table {number} |\n")
        begin(tell, number, "table", [f"{number}.csv", str(table)], paper="pfedmm", table="main")
        tell("job_finished", job_id=number)
    for number, name in enumerate(("skew", "accuracy_over_rounds"), 3):
        begin(tell, number, "figure", [f"{name}.pdf", f"{name}.png"], paper="pfedmm", figure=name)
        tell("job_finished", job_id=number)
    text = made.stream.getvalue()
    assert f"The first table: {tmp_path / 'accuracy1.md'}\n\n| table 1 |\n\n" in text
    assert "table 0" not in text and "table 2" not in text
    assert "The first figure: accuracy_over_rounds.png\n" in text and "skew" not in text


def test_snakemake_speaks_for_itself_unless_asked_otherwise(monkeypatch):
    for asked in ("1", "0", ""):
        monkeypatch.setenv(console.VARIABLE, asked)
        logger, own, log = logging.Logger("x"), logging.StreamHandler(), logging.NullHandler()
        own.name = internals.STREAM_HANDLER
        logger.addHandler(own)
        logger.addHandler(log)
        console.install(logger)
        assert log in logger.handlers
        assert (own not in logger.handlers) is (asked == "1")
        assert any(isinstance(x, Console) for x in logger.handlers) is (asked == "1")


def test_what_snakemake_says_of_profiles_and_files_before_it_begins_is_left_out():
    stream = Terminal()
    quiet = console.Quiet(stream)
    print(file=quiet)
    print("Using workflow specific profile profiles/default for arguments.", file=quiet)
    quiet.write("Config file config.yaml is extended by additional config.\n")
    print("error: Using", file=quiet)
    print(file=quiet)
    assert stream.getvalue() == "\nerror: Using\n\n" and quiet.isatty()


def test_snakemake_has_the_limit_of_jobs_in_a_second_that_the_user_gave_and_no_other():
    types = pytest.importorskip("snakemake.settings.types")
    for given, kept in (("100/1s", False), ("5/1s", True)):
        limit = types.MaxJobsPerTimespan.parse_choice(given)
        settings = types.SchedulingSettings(max_jobs_per_timespan=limit)
        scheduler = SimpleNamespace(job_rate_limiter=limit)
        internals.drop_default_limit(
            SimpleNamespace(scheduling_settings=settings, scheduler=scheduler)
        )
        assert scheduler.job_rate_limiter == (limit if kept else None)
