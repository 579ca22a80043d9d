"""How much the demo does: it is the first that anybody sees, and must be a matter of minutes."""

from collections import Counter

from workflow import ROOT

from fedlib.workflow import config
from fedlib.workflow.plan import Plan

BUDGET = 640  # seconds of a core: five minutes and twenty seconds on two
# Of a core of a Xeon, what a job takes on average: by its own record (`fedlib.run.spent`), and what
# Snakemake does for it (0.2) and a shell that asks for a fork (0.1). These make 532 s of a demo
# that took 336 as a whole, on idle cores.
PRICES = {
    "download": 0.4,
    "partition": 0.5,
    "tune": 1.5,  # three trials in one process; estimated
    "train": 1.86,
    "evaluate": 1.14,
    "metrics": 2.0,
    "table": 0.6,
    "figure": 1.1,
    "report": 4.0,
}
START = 40  # to plan, to import PyTorch, scikit-learn, pandas and Matplotlib once; what is left


def test_the_demo_has_no_more_jobs_than_it_has_time_for():
    plan = Plan(config.read([ROOT / "config.yaml"]) | {"scale": "demo", "papers": None})
    jobs = Counter(stage for stage, _ in plan.jobs())
    assert START + sum(number * PRICES[stage] for stage, number in jobs.items()) <= BUDGET
