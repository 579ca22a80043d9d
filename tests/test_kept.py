"""The kept page: every published cell beside ours, and what the runs took."""

import json

import pandas as pd

from fedlib.reporting import kept

SPEC = {"papers": [{"name": "toy", "tables": [{"name": "main", "title": "Main"}, {"name": "x"}]}]}


def project(root, *cells):
    folder = root / "tables/toy"
    folder.mkdir(parents=True)
    names = ("federation", "title", "metric", "published", "difference", "seeds")
    pd.DataFrame(cells, columns=names).to_csv(folder / "main.csv", index=False)
    pd.DataFrame({"what": [1]}).to_csv(folder / "x.csv", index=False)
    return root


def test_every_published_cell_is_beside_ours_and_those_within_two_points_are_counted(tmp_path):
    root = project(
        tmp_path,
        ("mnist", "FedAvg", "accuracy", 0.97, -0.0199, 3),
        ("mnist", "FedMix", "accuracy", 0.977, -0.021, 3),
        ("mnist", "Other", "accuracy", None, None, 3),  # nothing published: no cell
    )
    text = kept.sections(SPEC, root, [])
    assert "1 of 2 within two percentage points" in text
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]
    assert rows[2][:3] == ["Main", "mnist", "FedAvg"]
    assert rows[2][4:] == ["97.0", "95.0", "−2.0", "3"]
    assert rows[3][2:] == ["FedMix", "All", "97.7", "95.6", "−2.1", "3"]
    assert len(rows) == 4 and "took" not in text


def test_wall_and_cpu_time_are_added_up_by_stage(tmp_path):
    root, files = project(tmp_path), []
    for number, (stage, wall, cpu) in enumerate(
        [("train", 3600, 1800), ("train", 1800, "NA"), ("evaluate", 720, 360)]
    ):
        entry = {"rule_name": stage, "s": wall, "cpu_time": cpu, "max_rss": 1500 + number}
        old = {**entry, "s": 1e9}  # of an earlier run of the same job
        files.append(tmp_path / f"{number}.jsonl")
        files[-1].write_text(f"{json.dumps(old)}\n{json.dumps(entry)}\n")
    text = kept.sections(SPEC, root, [*files, tmp_path / "absent.jsonl"])
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]
    assert rows[2] == ["train", "2", "1.50 h", "0.50 h", "1.5 GB"]
    assert rows[3] == ["evaluate", "1", "0.20 h", "0.10 h", "1.5 GB"]
    assert "published cell" not in text
