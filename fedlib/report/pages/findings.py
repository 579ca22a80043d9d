"""The first screen of the report: sentences on what was found."""

from fedlib.report.pages.contents import Chapter, Report

SHOWN = 3  # claims of a paper


def headline(content: Report) -> str:
    """A sentence on how many published numbers are reproduced; two tables may show one of them."""
    if not content.num_pairs:
        shown = [exhibit for chapter in content.chapters for exhibit in chapter.exhibits]
        tables = sum(bool(exhibit.sheet) for exhibit in shown)
        both = f"{_count(tables, 'table')} and {_count(len(shown) - tables, 'figure')}"
        return f"{both}, on other data than the papers'."
    near = sum(chapter.near for chapter in content.chapters)
    if content.is_paper_scale:
        printed = sum(chapter.printed for chapter in content.chapters)
        found = f"{near} of {content.num_pairs} comparisons are within two points"
        return f"{found}; {printed:,} numbers are published."
    return f"{content.num_pairs} published numbers beside ours, which are not comparable."


def line(content: Report, chapter: Chapter) -> str:
    """A paper in a sentence."""
    data, trainings = _count(len(chapter.federations), "federation"), chapter.origin.trainings
    parts = [f"{_count(trainings, 'training')} on {data}" if trainings else data]
    if len(chapter.pairs):
        parts.append(f"{chapter.near} of {len(chapter.pairs)} comparisons within two points")
        if chapter.printed:
            parts.append(f"the paper prints {chapter.printed}")
    elif content.num_pairs:
        parts.append("no published number for these data sets")
    return f"{'; '.join(parts)}."


def claims(chapter: Chapter) -> list[dict]:
    """The first main claims of a paper whose runs are done: rows of its table of criteria."""
    sheets = [table.sheet for table in chapter.tables if table.sheet.claims]
    rows = [row for sheet in sheets for row in sheet.numbers.to_dict("records")]
    named = {title for sheet in sheets for title in sheet.claims}
    return [row for row in rows if row["criterion"] in named][:SHOWN]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
