"""Print the names of papers, federations, runs, methods, models, data sets and partitions.

Names and titles come from declarations, registries and docstrings, so there is no second list.
"""

import argparse
import ast

from fedlib.cli import arguments
from fedlib.workflow.config import check_choice
from fedlib.workflow.plan import Plan
from fedlib.workflow.provenance import PACKAGE, ROOT, registry

CODE = {
    "methods": "methods",
    "models": "models",
    "datasets": "data.sources",
    "partitions": "data.partitions",
}


def main(args: argparse.Namespace) -> None:
    """Print the names of all kinds, or the names and titles of one."""
    kinds = titles_by_kind(arguments.plan(args))
    if args.what:
        check_choice("WHAT", args.what, kinds)
        for name, title in kinds[args.what].items():
            print(f"{name:<32} {title}")
        return
    for kind, titles in kinds.items():
        of_papers = any("/" in name for name in titles)
        print(f"{kind} ({len(titles)}){'' if of_papers else ': ' + ', '.join(titles)}")
    print("\nmake list WHAT=methods adds titles, and WHAT=labels lists those of papers.")


def titles_by_kind(plan: Plan) -> dict[str, dict[str, str]]:
    """The titles of everything that can be named, by kind and name."""
    papers = plan.papers.items()
    return {
        "papers": {name: paper.title for name, paper in papers},
        "federations": {f"{name}/{x.name}": x.title for name, paper in papers for x in paper.data},
        "labels": {f"{name}/{x.label}": x.title for name, paper in papers for x in paper.runs},
        **{kind: _of_code(package) for kind, package in CODE.items()},
    }


def _of_code(package: str) -> dict[str, str]:
    """The first lines of the docstrings of a package's modules."""
    folder = ROOT.joinpath(PACKAGE, *package.split("."))
    trees = {x: ast.parse(folder.joinpath(f"{x}.py").read_bytes()) for x in registry(package)}
    return {name: (ast.get_docstring(x) or "").partition("\n")[0] for name, x in trees.items()}
