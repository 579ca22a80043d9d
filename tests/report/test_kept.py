"""What is kept of a paper, and what its packs say."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pictures
import pytest
import same
import standing
from conftest import toy_paper
from support import EVERYTHING, REPRODUCED
from test_published_shown import NOT_SHOWN

from fedlib import papers, seals
from fedlib.cli import arguments, keep, take
from fedlib.report import exhibits, packs
from fedlib.report.figures import numbers
from fedlib.report.metrics.definitions import PRIMARY
from fedlib.report.pages import kept
from fedlib.report.tables import render
from fedlib.workflow import config
from fedlib.workflow.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
KEPT_IN = ROOT / "docs/results"


def test_a_page_says_first_if_runs_of_it_are_not_of_a_commit():
    told = {}
    for report in KEPT_IN.rglob("REPORT.md"):
        committed = re.search("- working tree as committed: (.*)", report.read_text())[1]
        page = next(x / "README.md" for x in report.parents if (x / "README.md").exists())
        told.setdefault(page, []).append("no" in committed)
    for page, have in told.items():
        head = "".join(page.read_text().splitlines()[:4])
        assert ("not committed" in head) == any(have), page


def test_of_what_a_budget_bought_for_several_papers_those_of_one_are_kept(
    declare, tmp_path, monkeypatch, capsys
):
    declare(toy=toy_paper(), other=toy_paper(name="other"))
    bought = {"runs": ["toy/digits/fedem", "other/digits/fedavg"], "budget": None}
    (tmp_path / "budget.json").write_text(json.dumps(bought))
    monkeypatch.setattr(keep, "_keep", lambda plan, *_: (print(*map(str, plan.runs)), 0))
    words = ["keep", "toy", "--out", tmp_path / "out", "--configfile", tmp_path / "budget.json"]
    keep.main(arguments.read([*map(str, words)]))
    assert capsys.readouterr().out.startswith("toy/digits/fedem\n")


def test_a_comparison_with_one_member_is_not_kept():
    def worth(kind, runs, published=None, stage="table"):
        return kept.is_worth_keeping(stage, {"kind": kind, "runs": runs, "published": published})

    one, two = [{"label": "fedavg"}], [{"label": "fedavg"}, {"label": "fedem"}]
    for kind in ("accuracy", "gains"):
        assert not worth(kind, one) and worth(kind, two)
    for kind in ("sweep", "protocol_sweep", "accuracy_over_bytes", "gain_bars"):
        assert not worth(kind, one, stage="figure") and worth(kind, two, stage="figure")
    assert worth("accuracy", one, "main")
    assert worth("accuracy_over_rounds", one, "curve-end", stage="figure")
    assert not worth("gains", one, "main")  # over nobody
    assert not worth("spreads", one, "text") and worth("spreads", two, "text")
    assert not worth("protocol_sweep", one, "table2", stage="figure")
    # About a run by itself.
    assert worth("criteria", one) and worth("label_leakage", one, stage="figure")


def criteria(folder, *rows):
    names = ("criterion", "kind", "value", "reached")
    folder.mkdir(parents=True)
    pd.DataFrame([("a", *rows[0]), ("b", *rows[1])], columns=names).to_csv(folder / "criteria.csv")


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([("highest", "9.0, 8.0", "yes"), ("descending", "+2.0, −1.0", "yes")], "shown"),
        ([("highest", "9.0, 8.0", "yes"), ("highest", "7.0, 8.0", "no")], "in part (1 of 2)"),
        ([("highest", "7.0, 8.0, 9.0", "no"), ("highest", "7.0, 8.0", "no")], "opposite"),
        ([("highest", "8.0, 7.0, 9.0", "no"), ("highest", "7.0, 8.0", "no")], "not shown"),
    ],
)
def test_a_main_claim_is_shown_or_not_or_opposite(tmp_path, rows, told):
    criteria(tmp_path / "toy/reduced", *rows)
    assert standing.claim("toy", ["a", "b"], tmp_path) == f"{told}, at scale reduced"
    assert standing.claim("toy", ["c"], tmp_path) == "–"
    criteria(tmp_path / "toy/full/inner", ("highest", "1.0, 2.0", "not run"), rows[1])
    assert standing.claim("toy", ["a"], tmp_path).endswith("at scale reduced")
    assert standing.claim("toy", ["b"], tmp_path).endswith("at scale full")


def test_the_tables_of_papers_are_what_is_kept():
    stand, text = {}, (ROOT / "README.md").read_text(encoding="utf-8")
    for name in REPRODUCED:
        declared = [papers.load(name).declare(scale) for scale in ("full", "reduced")]
        found = [x for one in declared for x in one.tables["criteria"].params["criteria"]]
        claims = tuple(x["title"] for x in found if x.get("main"))
        assert claims, f"{name} has no criterion that is about its main claim"
        numbers = ROOT / f"fedlib/papers/{name}/published.csv"
        others = (getattr(x, "others", None) or () for x in declared[0].tables.values())
        never = {label for labels in others for label in labels}
        never |= {metric for *_, metric in NOT_SHOWN[name]}
        stand[name] = standing.Paper(declared[0].title, numbers, claims, frozenset(never))
    assert standing.claims(stand, KEPT_IN) in text
    assert standing.numbers(stand, KEPT_IN) in (KEPT_IN / "README.md").read_text(encoding="utf-8")
    found = standing.all_counts(stand, KEPT_IN).loc["all"]
    told = " ".join(text.split())
    assert f"we have run {found['run']} of {found['published']} numbers" in told
    run, near, more = found["printed_run"], found["printed_near"], found["printed_more"]
    assert f"We ran {run} of the numbers that the five papers print" in told
    assert f"{near} are within two points, or {near + more} if, as it seems" in told
    local = 10  # rows of Adaptive Expert Models' Local, all within two points
    assert f"without these rows it is {near - local} of {run - local}" in told
    every, others = found["near"], found["near"] + found["more"]
    assert f"it is {every} of {found['run']}, or {others} with the names put right" in told
    four, two = standing.judged("fedmix", stand["fedmix"].claims, KEPT_IN)[0]["value"].str[1:]
    assert f"by {four} points with 4 experts (pub" in told and f"by {two} with 2 (pub" in told


def test_of_pfedmms_leads_only_the_one_at_unlike_rates_is_clear():
    text = " ".join((KEPT_IN / "pfedmm/README.md").read_text(encoding="utf-8").split())

    def counts(page: str, label: str) -> pd.DataFrame:
        rows = pd.read_parquet(KEPT_IN / "pfedmm/full" / page / "pack/clients.parquet")
        where = {"label": label, "at": "last", **PRIMARY._asdict()}
        return exhibits.pick(rows, **where).sort_values("client")[["correct", "count"]].to_numpy()

    mine = counts("pfedmm", "pfedmm")
    drawn = np.random.default_rng(0).integers(0, len(mine), (20_000, len(mine)))
    others = ("FedEM", "fedem", "fedem"), ("FedAvg at 0.03", "rates", "fedavg-heads-rate")
    for name, *where in (*others, ("FedAvg at 0.01", "fedavg", "fedavg")):
        ahead, images = (mine - counts(*where))[:, 0], mine[:, 1]
        leads = 100 * ahead[drawn].sum(1) / images[drawn].sum(1)
        bounds = [f"{x:.1f}" for x in np.quantile(leads, (0.025, 0.975))]
        low, high = (x.replace("-0.0", "0.0").replace("-", "−") for x in bounds)
        assert re.search(f"over {name} (are )?between {low} and {high}", text)


KEPT = sorted(KEPT_IN.rglob("pack"))
AT_SCALE = sorted(KEPT_IN.glob(f"*/full/**/{packs.ARCHIVE}"))


def of_each(packs):
    return pytest.mark.parametrize("pack", packs, ids=lambda pack: str(same.where(pack)))


def to_draw(stage: str) -> dict[Path, list[str]]:
    """Names of the tables or figures to draw of each pack; in CI all.

    Otherwise each kind where it is smallest, and none of more than a megabyte of numbers. What is
    shown of several packs is in each of them.
    """
    size = lambda pack: sum(file.stat().st_size for file in pack.rglob("*.parquet"))  # noqa: E731
    found, kinds = {}, set()
    small = [x for x in (*KEPT, *same.several()) if EVERYTHING or size(x) < 1e6]
    for pack in sorted(small, key=size):
        new = {}
        for file in pack.rglob(packs.EXHIBITS):
            for of, spec, _ in json.loads(file.read_bytes())["exhibits"]:
                if of == stage and (EVERYTHING or spec["kind"] not in kinds):
                    new[spec["name"]] = kinds.add(spec["kind"])
        found |= {pack: [*new]} if new else {}
    return found


TABLES, FIGURES = to_draw("table"), to_draw("figure")
each_pack, each_table, each_figure = of_each(KEPT), of_each(TABLES), of_each(FIGURES)


@each_pack
def test_what_is_kept_is_what_is_drawn_from_its_pack_and_worth_it(pack):
    _, _, exhibits = packs.read(pack)
    specs = [(exhibit.stage, exhibit.spec) for exhibit in exhibits]
    drawn = {
        f"{spec['name']}.{form}"
        for stage, spec in specs
        for form in {"table": ("csv",), "figure": ("pdf", "png")}[stage]
    }
    files = {path.name for path in pack.parent.iterdir() if path.suffix in (".csv", ".pdf", ".png")}
    assert drawn == files
    assert [spec["name"] for stage, spec in specs if not kept.is_worth_keeping(stage, spec)] == []
    page = (pack.parent / "REPORT.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^### <a id=.*</a>(?:Table|Figure) ", page, re.M)) == len(specs)


# The configuration of a paper's runs.
CONFIGURED = {
    "pfedmm": ("sources=[emnist:test]", "set=[emnist.partition.fraction=0.69999484]"),
    "fedmix": ("set=[fedmix-k4.precision=bfloat16,fedmix-k4.evaluate_every=100]",),
}


@pytest.mark.parametrize("paper", sorted({x.relative_to(KEPT_IN).parts[0] for x in AT_SCALE}))
def test_kept_runs_at_paper_scale_are_those_that_the_paper_declares(paper):
    words = ["scale=full", "tag=kept", f"papers=[{paper}]", *CONFIGURED.get(paper, ())]
    plan, odd = Plan(config.read([ROOT / "config.yaml"], words)), set()
    for archive in (x for x in AT_SCALE if x.relative_to(KEPT_IN).parts[0] == paper):
        with packs.unpack_runs(archive.parents[1]) as unpacked:
            found = [x for x in take.results(plan, unpacked) if x.theirs["history"].exists()]
            assert found and len(found) == len([*unpacked.rglob("history.h5")])
            for stage, file in (("train", "history"), ("evaluate", "evaluation")):
                pairs = [(x.job, seals.origin(x.theirs[file])) for x in found]
                changed = (x for x, made in pairs if made.spec != plan.digest(stage, **x))
                odd |= {(stage, job["label"]) for job in changed}
    assert not odd


@of_each(same.several())
def test_what_is_shown_of_several_packs_is_drawn_from_all(pack):
    found = {f"{spec['name']}.csv": render.to_csv(sheet) for spec, sheet in same.sheets_of(pack)}
    shown = {path.name: path.read_text(encoding="utf-8") for path in pack.glob("*.csv")}
    assert shown and shown.items() <= found.items()


def test_the_page_of_pfedmm_has_the_rows_of_its_table():
    page = (KEPT_IN / "pfedmm/README.md").read_text(encoding="utf-8")
    table = pd.read_csv(KEPT_IN / "pfedmm/full/main.csv").set_index(["label", "metric"])
    for label in table.index.unique(0):
        best = [
            f"| {100 * x:.1f} |" for x in table.loc[label, "best_mean"][["accuracy", "bottom10"]]
        ]
        assert any(all(x in line for x in best) for line in page.splitlines()), (label, best)


EXPECTED = json.loads((ROOT / "tests/kept.json").read_bytes())["kept"]


def expected(pack, names, *forms: str) -> dict[str, str]:
    """Digests of a pack. Where one is meant to change, `tests/same.py` writes them again."""
    where = f"{same.where(pack)}: "
    return {
        name: digest
        for name, digest in EXPECTED.items()
        if name.startswith(where)
        and name.endswith(forms)
        and (EVERYTHING or name.removeprefix(where).partition(",")[0] in names)
    }


@each_table
def test_kept_tables_are_written_as_ever(pack):
    made = same.sheets_of(pack, TABLES[pack])
    found = dict(form for spec, sheet in made for form in same.table_of(pack, spec, sheet))
    assert found == expected(pack, TABLES[pack], "to_csv", "to_markdown", "to_latex")


def test_tunings_of_a_pack_are_none_of_its_runs():
    found = keep.trainings(KEPT_IN / "benchmark/reduced" / packs.FOLDER)
    assert {training.seed for training in found} == {1, 2, 3}


LAID_OUT = set()  # kinds of figures


@pytest.mark.slow
@each_figure
def test_kept_figures_show_what_they_always_did_and_no_words_leave_them_or_lie_on_others(pack):
    shown = {}
    for spec, figure in same.drawn(pack, FIGURES[pack]):
        shown |= dict(same.figure_of(pack, spec, figure))
        for panel in numbers.of(figure):  # what the report reads off and saves
            named = [(x["name"], x["line"], *x["dash"]) for x in panel["series"]]
            in_rows = spec["kind"] in ("rank_intervals", "contrast_points")  # a mark in each row
            assert in_rows or len({*named}) == len(named), spec["name"]
            assert all(x[0] for x in named), spec["name"]
        if spec["kind"] not in LAID_OUT:
            assert pictures.faults(figure) == [], spec["name"]
            LAID_OUT.add(spec["kind"])
    assert shown == expected(pack, FIGURES[pack], "figure")
