"""Write docs/tutorial.ipynb, the tutorial as a notebook: python docs/site/notebook.py"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/tutorial.md"


def notebook(text: str) -> dict:
    """A notebook of a Markdown page: its Python blocks become cells of code."""
    cells = []
    for number, part in enumerate(re.split(r"```python\n(.*?)```\n?", text, flags=re.DOTALL)):
        is_code, lines = number % 2 == 1, part.strip("\n").splitlines(keepends=True)
        cell = {"cell_type": "code" if is_code else "markdown", "id": f"cell{number}"}
        cell |= {"execution_count": None, "outputs": []} if is_code else {}
        cells.append(cell | {"metadata": {}, "source": lines})
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


if __name__ == "__main__":
    made = json.dumps(notebook(PAGE.read_text(encoding="utf-8")), indent=1, ensure_ascii=False)
    PAGE.with_suffix(".ipynb").write_text(f"{made}\n", encoding="utf-8")
