"""The output of a running workflow: one line of progress, and failures.

    41 of 102 jobs, 3:05, about 2:10 left: train pfedmm/digits/fedem/1234

In a terminal the line is rewritten; a file or the log of a CI gets a new line from time to time.
A failure is shown with the end of the job's log. If there are several papers, the first table is
shown as soon as it is finished. Snakemake's own messages go only to its log, whose name is shown at
the end.

`FEDLIB_PROGRESS=1` turns this on, and `make` sets it. `python -m fedlib.workflow.console` runs
Snakemake without the lines that it prints before it reads the Snakefile.
"""

import contextlib
import logging
import os
import shutil
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple, TextIO

from fedlib.errors import plain
from fedlib.workflow import command, internals
from fedlib.workflow.layout import STAGES

VARIABLE = "FEDLIB_PROGRESS"
TERMINAL_SECONDS, FILE_SECONDS = 1.0, 30.0  # between two lines
ENOUGH = 0.05  # fraction of jobs that must have ended before the time left is shown
LAST_LINES = 15  # of a failed job's log
QUOTE = "    | "  # before each of these lines
ERASE = "\r\033[K"
# The first table is shown and the first figure is named, among those whose names begin with POINT.
SHOWN = {"table": ".md", "figure": ".png"}
POINT = "accuracy"  # what every paper is about


class RunningJob(NamedTuple):
    """A started job and its start time."""

    rule: str
    name: str
    output: list[str]
    began: float


class Console(logging.Handler):
    """Writes Snakemake's events, in place of Snakemake's own handler.

    Attributes:
      stream: gets the output; the line is rewritten if it is a terminal.
      left: number of jobs that have not ended, by rule.
      total: number of all jobs.
      running: jobs that have started, by Snakemake's number.
      took: seconds of the jobs that have ended, by rule.
      failed: number of failed jobs, without those that an interrupt ended.
      said: the first job that ended with these lines, by lines.
      log: path of Snakemake's own log, once known.
    """

    def __init__(self, stream: TextIO):
        super().__init__(logging.INFO)
        self.stream, self.rewritten = stream, stream.isatty()
        self.left: Counter[str] = Counter()
        self.total = self.failed = 0
        self.running: dict[int, RunningJob] = {}
        self.took: dict[str, list[float]] = defaultdict(list)
        self.said: dict[tuple[str, ...], str] = {}
        self.began = self.last_line = time.monotonic()
        self.waits = dict(SHOWN)
        self.log = ""
        self.ended = threading.Event()
        self.clock = threading.Thread(target=self._tick, daemon=True)

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`; ignores events without a function of their name below."""
        event = getattr(record, "event", None) or "message"
        if (handler := getattr(self, f"_on_{event}", None)) is not None:
            handler(record)

    def close(self) -> None:
        """Write the outcome of the workflow, if any job ran."""
        if not self.ended.is_set() and self.total:
            self._write(self._so_far() + (f"; Snakemake's log: {self.log}" if self.log else ""))
        self.ended.set()
        super().close()

    # --- Events of Snakemake ---------------------------------------------------------------------

    def _on_run_info(self, record: logging.LogRecord) -> None:
        self.left = Counter(getattr(record, "stats", {}))
        self.total = self.left.pop("total", 0)
        if self.left["metrics"] == 1:
            self.waits.pop("table", None)  # `make` shows that of the one paper at the end
        if self.total and not self.clock.ident:
            self.clock.start()

    def _on_job_info(self, record: logging.LogRecord) -> None:
        names = record.wildcards
        known = [names[x] for x in STAGES.get(record.rule_name, ()) if x in names]
        name = f"{record.rule_name} {'/'.join(known)}".strip()
        output = [str(file) for file in record.output]
        self.running[record.jobid] = RunningJob(record.rule_name, name, output, time.monotonic())
        self._tell()

    def _on_job_finished(self, record: logging.LogRecord) -> None:
        if (job := self.running.pop(record.job_id, None)) is None:
            return
        self.left[job.rule] -= 1
        self.took[job.rule].append(time.monotonic() - job.began)
        self._show(job)
        self._tell()

    def _on_job_error(self, record: logging.LogRecord) -> None:
        job = self.running.pop(record.jobid, None)
        if command.STOPPING.is_set():
            return
        name = job.name if job else record.rule_name
        self.failed += 1
        log = [line for file in record.log for line in _end(Path(str(file)))]
        # What a cluster says of a job, such as why it was refused or killed, is in no log.
        why, *_ = (getattr(record, "rule_msg", None) or "").splitlines() or [""]
        log += [f"{QUOTE}{why}"] if why else []
        if record.log and not any(line.startswith(QUOTE) for line in log):
            log.append(f"{QUOTE}its log is empty; is the disk full?")
        quoted = tuple(line for line in log if line.startswith(QUOTE))
        if quoted and quoted in self.said:  # another attempt, or a run with the same error
            self._write(f"FAILED: {name}, with the same lines as {self.said[quoted]}")
            return
        self.said[quoted] = name
        self._write("\n".join([f"FAILED: {name}", *log]))

    def _on_error(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        # The log of a failed job has the reason.
        if not (self.failed or command.STOPPING.is_set()) and internals.COMMAND_FAILED not in text:
            self._write(text)

    def _on_message(self, record: logging.LogRecord) -> None:
        if (text := record.getMessage()).startswith(internals.NAMES_LOG):
            self.log = os.path.relpath(text.removeprefix(internals.NAMES_LOG))
        elif record.levelno >= logging.WARNING and not self.failed:
            self._write(text)

    # --- Output ----------------------------------------------------------------------------------

    def line(self) -> str:
        """The line of progress."""
        seconds = self._seconds_left()
        left = "" if seconds is None else f", about {_clock(seconds)} left"
        return f"{self._so_far()}{left}: {', '.join(job.name for job in self.running.values())}"

    def _so_far(self) -> str:
        done = f"{self.total - sum(self.left.values())} of {self.total} jobs"
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{done}{failed}, {_clock(self._runtime())}"

    def _seconds_left(self) -> float | None:
        """Time left, estimated from the jobs that have ended; None if few have, or one kind."""
        done = [seconds for rule in self.took.values() for seconds in rule]
        alike = len(self.took) == 1 < len(self.left)  # a training says nothing of tables
        if alike or len(done) < ENOUGH * self.total or not self._runtime():
            return None
        mean = {rule: sum(seconds) / len(seconds) for rule, seconds in self.took.items()}
        others = min(mean.values())  # of tables and figures, the last and quickest
        work = sum(number * mean.get(rule, others) for rule, number in self.left.items())
        begun = sum(time.monotonic() - job.began for job in self.running.values())
        return max(0.0, work - begun) / max(1.0, (sum(done) + begun) / self._runtime())

    def _show(self, job: RunningJob) -> None:
        """Write the first table of accuracies, and the path of the first such figure."""
        suffix = self.waits.get(job.rule, ".")
        for file in map(Path, job.output):
            if file.suffix == suffix and file.name.startswith(POINT):
                del self.waits[job.rule]
                self._write(f"The first {job.rule}: {file}")
                if suffix == ".md":
                    self._write(f"\n{file.read_text(encoding='utf-8').strip()}\n")

    def _tell(self) -> None:
        if self.rewritten:
            self._put(ERASE + plain(self.line())[: shutil.get_terminal_size().columns - 1])
        elif time.monotonic() - self.last_line >= FILE_SECONDS:
            self._write(self.line())

    def _tick(self) -> None:
        while not self.ended.wait(TERMINAL_SECONDS if self.rewritten else FILE_SECONDS):
            with self.lock:
                self._tell()

    def _write(self, text: str) -> None:
        """Write a line that stays."""
        self.last_line = time.monotonic()
        self._put(f"{ERASE if self.rewritten else ''}{plain(text)}\n")

    def _put(self, text: str) -> None:
        """Write; a full disk or a closed pipe must not end a workflow of days."""
        with contextlib.suppress(OSError, ValueError):
            self.stream.write(text)
            self.stream.flush()

    def _runtime(self) -> float:
        return time.monotonic() - self.began


def install(logger: logging.Logger) -> None:
    """Let Snakemake's `logger` write through a `Console`, if `FEDLIB_PROGRESS` asks for it."""
    if os.environ.get(VARIABLE) != "1":
        return
    logging.raiseExceptions = False  # a full disk: Snakemake's own log would print tracebacks
    for handler in list(logger.handlers):
        if handler.name == internals.STREAM_HANDLER:
            logger.removeHandler(handler)
            logger.addHandler(Console(sys.stderr))


class Quiet:
    """A stream without the lines that begin like one of `internals.FIRST_LINES`."""

    def __init__(self, stream: TextIO):
        self.stream, self.left_out = stream, False

    def write(self, text: str) -> int:
        """See `TextIO`; the end of an omitted line may come in a call of its own."""
        begins, rest = text.startswith(internals.FIRST_LINES), self.left_out and text == "\n"
        self.left_out = begins and not text.endswith("\n")
        return len(text) if begins or rest else self.stream.write(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


def main() -> None:
    """Run Snakemake."""
    command.tell_interrupts()
    if os.environ.get(VARIABLE) == "1":
        sys.stderr = Quiet(sys.stderr)
    internals.run()


def _end(log: Path) -> list[str]:
    """The end of a job's log, each line after `QUOTE`."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return [f"    {log} was not written"]
    quoted = [f"    {log}{' ends:' if len(lines) > LAST_LINES else ':'}"]
    return quoted + [QUOTE + line for line in lines[-LAST_LINES:]]


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


if __name__ == "__main__":
    main()
