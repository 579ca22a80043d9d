"""The page that shows everything, as Markdown and as HTML, and the captions of Snakemake's own."""

import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import made_up_report
import pandas as pd
import pytest
from stages import run_here
from support import REPRODUCED

from fedlib import papers, seals
from fedlib.cli import run
from fedlib.errors import DataError
from fedlib.files import canonical_json
from fedlib.report import printed
from fedlib.report.figures import FigureInputs
from fedlib.report.pages import as_html, as_markdown, contents, findings, origin
from fedlib.report.tables import render
from fedlib.report.tables.sheets import TableInputs
from fedlib.results import RunResult
from fedlib.run.usage import CPU, MEMORY, WALL
from fedlib.workflow import provenance
from fedlib.workflow.plan import Plan
from fedlib.workflow.provenance import ROOT

HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
VOID = {"meta", "link", "img", "input", "br", "hr"}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return made_up_report.project(tmp_path_factory.mktemp("project"))


def gathered(project, **changes) -> contents.Report:
    folders = {"results": project.results, "figures": project.figures}
    return contents.gather(**{"spec": project.spec, **folders, **changes})


@pytest.fixture(scope="module")
def page(project) -> str:
    return as_markdown.page(gathered(project), project.results / "REPORT.md")


@pytest.fixture(scope="module")
def html(project) -> str:
    return as_html.page(gathered(project))


class Elements(HTMLParser):
    """Every element of a page -> [(tag, attributes, text in it and below)]; fails if not closed."""

    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict, list[str]]] = []
        self._open: list[int] = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs), []))
        if tag not in VOID:
            self._open.append(len(self.found) - 1)

    def handle_endtag(self, tag):
        assert self.found[self._open.pop()][0] == tag

    def handle_data(self, data):
        for place in self._open:
            self.found[place][2].append(data)

    def all(self, tag: str, **attributes) -> list[tuple[dict, str]]:
        return [
            (attrs, " ".join(" ".join(text).split()))
            for name, attrs, text in self.found
            if name == tag and attributes.items() <= attrs.items()
        ]


@pytest.fixture(scope="module")
def elements(html) -> Elements:
    return Elements(html)


# --- What both tell -------------------------------------------------------------------------------


def test_the_grids_of_tables_are_on_the_page_as_they_are(project, page):
    for sheet in project.sheets.values():
        assert render.markdown_blocks(sheet) in page


def test_links_to_figures_lead_to_files(project, page):
    links = re.findall(r"\]\(([^)#]+)\)", page)
    assert links == ["../../figures/demo/pfedmm/curves.png", "../../figures/demo/pfedmm/curves.pdf"]
    for link in links:
        assert (project.results / link).exists()


def test_contents_name_every_exhibit_and_lead_to_it(page):
    links = re.findall(r"\[([^]]+)\]\(#([^)]+)\)", page.partition("## <a")[0])
    anchors = re.findall(r'<a id="([^"]+)">', page)
    assert len(anchors) == len(set(anchors))
    assert {target for _, target in links} <= set(anchors)
    read = [text.partition(".")[0] for text, _ in links[2:]]
    assert read[:-1] == ["Figure 1", "Table 1", "Table 2"]  # they share half of their runs


def test_the_page_ends_with_every_published_number_and_counts_those_within_two_points(
    project, page, elements
):
    (chapter,) = gathered(project).chapters
    numbers = page.partition('<a id="numbers">')[2]
    assert "1 of 8 within two percentage points" in numbers
    rows = [[x.strip() for x in line.split("|")[1:-1]] for line in numbers.splitlines()[3:]]
    rows = [row for row in rows if row][2:]
    told = [text for _, text in elements.all("tr")]
    for row, (_, pair) in zip(rows, chapter.pairs.iterrows(), strict=True):
        assert row[0] == "pFedMM" and row[2:4] == [pair["federation"], pair["title"]]
        assert row[5:] == [
            *(render.percent(pair[name]) for name in ("published", "reproduced")),
            render.points(pair["difference"]),
        ]
        assert " ".join(["pFedMM", "Table 1", *row[2:]]) in told


def test_differences_are_those_of_the_printed_numbers_also_where_those_are_counted():
    columns = ["federation", "title", "metric", "published", "difference"]
    cells = [
        ("mnist", 10, "accuracy", 0.69361, -0.01261),  # 69.4, 68.1
        ("mnist", 20, "accuracy", 0.7006, -0.0206),  # 70.1, 68.0
        ("mnist", 30, "accuracy", None, None),
    ]
    found = contents.pick_published(pd.DataFrame(cells, columns=columns))
    assert list(found["difference"]) == [-0.013, -0.021]
    assert list(found["title"]) == ["10", "20"]  # rows may be called by a number
    assert contents.pick_published(pd.DataFrame({"what": [1]})).empty


def test_every_note_is_below_its_tables(page, html):
    (shared,) = made_up_report.shared_notes()
    assert page.count(shared) == html.count(f">{shared}</li>") == 2
    assert html.count(f'<li class="again">{shared}</li>') == 1  # which paper leaves out


def test_what_the_head_of_a_chapter_says_is_not_said_under_its_tables(project, page):
    assert "Scale demo: embedded data, 20 clients, 30 rounds." in project.sheets["main"].notes
    assert page.count("Scale demo: embedded data, 20 clients, 30 rounds.") == 1


def test_machines_are_those_that_the_runs_recorded(page, elements):
    assert "As recorded by 8 training runs." in page
    assert "- device: cpu\n- torch: 2.14.1" in page
    assert [text for _, text in elements.all("dd")] == ["cpu", "2.14.1"]


def test_of_runs_that_were_made_in_several_places_each_says_where(project, tmp_path):
    shutil.copytree(project.results, tmp_path / "results")
    history = next((tmp_path / "results/runs/pfedmm/emnist/pfedmm").glob("*/history.h5"))
    made = RunResult.load(history)
    replace(made, provenance={**made.provenance, "cpu": "Abacus", "device": "beads"}).save(history)
    found = gathered(project, results=tmp_path / "results")
    page = as_markdown.page(found, project.results / "REPORT.md")
    assert re.search(r"^\| emnist/pfedmm +\| 1, 2 +\| beads; cpu", page, re.M)
    told = [text for _, text in Elements(as_html.page(found)).all("tr")]
    assert any(text.startswith("emnist/pfedmm 1, 2 beads; cpu") for text in told)


def test_without_the_runs_there_is_no_section_on_machines(project, tmp_path):
    (tmp_path / "tables").symlink_to(project.results / "tables")
    found = gathered(project, results=tmp_path)
    assert "Machines" not in as_markdown.page(found, tmp_path / "REPORT.md")
    assert "How the runs were made" not in as_html.page(found)


def test_families_of_which_the_same_is_said_share_a_sentence(project):
    [paper] = project.spec["papers"]
    said = [{"title": title, "notes": ["made by hand."]} for title in ("EMNIST", "CIFAR-10")]
    changed = paper | {"federations": said}
    [chapter] = gathered(project, spec={**project.spec, "papers": [changed]}).chapters
    assert chapter.facts[2:] == ("EMNIST; CIFAR-10: made by hand.",)


@pytest.mark.parametrize(
    ("missing", "stage"),
    [
        *(("tables/pfedmm/main.json", "table"), ("tables/pfedmm/main.csv", "table")),
        *(("pfedmm/curves.png", "figure"), ("pfedmm/curves.svg", "figure")),
    ],
)
def test_a_missing_file_is_named_with_its_stage(project, missing, stage):
    folder = project.results if stage == "table" else project.figures
    (folder / missing).rename(folder / "aside")
    try:
        with pytest.raises(DataError, match=f"{missing} does not exist; run the {stage} stage"):
            found = gathered(project)
            as_markdown.page(found, project.root / "R.md")
            as_html.page(found)
    finally:
        (folder / "aside").rename(folder / missing)


# --- HTML -----------------------------------------------------------------------------------------


def test_whatever_a_title_holds_is_text(html, elements):
    assert "<b>title" not in html and "49" not in elements.all("title")[0][1]
    heads = [text for _, text in elements.all("h3")]
    assert heads[3] == f"pFedMM, table 2. {made_up_report.NASTY}"
    scripts = [attrs.get("type") for attrs, _ in elements.all("script")]
    assert scripts == [None] and len(elements.all("style")) == 1


def test_nothing_is_loaded_from_anywhere(html, elements):
    addresses = [
        value
        for _, attrs, _ in elements.found
        for name, value in attrs.items()
        if name in ("src", "href", "data-source", "action", "srcset", "poster")
    ]
    assert len(addresses) > 10
    inside = ("data:", "#", "../../")  # the last is the checkout
    assert [a for a in addresses if not a.startswith(inside)] == []
    assert "@import" not in html and "url(" not in html and "fetch(" not in html
    ((attrs, _),) = elements.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert attrs["content"].startswith("default-src 'none'; img-src data:;")


def test_headings_come_in_order_and_identifiers_once(elements):
    levels = [HEADINGS.index(tag) for tag, _, _ in elements.found if tag in HEADINGS]
    assert levels[0] == 0 and levels.count(0) == 1
    assert all(below <= above + 1 for above, below in zip(levels, levels[1:], strict=False))
    names = [attrs["id"] for _, attrs, _ in elements.found if "id" in attrs]
    assert len(names) == len(set(names))
    targets = {a["href"][1:] for a, _ in elements.all("a") if a["href"].startswith("#")}
    assert targets <= {*names}


def test_tables_have_captions_and_pictures_have_words(elements):
    assert len(elements.all("caption")) == len(elements.all("table")) == 4
    assert all(text for _, text in elements.all("caption"))
    ((image, _),) = elements.all("img")
    assert image["alt"] == "Curves. Over_rounds."
    assert image["data-source"].startswith("data:image/svg+xml;base64,")
    # 3 x 2 inches of 96 CSS pixels, enlarged.
    assert (image["width"], image["height"]) == (str(round(288 * 1.3)), str(round(192 * 1.3)))


def test_every_cell_of_every_table_is_there(project, elements):
    rows = elements.all("tr")
    for sheet in project.sheets.values():
        for block in sheet.blocks:
            for row in block.rows:
                words = [contents.VERDICTS.get(c.verdict, c.text) for c in row]
                assert [text for _, text in rows if text.split() == " ".join(words).split()], words


def test_verdicts_are_marked_in_their_table_and_counted_except_at_scale_demo(project, page, html):
    tally = "- Criteria of pFedMM: 1 reached, 1 not reached, 1 not run."
    reduced = gathered(project, spec={**project.spec, "scale": "reduced"})
    assert tally in as_markdown.page(reduced, project.results / "REPORT.md")
    elements = Elements(as_html.page(reduced))
    assert "Criteria of" not in page and 'class="count"' not in html
    classes = ["verdict reached", "verdict not-reached", "verdict not-run"]
    marks = [a["class"] for a, _ in elements.all("span") if "verdict" in a.get("class", "")]
    assert marks == classes * 2
    counts = [text for _, text in elements.all("span", **{"class": "count"})]
    assert counts == ["1 reached", "1 not reached", "1 not run"]


# --- The first screen -----------------------------------------------------------------------------


def test_the_front_counts_what_is_near_at_the_papers_own_scale_alone(project):
    content = gathered(project)
    assert replace(content.chapters[0], pairs=pd.DataFrame({"difference": [0.02, 0.021]})).near == 1
    told = "8 published numbers beside ours, which are not comparable."
    assert findings.headline(content) == told
    full = gathered(project, spec={**project.spec, "scale": "full"})
    told = "1 of 8 comparisons are within two points; 1,234 numbers are published."
    assert findings.headline(full) == told


def test_without_published_numbers_none_is_said_to_be_shown(project):
    content = gathered(project)
    alone = replace(content, chapters=[replace(x, pairs=x.pairs[:0]) for x in content.chapters])
    assert findings.headline(alone) == "2 tables and 1 figure, on other data than the papers'."
    assert "Published numbers are shown" not in as_markdown.page(alone) + as_html.page(alone)


def test_main_claims_have_their_numbers_on_the_first_screen(elements):
    one, other = (text for _, text in elements.all("p", **{"class": "claim"}))
    assert one == "Criterion 0: published A 2, C 3; here A 0.5, B 9"
    assert other == "Criterion 1: here A 1.5, B 9"


def test_the_first_figure_stands_above_the_tables_and_criteria_come_last(project):
    (chapter,) = gathered(project).chapters
    main, criteria = chapter.tables
    curves = next(exhibit for exhibit in chapter.exhibits if exhibit.picture)
    found = contents.in_order([criteria, main], [curves, replace(curves, name="other")])
    assert [(shown.name, shown.number) for shown in found] == [
        *[("curves", 1), ("main", 1), ("other", 2), ("criteria", 2)]
    ]


@pytest.mark.parametrize("name", REPRODUCED)
def test_papers_have_bibtex_and_numbers(name):
    paper = papers.declare(name, "full")
    title = re.search(r"title = {(.*)}", papers.bibtex(name))[1]
    assert title.lower() in paper.citation.lower()
    known = printed.read(ROOT / f"fedlib/papers/{name}/published.csv")
    assert papers.count_printed(name) == (known["unit"] == "percent").sum() > 20


def test_time_and_memory_are_those_that_were_recorded():
    jobs = [{"spent": {WALL: 3600, CPU: 1799.9, MEMORY: 2e9}}, {}] * 2
    told = "2.00 h, 60.0 min of CPU time, at most 2.0 GB (2 recorded it)"
    assert origin.resources(jobs).text == told


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("91.2 (90.5 to 91.9)", 91.2),
        ("−1.2 ± 0.3", -1.2),
        ("26.2 k", 26_200),
        ("1.35×", 1.35),
        ("4.198e+06", 4_198_000),
        ("32 976", 32_976),
        ("1,010", 1010),
        ("12.3 min", 738),
        ("1.21 h", 4356),
        ("3 methods", 3),
        ("does not converge", None),
    ],
)
def test_a_cell_is_sorted_by_the_number_that_it_begins_with(text, number):
    assert as_html.sort_value(text) == number


def test_a_cell_without_a_number_has_none_to_be_sorted_by():
    parts = as_html._template().environment.get_template("parts.html.j2").module
    assert ["data-value" in parts.number(text) for text in ("", "1.21 h")] == [False, True]


# --- The end of a run, the script, and Snakemake's own report ------------------------------------


def test_what_is_shown_at_the_end_is_the_main_table_and_where_the_report_is(
    project, monkeypatch, capsys
):
    monkeypatch.chdir(project.root)
    run.show(Plan({"papers": ["pfedmm"]}))
    said = capsys.readouterr().out
    assert render.to_markdown(project.sheets["main"]).strip() in said
    assert project.sheets["criteria"].caption not in said
    assert "Report:   results/demo/report.html (open it in a browser)" in said


def test_where_a_budget_chose_the_runs_only_the_report_is_named(project, monkeypatch, capsys):
    monkeypatch.chdir(project.root)
    run.show(Plan({"budget": "10h"}))
    assert capsys.readouterr().out.startswith("\nReport:   results/demo/report.html")


def test_a_table_that_is_not_there_is_named(project, monkeypatch):
    monkeypatch.chdir(project.root)
    with pytest.raises(DataError, match="^results/demo/tables/fedmoe/.*.md does not exist; run"):
        run.show(Plan({"papers": ["fedmoe"]}))


@pytest.mark.parametrize(
    ("stage", "inputs", "kind", "shown", "forms"),
    [
        ("table", TableInputs, "accuracy", made_up_report.criteria, ("csv", "md", "tex")),
        ("figure", FigureInputs, "regret", made_up_report.drawn, ("pdf", "png", "svg")),
    ],
)
def test_a_published_number_that_changes_while_it_is_shown_counts_as_changed(
    stage, inputs, kind, shown, forms, tmp_path, monkeypatch
):
    read = {name: tmp_path / name for name in ("metrics", "clients", "published")}
    for path in read.values():
        path.write_text("before")
    before = seals.contents(*read.values())

    def edited():
        read["published"].write_text("after")
        return shown()

    monkeypatch.setattr(inputs, "read", lambda *args: SimpleNamespace(make=edited))
    monkeypatch.setattr(provenance, "assert_covered", lambda *roots: None)
    made = {form: tmp_path / f"main.{form}" for form in (*forms, "json")}
    spec = canonical_json({"kind": kind, "federations": [], "runs": []})
    given = {"spec": spec, **read, **made}
    assert run_here(stage, [f"--{name}={value}" for name, value in given.items()]) == 0
    assert seals.origin(made["json"]).inputs == before
