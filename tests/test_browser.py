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
const tick = (value) => document.querySelector(`input[value="${value}"]`).click();
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
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
            *(
                "--no-first-run",
                f"--user-data-dir={tmp_path / 'profile'}",
                "--window-size=1200,900",
            ),
            *("--virtual-time-budget=10000", *options, "--dump-dom", file.as_uri()),
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


def test_an_error_in_the_page_would_be_noticed(ask):
    with pytest.raises(AssertionError, match="securitypolicyviolation"):
        ask("document.body.append(Object.assign(new Image(), { src: 'file:///x.png' }))")


def test_a_click_sorts_up_then_down_then_as_it_was(ask):
    found = ask("""
      const head = [...table("criteria").querySelectorAll(".heads th")][2];
      const orders = [column("criteria", 2)];
      for (let k = 0; k < 3; k++) {
        head.querySelector("button").click();
        orders.push(head.ariaSort, column("criteria", 2));
      }
      return orders;
    """)
    start = ["reached", "not reached", "not run"]
    up = sorted(start)
    assert found == [start, "ascending", up, "descending", up[::-1], "none", start]


def test_numbers_are_sorted_by_size_and_what_is_no_number_stays_last(ask, page):
    # A criterion each of 0.5, 1.5 and 2.5 of something; the second becomes a dash.
    assert page.count(">0.5</td>") == page.count(">1.5</td>") == page.count(">2.5</td>") == 1
    text = page.replace('data-value="1.5">1.5<', ">–<")
    text = text.replace('data-value="0.5">0.5<', 'data-value="10.0">10.0<')
    found = ask(
        """
      const head = [...table("criteria").querySelectorAll(".heads button")][1];
      return [0, 1].map(() => { head.click(); return column("criteria", 1); });
        """,
        text=text,
    )
    assert found == [["2.5", "10.0", "–"], ["10.0", "2.5", "–"]]


def test_a_method_that_is_ticked_hides_the_rows_of_others_and_what_is_not_about_it(ask):
    found = ask("""
      const state = () => ({
        rows: seen("#pfedmm-table-main tbody th").map((head) => head.innerText),
        exhibits: seen(".exhibit").map((exhibit) => exhibit.id),
        contents: seen("nav ul ul .label").length,
        told: document.querySelector("output").innerText,
      });
      tick("FedAvg");
      const ticked = state();
      document.querySelector("button[type=reset]").click();
      await pause(50);
      return [ticked, state()];
    """)
    tables = ["pfedmm-table-main", "pfedmm-table-criteria"]
    assert found == [
        {"rows": ["FedAvg"] * 2, "exhibits": tables, "contents": 2, "told": "2 of 3 shown"},
        {
            "rows": ["FedAvg", "pFedMM"] * 2,
            "exhibits": [*tables, "pfedmm-figure-curves"],
            "contents": 3,
            "told": "3 of 3 shown",
        },
    ]


def test_a_federation_that_is_ticked_hides_the_grids_of_others(ask):
    found = ask("""
      tick("CIFAR-10");
      return [seen(".block caption").map((c) => c.innerText), seen(".exhibit").length];
    """)
    assert found[0][0] == "CIFAR-10" and "EMNIST" not in found[0]
    assert found[1] == 2  # the figure is of EMNIST alone


def test_a_figure_is_made_when_it_is_near_and_has_its_size(ask):
    found = ask("""
      const image = document.querySelector("figure img");
      const before = image.hasAttribute("src");
      image.scrollIntoView();
      while (!image.hasAttribute("src")) await pause(10);
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


@pytest.mark.parametrize(("scheme", "is_dark"), [(0, True), (1, False)])
def test_the_page_is_dark_where_the_reader_s_screen_is(ask, scheme, is_dark):
    found = ask(
        """
      const style = getComputedStyle(document.body);
      const light = (color) => color.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0) / 765;
      const image = getComputedStyle(document.querySelector("figure img"));
      return [light(style.backgroundColor), light(style.color), image.filter !== "none"];
        """,
        f"--blink-settings=preferredColorScheme={scheme}",
    )
    back, ink, inverted = found
    assert (back < 0.2 and ink > 0.8) if is_dark else (back > 0.8 and ink < 0.2)
    assert inverted == is_dark


def test_on_a_phone_only_tables_and_figures_are_wider_than_the_screen(ask, page):
    # A window cannot be as narrow as a phone, a frame can.
    frame = '<html><head></head><body><iframe width="390" height="844"></iframe></body></html>'
    source = json.dumps(page).replace("<", "\\u003c")
    found = ask(
        f"""
      const frame = document.querySelector("iframe");
      const loaded = new Promise((done) => frame.addEventListener("load", done));
      frame.srcdoc = {source};
      await loaded;
      const inner = frame.contentDocument;
      const root = inner.documentElement;
      const beyond = root.scrollWidth - root.clientWidth;
      const wide = inner.querySelector("figure img").getBoundingClientRect().width;
      return [beyond, root.clientWidth, inner.querySelector(".contents").open, wide];
        """,
        text=frame,
    )
    assert found[0] == 0 and 300 < found[1] <= 390
    assert found[2] is False
    assert found[3] >= 600  # so that words in it can be read
