"""Raw files: only official content gets an official name, from wherever it comes."""

import contextlib
import errno
import gzip
import os
import queue
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from data_fixtures import official, put, serving, tar, zipped
from workflow import ROOT, python

from fedlib import seals
from fedlib.data import download
from fedlib.data.download import check_receipt, fetch, receipt
from fedlib.data.raw import RawFile, RawFolder
from fedlib.errors import ConfigError, DataError
from fedlib.locks import exclusive
from fedlib.workflow import preflight
from fedlib.workflow.plan import Plan

CONTENT = bytes(range(256)) * 400  # 102,400 bytes


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(download, "PAUSE", 0)


@pytest.fixture
def server():
    with serving() as running:
        running.content["/a.gz"] = CONTENT
        yield running


def quiet(line: str) -> None:
    pass


def get(file: RawFile, raw: Path, mirror: str | None = None) -> bytes:
    fetch([file], raw, mirror=mirror, report=quiet)
    left = {path.name for path in (raw / file.path).parent.iterdir() if path.is_file()}
    assert left - {".download.lock"} == {Path(file.path).name}
    return (raw / file.path).read_bytes()


def of(server, *paths: str) -> RawFile:
    return official("set/raw/a.gz", CONTENT, urls=tuple(map(server.url, paths or ["/a.gz"])))


def encrypted(members: dict[str, bytes]) -> bytes:
    """An archive that says so of its members: the flag is in both of their headers."""
    content = bytearray(zipped(members))
    for start, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(start) + offset] |= 1
    return bytes(content)


@pytest.mark.parametrize(
    ("behaviour", "requests"),
    [({}, 1), ({"cuts": [30_000, 20_000]}, 3), ({"statuses": [503, 429]}, 3)],
    ids="whole broken overloaded".split(),
)
def test_a_file_is_downloaded_whole_in_up_to_three_attempts(server, tmp_path, behaviour, requests):
    vars(server).update(behaviour)
    for _ in range(2):  # and not once more
        assert get(of(server), tmp_path) == CONTENT
    assert server.requests == ["/a.gz"] * requests


@pytest.mark.parametrize("content", [CONTENT[:-1], b"x" * len(CONTENT)], ids=["short", "other"])
def test_a_wrong_file_that_is_there_is_named_and_left_alone(server, tmp_path, content):
    path = put(tmp_path, of(server), content)
    with pytest.raises(DataError, match=rf"{path} has .* the official file has .* delete it"):
        get(of(server), tmp_path)
    assert path.read_bytes() == content


def test_a_compressed_file_stays_compressed_whatever_the_server_calls_it(server, tmp_path):
    content = gzip.compress(CONTENT)
    server.content["/a.gz"], server.encoding = content, "x-gzip"
    assert get(official("set/a.gz", content, urls=(server.url("/a.gz"),)), tmp_path) == content


def test_what_a_server_has_instead_is_refused_and_named(server, tmp_path):
    server.content["/a.gz"] = b"x" * len(CONTENT)
    with pytest.raises(DataError) as error:
        fetch([of(server)], tmp_path, report=quiet)
    assert f"{server.url('/a.gz')}: has sha256 " in str(error.value)
    assert of(server).sha256 in str(error.value)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [".download.lock"]


def test_the_second_address_is_used_when_the_first_is_down(server, tmp_path):
    file = official("set/raw/a.gz", CONTENT, urls=("http://127.0.0.1:1/a.gz", server.url("/a.gz")))
    assert get(file, tmp_path / "one") == CONTENT
    server.content["/b.gz"] = CONTENT
    server.cuts = [40_000, 0, 0]
    assert get(of(server, "/a.gz", "/b.gz"), tmp_path / "two") == CONTENT
    assert server.requests == ["/a.gz"] * (1 + download.ATTEMPTS) + ["/b.gz"]


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def endless():
    yield CHUNKED
    for _ in range(10_000):
        yield b"10000\r\n" + b"x" * 0x10000 + b"\r\n"


def stalls():
    yield OK + f"Content-Length: {len(CONTENT)}\r\n\r\n".encode()
    time.sleep(2)


@pytest.mark.parametrize(
    ("script", "message"),
    [(endless, "sends more than 102,400 bytes"), (stalls, "(?i)read.*timed out")],
)
def test_a_server_that_never_ends_or_never_begins_is_given_up(
    server, tmp_path, monkeypatch, script, message
):
    monkeypatch.setattr(download, "TIMEOUT", (1, 0.3))
    server.script, file = script, official("set/a.gz", CONTENT, urls=(server.url(),))
    began = time.monotonic()
    with pytest.raises(DataError, match=message):
        fetch([file], tmp_path, report=quiet)
    assert time.monotonic() - began < 30  # and not for ever; three attempts take two seconds
    assert not (tmp_path / "set/a.gz").exists()


@pytest.mark.parametrize(
    "name, told",
    [("a.zip", "is not a whole zip archive, perhaps a web page"), ("a.csv", "is a web page")],
)
def test_a_web_page_in_place_of_a_file_without_a_checksum_is_refused(server, tmp_path, name, told):
    server.content[f"/{name}"] = b"\xef\xbb\xbf\n<!DOCTYPE html><title>Moved</title>"
    file = RawFile(f"set/{name}", None, "", urls=(server.url(f"/{name}"),))
    with pytest.raises(DataError, match=f"{name}: {told}"):
        fetch([file], tmp_path, report=quiet)
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == [".download.lock"]


def test_failing_everywhere_names_each_address_and_what_to_put_where(server, tmp_path):
    file = of(server, "/x.gz", "/y.gz")
    with pytest.raises(DataError) as error:
        fetch([file], tmp_path, mirror=str(tmp_path), report=quiet)
    lines = str(error.value).splitlines()
    assert lines[0] == "could not get set/raw/a.gz; tried"
    assert lines[1] == f"  {tmp_path}/set/raw/a.gz: no such file"
    for line, path in zip(lines[2:4], ("/x.gz", "/y.gz"), strict=True):
        assert line.startswith(f"  {server.url(path)}: HTTPError: 404")
    assert f"102,400 bytes, sha256 {file.sha256}) at {tmp_path / file.path}" in lines[4]


@pytest.mark.parametrize("form", ["folder", "http"])
def test_a_mirror_comes_before_the_official_address(server, tmp_path, form):
    place = "set/raw/a.gz"
    put(tmp_path / "mirror", official(place, b""), CONTENT)
    server.content[f"/pub/{place}"] = CONTENT
    mirror = str(tmp_path / "mirror") if form == "folder" else server.url("/pub/")
    assert get(of(server), tmp_path / "raw", mirror) == CONTENT
    assert "/a.gz" not in server.requests
    put(tmp_path / "mirror", official(place, b""), b"x" * len(CONTENT))
    server.content[f"/pub/{place}"] = b"x" * len(CONTENT)
    assert get(of(server), tmp_path / "other", mirror) == CONTENT  # not the mirror's


def test_a_mirror_that_cannot_be_read_is_left_for_the_official_address(
    server, tmp_path, monkeypatch
):
    put(tmp_path / "mirror", official("set/raw/a.gz", b""), CONTENT)
    for number in (errno.EIO, errno.ENOSPC):

        def broken(*places, number=number):
            raise OSError(number, os.strerror(number), *places)

        monkeypatch.setattr(download.shutil, "copyfile", broken)
        full = number == errno.ENOSPC  # of the disk that is written, whatever the address
        with pytest.raises(OSError) if full else contextlib.nullcontext():
            assert get(of(server), tmp_path / str(number), str(tmp_path / "mirror")) == CONTENT


@pytest.mark.parametrize("mirror", ["ftp://host/data", "/no/such/folder", "file:///tmp"])
def test_a_mirror_that_cannot_be_is_refused(server, tmp_path, mirror):
    with pytest.raises(ConfigError, match=f"mirror .*{mirror}"):
        fetch([of(server)], tmp_path, mirror=mirror, report=quiet)
    with pytest.raises(ConfigError, match=f"mirror .*{mirror}"):  # as a plan does
        preflight.check(Plan({"mirror": mirror}))


def test_no_password_in_a_mirror_gets_into_logs_or_messages(tmp_path, server):
    for mirror in ("https://me:hunter2@host/data", "http://hunter2@host", "file://hunter2@host/a"):
        with pytest.raises(ConfigError, match="into ~/.netrc, for machine host$") as error:
            fetch([of(server)], tmp_path, mirror=mirror, report=quiet)
        assert "hunter2" not in str(error.value)


# Without a published checksum


def unpublished(server) -> RawFile:
    return RawFile("set/raw/a.gz", None, "", urls=(server.url("/a.gz"),))


def test_a_file_without_a_published_checksum_is_taken_as_it_comes_and_described(server, tmp_path):
    lines = []
    fetch([unpublished(server)], tmp_path, report=lines.append)
    sha256 = of(server).sha256
    assert lines[-1] == f"set/raw/a.gz: no checksum is published; its sha256 is {sha256}"
    found = receipt("set", [unpublished(server)], tmp_path)
    assert found["files"] == [{"path": "set/raw/a.gz", "size": 102_400, "sha256": sha256}]
    fetch([unpublished(server)], tmp_path, report=quiet)
    assert len(server.requests) == 1


def test_what_another_program_makes_is_listed_by_name(tmp_path):
    folder = RawFolder("set/made", "*.json", "what the maker makes")
    with pytest.raises(DataError, match=r"set/made has no files \*.json; put there what the maker"):
        fetch([folder], tmp_path, report=quiet)
    for name in ("b.json", "a.json", "notes.txt"):
        put(tmp_path, official(f"set/made/{name}", b""), name.encode())
    fetch([folder], tmp_path, report=quiet)
    found = receipt("set", [folder], tmp_path)
    assert [file["path"] for file in found["files"]] == ["set/made/a.json", "set/made/b.json"]
    assert folder.dataset == "set"


@pytest.mark.parametrize("pack", [tar, zipped])
def test_only_the_needed_members_of_an_archive_are_unpacked(server, tmp_path, pack):
    content = pack({"../other": b"o", "d/a": b"first", "d/b": b"second"})
    server.content["/d"] = content
    archive = official("set/d.archive", content, urls=(server.url("/d"),))
    files = [
        official(f"set/d/{name}", text, archive=archive, member=f"d/{name}")
        for name, text in [("b", b"second"), ("a", b"first")]
    ]
    fetch(files, tmp_path / "raw", report=quiet)
    brought = [tmp_path / "raw" / file.path for file in files]
    assert [path.read_bytes() for path in brought] == [b"second", b"first"]
    assert not [*tmp_path.rglob("other")]
    assert server.requests == ["/d"]


def test_an_unpacked_folder_or_a_mirror_with_the_members_needs_no_archive(tmp_path):
    archive = official("set/d.tar.gz", b"never fetched", urls=("http://127.0.0.1:1/",))
    file = official("set/d/a", CONTENT, archive=archive, member="d/a")
    put(tmp_path / "there", file, CONTENT)
    for raw, mirror in (("there", None), ("raw", str(tmp_path / "there"))):
        assert get(file, tmp_path / raw, mirror) == CONTENT
        assert not (tmp_path / raw / archive.path).exists()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (tar({"d/a": CONTENT})[:-40], "archive is broken"),
        (b"neither", "archive is broken"),
        (tar({"d/b": CONTENT}), "has no d/a"),
        (tar({"d/a": CONTENT[:-1]}), "d/a in .* has 102,399 bytes"),
        (encrypted({"d/a": CONTENT}), "broken .*encrypted"),
    ],
    ids="cut no-archive lacks other encrypted".split(),
)
def test_a_broken_archive_is_refused(tmp_path, content, complaint):
    archive = official("set/archive", content)
    file = official("set/d/a", CONTENT, archive=archive, member="d/a")
    put(tmp_path, archive, content)
    with pytest.raises(DataError, match=complaint):
        fetch([file], tmp_path, report=quiet)
    assert not (tmp_path / "set/d/a").exists()


def test_who_comes_second_to_a_data_set_waits_and_takes_what_the_first_has_brought(
    server, tmp_path
):
    told = queue.Queue()
    with ThreadPoolExecutor() as pool:
        with exclusive(tmp_path / "set/.download.lock", "it"):
            second = pool.submit(fetch, [of(server)], tmp_path, report=told.put)
            assert re.match(rf"waiting for pid {os.getpid()} on .*/set$", told.get(timeout=60))
            put(tmp_path, of(server), CONTENT)
        second.result(timeout=60)
    assert server.requests == []


def test_a_file_without_a_published_checksum_must_be_what_its_receipt_lists(tmp_path):
    folder, named = RawFolder("set/folder", "*.json"), RawFile("set/a", None, "")
    for name in ("set/a", "set/folder/b.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"content")
    file = tmp_path / "set.json"
    seals.write_json(file, receipt("set", [folder, named], tmp_path))
    check_receipt(file, [folder, named], tmp_path)
    for name in ("set/a", "set/folder/b.json"):
        (tmp_path / name).write_bytes(b"another")
        with pytest.raises(DataError, match=f"{name} is not what .*set.json lists; delete"):
            check_receipt(file, [folder, named], tmp_path)
        (tmp_path / name).write_bytes(b"content")
    (tmp_path / "set/a").rename(tmp_path / "b")
    with pytest.raises(DataError, match="set/a is not what .*set.json lists; delete"):
        check_receipt(file, [folder, named], tmp_path)
    (tmp_path / "b").rename(tmp_path / "set/a")
    new = tmp_path / "set/folder/c.json"
    for change in (lambda: new.write_bytes(b"content"), new.unlink):  # added, then lost
        change()
        with pytest.raises(DataError, match="folder/c.json is not what .*set.json lists; delete"):
            check_receipt(file, [folder, named], tmp_path)
        seals.write_json(file, receipt("set", [folder, named], tmp_path))


def test_the_script_writes_a_receipt_even_where_nothing_is_needed(tmp_path):
    words = ["digits", "--raw", tmp_path, "--receipt", tmp_path / "digits.json"]
    done = python(ROOT / "scripts/download.py", *words, cwd=tmp_path, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert seals.read_json(tmp_path / "digits.json") == {"dataset": "digits", "files": []}
