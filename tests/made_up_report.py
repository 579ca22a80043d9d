"""A small folder of results that nobody trained, and the specification of its report."""

from pathlib import Path
from types import SimpleNamespace

import made_up
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedlib.report import pictures, printed
from fedlib.report.figures import numbers, saving
from fedlib.report.metrics.runs import collect
from fedlib.report.tables import render
from fedlib.report.tables.render import Block, Cell, Column, Sheet

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = ROOT / "fedlib/papers/pfedmm/published.csv"
NASTY = "A <b>title</b> & \"quotes\" | 'more' </script> </style> {{ 7 * 7 }}"
FIGURE = {"name": "curves"}  # its specification
VERDICTS = ("yes", "no", "not run")


def criteria() -> Sheet:
    """A table with one criterion of each verdict; the first has what the paper prints."""
    heads = [Column(title) for title in ("Criterion", "Published", "Value", "Reached")]
    rows = [
        [Cell(f"Criterion {n}"), Cell("–" if n else "2, –, 3"), Cell(f"{n}.5"), Cell(x, verdict=x)]
        for n, x in enumerate(VERDICTS)
    ]
    return Sheet(
        label="pfedmm-criteria",
        title=NASTY,
        caption="What was expected.",
        blocks=[Block("", heads, rows)],
        notes=["A note of the criteria.", *shared_notes()],
        numbers=pd.DataFrame(
            {
                "criterion": [row[0].text for row in rows],
                "terms": "A; B; C",
                "kind": ["highest", "descending", "between"],
                "published": [row[1].text for row in rows],
                "value": [f"{row[2].text}, 9" for row in rows],
                "reached": VERDICTS,
            }
        ),
        claims=["Criterion 0", "Criterion 1"],
    )


def shared_notes() -> list[str]:
    """What the main table says, too."""
    return ["Percent; the mean over 2 seeds (smallest to largest seed)."]


def sheets(folder: Path) -> dict[str, Sheet]:
    """The tables, of which the main one is of runs saved below `folder`."""
    exhibit = made_up.exhibit(["fedavg", "pfedmm"], published="main")
    made_up.save_runs(exhibit, folder)
    tidy, clients = collect(made_up.metrics_spec(exhibit), folder)
    main = made_up.build("accuracy", exhibit, tidy, clients, printed.read(PUBLISHED))
    main.notes.extend(shared_notes())
    return {"main": main, "criteria": criteria()}


def drawn() -> Figure:
    """A figure with two lines of one colour in it, the second of which is dashed."""
    figure = Figure(figsize=(3, 2))
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot([0, 1, 2], [0, 1, 4], label="pFedMM")
    axes.plot([0, 1, 2], [4, 4, 0], "--", color="C0", label="a, b")
    axes.set(xlabel="Round", ylabel="Loss", title="EMNIST")
    return figure


def spec(shown: dict[str, Sheet], **changes) -> dict:
    """What `fedlib.workflow.specs.of_report` would say of them."""
    about = {"runs": ["emnist/fedavg", "emnist/pfedmm"]}
    paper = {
        "name": "pfedmm",
        "title": "pFedMM",
        "citation": "Somebody, 2025 (arXiv:2501.00001; official code: some/body).",
        "bibtex": "@misc{somebody2025}",
        "printed": 1234,
        "scale_note": "embedded data, 20 clients, 30 rounds",
        "seeds": [1, 2],
        "federations": [
            {"name": "emnist", "title": "EMNIST", "notes": ["half of the images."]},
            {"name": "cifar10", "title": "CIFAR-10", "notes": []},
        ],
        "data": {"emnist": ["EMNIST", "EMNIST"], "cifar10": ["CIFAR-10", "CIFAR-10"]},
        "runs": {n: {"fedavg": [1, 2], "pfedmm": [1, 2]} for n in ("emnist", "cifar10")},
        "tables": [
            {"name": name, "title": sheet.title, "caption": sheet.caption, "spec": None, **about}
            for name, sheet in shown.items()
        ],
        "figures": [
            {
                **{"name": "curves", "title": "Curves", "caption": "Over_rounds.", "spec": None},
                "runs": ["emnist/pfedmm"],
            }
        ],
        **changes,
    }
    return {**{"folder": "demo", "scale": "demo", "folder_note": ""}, "papers": [paper]}


def project(root: Path) -> SimpleNamespace:
    """A folder with runs, two tables and a figure, and the specification of its report."""
    results, images = root / "results/demo", root / "figures/demo"
    shown = sheets(results / "runs/pfedmm")
    for name, sheet in shown.items():
        forms = ("csv", "md", "tex", "json")
        render.write(sheet, *(results / f"tables/pfedmm/{name}.{form}" for form in forms))
    drawings = [images / f"pfedmm/curves.{form}" for form in ("pdf", "png", "svg")]
    figure = drawn()
    saving.save(figure, *drawings)
    vouched = images / "pfedmm/curves.json"
    pictures.vouch(vouched, drawings, FIGURE, "0" * 16, "0" * 64, numbers.of(figure))
    return SimpleNamespace(
        root=root, results=results, figures=images, spec=spec(shown), sheets=shown
    )
