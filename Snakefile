"""Reproduce the papers that config.yaml selects: `snakemake --cores all`, or `make`."""

from snakemake.utils import min_version

min_version("9.17")  # before, priorities could not be functions


configfile: f"{workflow.current_basedir}/config.yaml"


include: "rules/common.smk"
include: "rules/data.smk"
include: "rules/train.smk"
include: "rules/evaluate.smk"
include: "rules/report.smk"


rule all:
    """Every table and figure, and the report."""
    default_target: True
    input:
        PLAN.targets(),
    localrule: True
