"""The path of every file of the workflow, and the wildcards of every stage."""

from pathlib import Path

# Every file and folder. {raw} and {folder} are the plan's, the rest are wildcards.
_CUT = "{paper}/{federation}{replicate}"
_SEED = "{paper}/{federation}/{label}/seed{seed}"
_RUN = "results/{folder}/runs/" + _SEED
_TABLE = "results/{folder}/tables/{paper}/{table}"
_FIGURE = "figures/{folder}/{paper}/{figure}"
_LOGS = "results/{folder}/logs"
_BENCHMARKS = "results/{folder}/benchmarks"
PATHS = {
    "receipt": "{raw}/{dataset}.json",
    "shards": "results/{folder}/shards/" + _CUT + ".h5",
    "manifest": "results/{folder}/shards/" + _CUT + ".json",
    "runs": "results/{folder}/runs/{paper}",
    "state": _RUN + "/state.pt",
    "history": _RUN + "/history.h5",
    "evaluation": _RUN + "/evaluation.h5",
    # A folder for each run, because TensorBoard names runs by folders; and it looks for "tfevents".
    "events": "results/{folder}/tensorboard/" + _SEED + "/events.out.tfevents.fedlib",
    "checkpoints": "results/{folder}/.checkpoints/" + _SEED,
    "metrics": "results/{folder}/metrics/{paper}.parquet",
    "metrics_csv": "results/{folder}/metrics/{paper}.csv",
    "clients": "results/{folder}/metrics/{paper}.clients.parquet",
    "results": "results/{folder}",
    "estimates": "results/{folder}/estimates.json",
    "code": "results/{folder}/code.json",
    "specification": "results/{folder}/specifications/{digest}.json",
    "budget": "results/{folder}/budget.json",
    "figures": "figures/{folder}",
    "table_csv": _TABLE + ".csv",
    "table_md": _TABLE + ".md",
    "table_tex": _TABLE + ".tex",
    "table_json": _TABLE + ".json",
    "figure_pdf": _FIGURE + ".pdf",
    "figure_png": _FIGURE + ".png",
    "figure_svg": _FIGURE + ".svg",
    "figure_json": _FIGURE + ".json",
    "report": "results/{folder}/REPORT.md",
    "report_html": "results/{folder}/report.html",
    "report_snakemake": "results/{folder}/report-snakemake.html",
    "published": "fedlib/papers/{paper}/published.csv",
    "download_log": _LOGS + "/download/{dataset}.log",
    "partition_log": _LOGS + "/partition/" + _CUT + ".log",
    "train_log": _LOGS + "/train/" + _SEED + ".log",
    "evaluate_log": _LOGS + "/evaluate/" + _SEED + ".log",
    "events_log": _LOGS + "/events/" + _SEED + ".log",
    "metrics_log": _LOGS + "/metrics/{paper}.log",
    "table_log": _LOGS + "/table/{paper}/{table}.log",
    "figure_log": _LOGS + "/figure/{paper}/{figure}.log",
    "report_log": _LOGS + "/report.log",
    "partition_benchmark": _BENCHMARKS + "/partition/" + _CUT + ".jsonl",
    "train_benchmark": _BENCHMARKS + "/train/" + _SEED + ".jsonl",
    "evaluate_benchmark": _BENCHMARKS + "/evaluate/" + _SEED + ".jsonl",
    "events_benchmark": _BENCHMARKS + "/events/" + _SEED + ".jsonl",
    "metrics_benchmark": _BENCHMARKS + "/metrics/{paper}.jsonl",
    "table_benchmark": _BENCHMARKS + "/table/{paper}/{table}.jsonl",
    "figure_benchmark": _BENCHMARKS + "/figure/{paper}/{figure}.jsonl",
    "report_benchmark": _BENCHMARKS + "/report.jsonl",
}

# Wildcards of each stage, in the order in which `python -m fedlib spec` and file names give them.
# A partition has one more where seeds do not share it (`Data.per_seed`): "replicate", "/seed3".
STAGES = {
    "download": ("dataset",),
    "partition": ("paper", "federation"),
    "train": ("paper", "federation", "label", "seed"),
    "evaluate": ("paper", "federation", "label", "seed"),
    "events": ("paper", "federation", "label", "seed"),
    "metrics": ("paper",),
    "table": ("paper", "table"),
    "figure": ("paper", "figure"),
    "report": (),
}
WILDCARDS = {
    "paper": r"[a-z0-9_]+",
    "dataset": r"[a-z0-9_]+",
    "federation": r"[a-z0-9_.-]+",
    "replicate": r"(?:/seed\d+)?",
    "label": r"[a-z0-9_.-]+",
    "table": r"[a-z0-9_-]+",
    "figure": r"[a-z0-9_-]+",
    "seed": r"\d+",
}


def shown(spec: dict, results: str | Path, figures: str | Path) -> list[str]:
    """Files that a report reads: those of tables and figures, and the existing histories of runs.

    Args:
      spec: of the report, as its job is given it.
    """
    files = []
    for paper in spec["papers"]:
        name = paper["name"]
        files += [f"{results}/tables/{name}/{table['name']}.json" for table in paper["tables"]]
        files += [f"{figures}/{name}/{figure['name']}.json" for figure in paper["figures"]]
        histories = [
            f"{results}/runs/{name}/{federation}/{label}/seed{seed}/history.h5"
            for federation, labels in paper["runs"].items()
            for label, seeds in labels.items()
            for seed in seeds
        ]
        files += [file for file in histories if Path(file).exists()]
    return files


def templates(root: Path) -> list[Path]:
    """The templates of the report, in a checkout."""
    return sorted((root / "fedlib/report/pages/templates").iterdir())
