"""Pages made of the templates in `templates/`, which have the words, and of numbers."""

import re
from collections.abc import Callable, Mapping
from importlib import resources

from jinja2 import Environment, FunctionLoader, StrictUndefined

from fedlib.report.tables import render

TEMPLATES = resources.files("fedlib.report.pages") / "templates"


def environment(autoescape: bool, filters: Mapping[str, Callable]) -> Environment:
    """The templates, with filters by name; `autoescape` is for HTML."""
    made = Environment(
        loader=FunctionLoader(lambda name: (TEMPLATES / name).read_text(encoding="utf-8")),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= filters
    return made


def markdown(template: str, filters: Mapping[str, Callable], **values: object) -> str:
    """A page in Markdown. Where its template leaves several empty lines, one is left."""
    known = {"markdown": render.markdown, "blocks": render.markdown_blocks}
    text = environment(False, known | filters).get_template(template).render(values)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
