"""How much the demo does: it is the first that anybody sees, and must be a matter of minutes."""

from collections import Counter

from workflow import ROOT

from fedlib.workflow import config
from fedlib.workflow.plan import Plan

BUDGET = 400  # seconds of a core: less than four minutes on two
# Of a core of an AMD EPYC, what a job takes on average: by its own record (`fedlib.run.usage`), and
# what Snakemake, a shell and a fork do for it (0.15). These make 357 s, as a demo took that ran
# beside other work.
PRICES = {
    "download": 0.2,
    "partition": 0.3,
    "tune": 0.8,  # three trials in one process
    "train": 1.05,
    "evaluate": 0.6,
    "metrics": 1.3,
    "table": 0.33,
    "figure": 0.85,
    "report": 4.0,
}
START = 14  # to plan, to import PyTorch, scikit-learn, pandas and Matplotlib once; what is left


def test_the_demo_has_no_more_jobs_than_it_has_time_for():
    plan = Plan(config.read([ROOT / "config.yaml"]) | {"scale": "demo", "papers": None})
    jobs = Counter(stage for stage, _ in plan.jobs())
    assert START + sum(number * PRICES[stage] for stage, number in jobs.items()) <= BUDGET
