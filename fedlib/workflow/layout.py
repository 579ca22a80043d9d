"""The path of every file of the workflow, and the wildcards of every stage."""

from pathlib import Path

# Every file and folder. {raw} and {folder} are the plan's, the rest are wildcards.
_CUT = "{paper}/{federation}{replicate}"
_SEED = "{paper}/{federation}/{label}/seed{seed}"
_TUNED = "results/{folder}/tuned/{paper}/{federation}/{label}{for_seed}"
_RUN = "results/{folder}/runs/" + _SEED
_TABLE = "results/{folder}/tables/{paper}/{table}"
_FIGURE = "figures/{folder}/{paper}/{figure}"
PATHS = {
    "receipt": "{raw}/{dataset}.json",
    "shards": "results/{folder}/shards/" + _CUT + ".h5",
    "manifest": "results/{folder}/shards/" + _CUT + ".json",
    "trials": _TUNED + "/trials.json",
    "choice": _TUNED + "/choice.json",
    "runs": "results/{folder}/runs/{paper}",
    "state": _RUN + "/state.pt",
    "history": _RUN + "/history.h5",
    "evaluation": _RUN + "/evaluation.h5",
    "checkpoints": "results/{folder}/.checkpoints/" + _SEED,
    "tuning": "results/{folder}/.checkpoints/{paper}/{federation}/{label}/tuning{for_seed}",
    "metrics": "results/{folder}/metrics/{paper}.parquet",
    "metrics_csv": "results/{folder}/metrics/{paper}.csv",
    "clients": "results/{folder}/metrics/{paper}.clients.parquet",
    "results": "results/{folder}",
    "estimates": "results/{folder}/estimates.json",
    "specification": "results/{folder}/specifications/{digest}.json",
    "budget": "results/{folder}/budget.json",
    "figures": "figures/{folder}",
    **{f"table_{form}": f"{_TABLE}.{form}" for form in ("csv", "md", "tex", "json")},
    **{f"figure_{form}": f"{_FIGURE}.{form}" for form in ("pdf", "png", "svg", "json")},
    "report": "results/{folder}/REPORT.md",
    "report_html": "results/{folder}/report.html",
    "published": "fedlib/papers/{paper}/published.csv",
    "curves": "fedlib/papers/{paper}/curves.csv",
}

# Wildcards of each stage, in the order of `python -m fedlib spec` and of file names. A partition
# has one more, if seeds do not share it (`Data.per_seed`): "replicate", such as "/seed3"; so has a
# tuning (`Tuning.per_seed`): "for_seed".
STAGES = {
    "download": ("dataset",),
    "partition": ("paper", "federation"),
    "tune": ("paper", "federation", "label"),
    "train": ("paper", "federation", "label", "seed"),
    "evaluate": ("paper", "federation", "label", "seed"),
    "metrics": ("paper",),
    "table": ("paper", "table"),
    "figure": ("paper", "figure"),
    "report": (),
}
for _stage, _names in STAGES.items():
    _parts = ["seed{seed}" if name == "seed" else f"{{{name}}}" for name in _names]
    _place = "/".join([_stage, *_parts])
    _end = {"partition": "{replicate}", "tune": "{for_seed}"}.get(_stage, "")
    PATHS[f"{_stage}_log"] = f"results/{{folder}}/logs/{_place}{_end}.log"
# Files of each stage: those with `seals.Made`, and those whose digest it contains.
RESULTS = {
    "partition": (("shards",), ("manifest",)),
    "tune": (("trials",), ("choice",)),
    "train": (("history",), ("state",)),
    "evaluate": (("evaluation",), ()),
    "metrics": (("metrics",), ("clients", "metrics_csv")),
    "table": (("table_json",), ("table_csv", "table_md", "table_tex")),
    "figure": (("figure_json",), ("figure_pdf", "figure_png", "figure_svg")),
    "report": (("report", "report_html"), ()),
}
MAKERS = {"receipt": "download"}  # of each of these files
MAKERS |= {x: stage for stage, kinds in RESULTS.items() for kind in kinds for x in kind}
WILDCARDS = {
    "paper": r"[a-z0-9_]+",
    "dataset": r"[a-z0-9_]+(?:-[\w.-]+)?",
    **dict.fromkeys(("federation", "label"), r"[a-z0-9_.-]+"),
    **dict.fromkeys(("table", "figure"), r"[a-z0-9_-]+"),
    "seed": r"\d+",
    **dict.fromkeys(("replicate", "for_seed"), r"(?:/seed\d+)?"),
}


def report_inputs(spec: dict, results: str | Path, figures: str | Path) -> list[str]:
    """Files that a report reads: of tables and figures, and existing histories of runs.

    Args:
      spec: specification of the report's job.
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
    """The templates of the report in a checkout."""
    return sorted((root / "fedlib/report/pages/templates").glob("[!.]*.*"))
