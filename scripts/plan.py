"""Print what would run, why, and for how long; or the input of a single job.

  python scripts/plan.py                        what Snakemake would run now, why, how long
  python scripts/plan.py spec STAGE NAME        specification of a job: the --spec of its script
  python scripts/plan.py commands [STAGE NAME]  shell commands, for a machine without Snakemake
  python scripts/plan.py why STAGE NAME         what changed since a job was done

STAGE is download, partition, train, evaluate, events, metrics, table, figure or report. NAME names
one job of the stage: digits (download), pfedmm/digits (partition), pfedmm/digits/fedem/seed0
(train, evaluate, events), pfedmm (metrics), pfedmm/table1 (table, figure), nothing (report). If
every seed has its own partition: adaptive_experts/digits-p0.2/seed0 (partition).
"""

import argparse
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of imports; see command.run

from fedlib.errors import ConfigError
from fedlib.forecast.estimates import Estimates
from fedlib.workflow import command, config, dryrun, narrowing, preflight, shell, why
from fedlib.workflow.plan import Plan
from fedlib.workflow.provenance import ROOT


def main() -> None:
    """Parse the arguments and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what",
        nargs="?",
        default="jobs",
        choices=("jobs", "spec", "commands", "why"),
        help="see above",
    )
    parser.add_argument("job", nargs="*", help="STAGE NAME")
    parser.add_argument(
        "--configfile", nargs="+", default=[], help="YAML or JSON, overrides config.yaml"
    )
    parser.add_argument("--config", nargs="+", default=[], metavar="KEY=VALUE", help="overrides it")
    args = parser.parse_args()

    plan = Plan(config.read([*_base(args.configfile), *args.configfile], args.config))
    if args.what == "jobs":
        _print_jobs(plan, args)
    elif args.what == "commands" and not args.job:
        shell.write_specifications(plan)
        print("\n".join(shell.script(plan)))
    else:
        stage, wildcards = shell.job(*args.job)
        if args.what == "spec":
            print(plan.spec(stage, **wildcards))
        elif args.what == "why":
            print("\n".join(why.lines(plan, stage, wildcards, ROOT, specification=_of_result)))
        else:
            shell.write_specifications(plan)
            print(shell.command(plan, stage, **wildcards))


def _of_result(path: Path) -> dict:
    """The specification that a history or an evaluation is the result of."""
    from fedlib.results import RunResult  # takes half a second to import

    return RunResult.load(path).spec


def _base(overlays: list[str]) -> list[Path]:
    """config.yaml, unless it cannot be read here and another configuration is given."""
    try:
        import yaml  # noqa: F401
    except ModuleNotFoundError:
        if overlays:
            print("PyYAML is not installed: config.yaml is left out", file=sys.stderr)
            return []
    return [ROOT / "config.yaml"]


def _print_jobs(plan: Plan, args: argparse.Namespace) -> None:
    if args.job:
        raise ConfigError(f"jobs takes no name, got {' '.join(args.job)}")
    narrowing.check(plan, ROOT)
    preflight.check_frames(plan, ROOT)
    preflight.check(plan)
    for remark in narrowing.remarks(plan):
        print(remark)
    options = [("--configfile", args.configfile), ("--config", args.config)]
    arguments = [word for option, words in options if words for word in (option, *words)]
    planned = dryrun.jobs(ROOT, arguments)
    known = dryrun.records(ROOT, plan)
    estimates = Estimates.read(ROOT / plan.path("estimates"))
    print("\n".join(dryrun.summary(plan, planned, known, estimates)))


if __name__ == "__main__":
    sys.exit(command.run(main))
