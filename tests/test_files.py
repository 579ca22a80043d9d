"""Files that are whole or not there."""

import os

import pytest

from fedlib.errors import DataError
from fedlib.files import atomic, canonical_json, read_json


def test_an_exception_leaves_the_old_file_and_no_other(tmp_path):
    file = tmp_path / "x.txt"
    file.write_text("old")
    with pytest.raises(RuntimeError), atomic(file) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.txt"]


def test_the_temporary_file_has_the_same_suffix_and_the_usual_permissions(tmp_path):
    with atomic(tmp_path / "sub/x.png") as temporary:
        assert temporary.suffix == ".png"
        temporary.write_bytes(b"1")
    plain = tmp_path / "plain"
    plain.touch()
    assert (tmp_path / "sub/x.png").stat().st_mode == plain.stat().st_mode


def test_canonical_json_does_not_depend_on_the_order_of_keys_and_refuses_nan():
    assert canonical_json({"b": 1, "a": [1.5, None]}) == '{"a":[1.5,null],"b":1}'
    with pytest.raises(ValueError):
        canonical_json(float("nan"))


@pytest.mark.parametrize("content", [None, "{", ""])
def test_json_that_is_missing_or_broken_is_named(tmp_path, content):
    file = tmp_path / "x.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(DataError, match="x.json"):
        read_json(file)
