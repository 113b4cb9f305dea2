"""A file is written whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tensortide.errors import OutputError
from tensortide.write import check_writable, write_file


def test_writes_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    assert write_file(path, "one") == path
    path.chmod(0o640)
    write_file(path, b"two")
    assert path.read_text() == "two"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["out.txt"]


def test_a_pipe_is_written_to_by_its_name(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    write_file(f"/dev/fd/{writer}", "one")
    assert os.read(reader, 10) == b"one"
    os.close(reader)
    os.close(writer)


def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    assert write_file(tmp_path / "new", "").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_file(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_device_is_written_to() -> None:
    write_file("/dev/null", "anything")
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(
    ("path", "reason"),
    [("missing/out", "does not exist"), (".", "is a directory"), ("file/out", "is not a directory")],
)
def test_a_place_that_cannot_be_is_told(tmp_path: Path, path: str, reason: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=reason):
        write_file(tmp_path / path, "x")


@pytest.mark.parametrize(
    ("number", "reason"), [(errno.ENOSPC, "disk is full"), (errno.EACCES, "permission"), (errno.EIO, "error")]
)
def test_a_failure_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, reason: str
) -> None:
    def fail(*_: object, **__: object) -> object:
        raise OSError(number, os.strerror(number))

    path = tmp_path / "out.txt"
    path.write_text("before")
    monkeypatch.setattr(os, "fdopen", fail)
    with pytest.raises(OutputError, match=reason):
        write_file(path, "after")
    monkeypatch.undo()
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["out.txt"]


def test_a_really_full_disk() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with pytest.raises(OutputError, match="disk is full"):
        write_file("/dev/full", "x")


def test_folders_are_made_if_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "some" / "more" / "page.html"
    assert check_writable(path, folders=True) == path
    assert not list(tmp_path.iterdir())
    write_file(path, "one", folders=True)
    write_file(path, "two", folders=True)
    assert path.read_text() == "two"
    with pytest.raises(OutputError, match=r"page\.html is not a directory"):
        check_writable(path / "new" / "page.html", folders=True)

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(OutputError, match="the disk is full"):
        write_file(tmp_path / "other" / "more" / "page.html", "three", folders=True)
    assert [p.name for p in tmp_path.iterdir()] == ["some"]
