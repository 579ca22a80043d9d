"""The report in a real browser: it opens without errors or requests, sorts, filters and shows."""

import html
import json
import re
import shutil
import subprocess

import made_up_report
import pytest

from fedlib.report.pages import as_html, contents

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason=f"no browser: none of {', '.join(NAMES)} is here"),
]

# Before anything of the page: what goes wrong is written down.
WATCH = """<script>
window.wrong = [];
for (const name of ["error", "unhandledrejection", "securitypolicyviolation"]) {
  const told = (event) => event.message ?? event.reason ?? event.blockedURI;
  addEventListener(name, (event) => wrong.push(`${name} ${told(event)}`), true);
}
console.error = console.warn = (...words) => wrong.push(words.join(" "));
</script>"""

# After everything of the page: a test's questions, whose answer becomes the page.
ASK = """<script>
const table = (name) => document.querySelector(`#pfedmm-table-${name} table`);
const column = (name, k) => [...table(name).tBodies[0].rows].map((r) => r.cells[k].innerText);
const found = (selector) => [...document.querySelectorAll(selector)];
const seen = (selector) => found(selector).filter((element) => element.checkVisibility());
const choose = (name, value) => {
  const field = document.querySelector(".filters").elements[name];
  field.value = value;
  field.dispatchEvent(new Event("input", { bubbles: true }));
};
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
// After what is drawn, and without the clock, which would be over before a slow machine has drawn.
const later = () => scheduler.postTask(() => {}, { priority: "background" });
const atFirst = seen(".exhibit").length;
found(".rest").forEach((rest) => { rest.open = true; });
const answered = (async () => { %s })();
addEventListener("load", async () => {
  let answer;
  try { answer = await answered; } catch (error) { answer = `failed: ${error}`; }
  const text = document.createElement("pre");
  text.id = "answer";
  text.textContent = JSON.stringify({ answer, wrong: window.wrong });
  document.body.replaceChildren(text);
});
</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    made = made_up_report.project(tmp_path_factory.mktemp("project"))
    return as_html.page(contents.gather(made.spec, made.results, made.figures))


@pytest.fixture
def ask(page, tmp_path):
    """The answer to a piece of JavaScript that is run in the page, which must have gone right."""

    def answer(script: str, *options: str, text: str = page):
        file = tmp_path / "page.html"
        head, foot = "<head>", "</body>"
        assert text.count(head) == text.count(foot) == 1
        file.write_text(text.replace(head, head + WATCH).replace(foot, ASK % script + foot))
        command = [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--no-first-run", f"--user-data-dir={tmp_path / 'profile'}"),
            "--window-size=1200,900",
            *("--virtual-time-budget=120000", *options, "--dump-dom", file.as_uri()),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        found = re.search(r'<pre id="answer">(.*?)</pre>', done.stdout, re.S)
        assert found, done.stdout[-2000:] + done.stderr[-2000:]
        told = json.loads(html.unescape(found[1]))
        assert told["wrong"] == []
        return told["answer"]

    return answer


def test_the_page_asks_for_nothing_and_sees_no_error(ask):
    asked = "performance.getEntriesByType('resource').map((r) => r.name)"
    assert [name for name in ask(f"return {asked}") if not name.startswith("data:")] == []


def test_clicks_sort_words_up_and_numbers_down_then_the_other_way_then_as_it_was(ask):
    found = ask("""
      return [0, 3].map((k) => {
        const head = [...table("criteria").querySelectorAll(".heads th")][k];
        const orders = [column("criteria", k)];
        for (let click = 0; click < 3; click++) {
          head.querySelector("button").click();
          orders.push(head.ariaSort, column("criteria", k));
        }
        return orders;
      });
    """)
    start = ["Criterion 0", "Criterion 1", "Criterion 2"]
    assert found[0] == [start, "ascending", start, "descending", start[::-1], "none", start]
    start = ["reached", "not reached", "not run"]
    down = sorted(start)[::-1]  # what is no key of a row may be numbers, of which one wants the top
    assert found[1] == [start, "descending", down, "ascending", down[::-1], "none", start]


def test_numbers_are_sorted_by_size_and_what_is_no_number_stays_last(ask, page):
    # A criterion each of 0.5, 1.5 and 2.5 of something; the second becomes a dash.
    assert page.count(">0.5</td>") == page.count(">1.5</td>") == page.count(">2.5</td>") == 1
    text = page.replace('data-value="1.5">1.5<', ">–<")
    text = text.replace('data-value="0.5">0.5<', 'data-value="10.0">10.0<')
    found = ask(
        """
      const head = [...table("criteria").querySelectorAll(".heads button")][2];
      return [0, 1].map(() => { head.click(); return column("criteria", 2); });
        """,
        text=text,
    )
    assert found == [["10.0", "2.5", "–"], ["2.5", "10.0", "–"]]


def test_a_search_finds_exhibits_that_have_all_words_and_says_when_none_has(ask):
    found = ask("""
      const state = () => [seen(".exhibit").map((exhibit) => exhibit.id),
        seen(".nothing").length, seen(".chapter").length, seen("nav details details").length];
      const states = ["CURVES over", "curves expected", ""].map((words) => {
        choose("words", words);
        return state();
      });
      return states;
    """)
    every = ["pfedmm-figure-curves", "pfedmm-table-main", "pfedmm-table-criteria"]
    assert found == [[every[:1], 0, 1, 1], [[], 1, 0, 0], [every, 0, 1, 1]]


def test_a_point_of_a_curve_is_read_off_and_its_numbers_are_saved(ask):
    found = ask("""
      const figure = document.querySelector(".drawing");
      const drawn = figure.querySelector(".drawn");
      const box = drawn.getBoundingClientRect();
      const panel = JSON.parse(figure.dataset.panels)[0];
      const [left, top, width, height] = panel.box;
      const at = (x, y) => { // near the place where a value stands in the picture
        const [across, up] = [x, y].map((value, k) => (
          (value - panel.limits[k][0]) / (panel.limits[k][1] - panel.limits[k][0])));
        drawn.dispatchEvent(new PointerEvent("pointermove", {
          clientX: box.left + (left + width * across) * box.width + 3,
          clientY: box.top + (top + height * (1 - up)) * box.height + 3,
        }));
        const reading = drawn.querySelector(".reading");
        return reading.hidden ? "" : reading.innerText;
      };
      const read = [at(1, 1), at(2, 0), at(1, 2.5)];
      const link = found(".exhibit .save a").find((a) => a.textContent === "csv"
        && a.download === "pfedmm-figure-curves.csv");
      link.addEventListener("click", (event) => event.preventDefault());
      link.click();
      return [read, decodeURIComponent(link.href.replace(/^[^,]*,/, "")).split("\\n")];
    """)
    read, lines = found
    assert read == ["pFedMM\nRound: 1\nLoss: 1", "a, b\nRound: 2\nLoss: 0", ""]
    assert lines[:2] == ["panel,x_axis,y_axis,series,x,y", "EMNIST,Round,Loss,pFedMM,0,0"]
    assert lines[-1] == 'EMNIST,Round,Loss,"a, b",2,0' and len(lines) == 7


def test_a_curve_that_is_chosen_stands_out_with_its_own_colour_and_dashes(ask):
    found = ask("""
      const drawn = document.querySelector(".drawn");
      const buttons = found(".curves button");
      const look = (line) => [line.getAttribute("stroke"), line.getAttribute("stroke-dasharray")];
      const state = ({ ariaPressed }) => [ariaPressed, drawn.classList.contains("chosen"),
        [...drawn.querySelectorAll("polyline")].map(look)];
      return [buttons.map((button) => look(button.querySelector("line"))),
        ...[1, 1, 0].map((k) => { buttons[k].click(); return state(buttons[k]); })];
    """)
    solid, dashed = ["#1f77b4", ""], ["#1f77b4", "7.4 3.2"]  # twice Matplotlib's dashes
    assert found[0] == [solid, dashed]
    assert found[1:] == [["true", True, [dashed]], ["false", False, []], ["true", True, [solid]]]


def test_two_exhibits_of_a_paper_are_open_and_the_others_folded(ask):
    assert ask("return [atFirst, seen('.exhibit').length]") == [2, 3]


def test_a_link_opens_what_it_leads_to(ask):
    found = ask("""
      document.querySelector("nav a[href='#pfedmm-origin']").click();
      await pause(50);
      return document.querySelector("#pfedmm-origin").open;
    """)
    assert found


def test_a_figure_is_made_when_it_is_near_and_has_its_size(ask):
    found = ask("""
      const image = document.querySelector(".drawn img");
      const before = image.hasAttribute("src");
      image.scrollIntoView();
      while (!image.hasAttribute("src")) await later();
      await image.decode();
      const { width, height } = image.getBoundingClientRect();
      return [before, image.naturalWidth > 0, width, height];
    """)
    assert found[:2] == [False, True]
    assert found[2:] == pytest.approx([288 * 1.3, 192 * 1.3], abs=1)  # 3 x 2 inches, enlarged


def test_all_figures_are_there_before_the_page_is_printed(ask):
    found = ask("""
      dispatchEvent(new Event("beforeprint"));
      const shown = [...document.images].every((image) => image.hasAttribute("src"));
      const open = document.querySelector(".origin").open;
      dispatchEvent(new Event("afterprint"));
      return [shown, open, document.querySelector(".origin").open];
    """)
    assert found == [True, True, False]
