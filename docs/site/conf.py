"""The site of the documents, which `make docs` builds from the Markdown files of the checkout.

Pages are where their files are. The front page is README.md, to which navigation.md is added here,
so that none of it shows where Markdown is read as it is.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import fedlib  # noqa: E402 - from the checkout
from fedlib import methods  # noqa: E402
from fedlib.data import partitions  # noqa: E402

project = author = "fedlib"
release = fedlib.__version__
root_doc = "README"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
include_patterns = ["*.md", "benchmarks/**.md", "docs/**.md", "docs/site/*.rst", "fedlib/**.md"]
exclude_patterns = ["docs/site/navigation.md", "**/.venvs"]
templates_path = ["."]
html_theme, html_title = "furo", f"fedlib {release}"
html_additional_pages = {"index": "front.html"}
default_role = "literal"  # docstrings have code between single backticks
myst_heading_anchors = 4
highlight_language = "none"  # for what has no language: commands and formulas
autodoc_member_order, autodoc_preserve_defaults = "bysource", True
python_maximum_signature_line_length = 90

# What is below the README of a folder in the navigation: files, from there.
BELOW = {
    "docs/papers/README": ("../../fedlib/papers/README.md", "../../fedlib/papers/*/README.md"),
    "benchmarks/README": ("results/*.md",),
}
# Pages of all that a registry has.
KINDS = {
    "docs/site/all_methods": (methods, methods.METHODS),
    "docs/site/all_partitions": (partitions, partitions.PARTITIONS),
}


def add_navigation(app, page: str, source: list[str]) -> None:
    """Add to a page what is below it, and make its HTML anchors MyST's, which are of all pages."""
    folder = (ROOT / page).parent
    if page == root_doc:
        source[0] += (Path(__file__).parent / "navigation.md").read_text(encoding="utf-8")
    elif page.endswith("/README"):
        patterns = BELOW.get(page, ("REPORT.md", "*/README.md", "*/REPORT.md", "*/*/REPORT.md"))
        found = [file for pattern in patterns for file in sorted(folder.glob(pattern))]
        names = [f"/{file.resolve().relative_to(ROOT).with_suffix('')}" for file in found]
        source[0] += "\n\n".join(["", "```{toctree}\n:hidden:", "\n".join(names) + "\n```\n"])
    if page in KINDS:
        package, names = KINDS[page]
        source[0] += "".join(entry(package.load(name), name) for name in names)
    here = page.replace("/", "-")
    for anchor in re.findall(r'<a id="([^"]+)"></a>', source[0]):
        source[0] = source[0].replace(f"](#{anchor})", f"](#{here}-{anchor})")
    source[0] = re.sub(r'^(#+) <a id="([^"]+)"></a>', rf"({here}-\2)=\n\1 ", source[0], flags=re.M)
    there = Path(page).parent
    source[0] = re.sub(
        r"\]\(((?:[\w-]+/)*REPORT)\.md#",
        lambda link: f"](#{str(there / link[1]).replace('/', '-')}-",
        source[0],
    )


def entry(kind: type, name: str) -> str:
    """A module of a registry: what it says of itself, and its class."""
    what = f".. automodule:: {kind.__module__}", f".. autoclass:: {kind.__module__}.{kind.__name__}"
    return "\n".join(["", name, "-" * len(name), "", *what, ""])


def to_rst(app, what: str, name: str, obj: object, options: dict, lines: list[str]) -> None:
    """Turn the docstring of a module into RST: indented formulas, then sources, one by one."""
    if what == "module":
        text = re.sub(r"^  (?=\S)", "", "\n".join(lines), flags=re.M)
        text = re.sub(r"\n\n(?=    )", "\n\n::\n\n", text)
        text = re.sub(r"^(Source|Official code|Deviation): ", r"\n**\1:** ", text, flags=re.M)
        lines[:] = text.splitlines()


def setup(app) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_navigation)
    app.connect("autodoc-process-docstring", to_rst)
