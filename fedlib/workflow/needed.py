"""Snakemake's dry run, up to where it would print: the jobs that are needed, and why.

    python -m fedlib.workflow.needed FILE --dry-run [OPTIONS OF SNAKEMAKE]

writes a line of JSON per job to FILE: rule, wildcards, and the reason in Snakemake's words. It is
the same graph of jobs, for which all is done that a dry run does, but no job's resources are looked
up and no command is written out. Of ten thousand jobs that is two thirds of the time.
"""

import gc
import json
import sys
from pathlib import Path

from snakemake import cli, workflow


class Teller:
    """In place of Snakemake's scheduler, which would print the jobs one after the other.

    Attributes:
      file: to write to.
    """

    file: Path

    def __init__(self, planned: workflow.Workflow, *_):
        self._dag = planned.dag

    def schedule(self) -> bool:
        """Write all jobs that have an output and are needed; True, as nothing failed."""
        jobs = [job for job in self._dag.needrun_jobs() if job.output]
        lines = [
            json.dumps([job.rule.name, job.wildcards_dict, str(self._dag.reason(job))])
            for job in jobs
        ]
        self.file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return True


def main() -> None:
    """Be Snakemake, with another scheduler."""
    gc.disable()  # a graph is no garbage; to look for some in it again and again takes a tenth
    Teller.file = Path(sys.argv[1])
    if not hasattr(workflow, "JobScheduler"):
        raise RuntimeError("this Snakemake has its scheduler elsewhere")
    workflow.JobScheduler = Teller
    cli.main(sys.argv[2:])


if __name__ == "__main__":
    main()
