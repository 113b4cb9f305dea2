"""A file is written whole or not at all."""

from __future__ import annotations

import errno
import itertools
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tensortide.errors import OutputError
from tensortide.write import check_writable, write_file, write_files


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


PROGRAM = "print('the only copy')\n"


def chained(folder: Path, *names: str) -> Path:
    """Make each of ``names`` but the last a relative link to the next; the first."""
    for name, next_name in itertools.pairwise(names):
        (folder / name).symlink_to(next_name)
    return folder / names[0]


@pytest.mark.parametrize(
    "names",
    [
        ("out.html", "train.py"),
        ("out.html", "middle.html", "train.py"),
        ("out.html", "TRAIN.PY"),
        ("out.html", "step.tide"),
        ("out.html", "weights.safetensors"),
        ("train.py", "0f3a9c"),
        ("out.html", "train.py", "store.txt"),
    ],
    ids="->".join,
)
def test_no_link_leads_to_the_loss_of_a_program(tmp_path: Path, names: tuple[str, ...]) -> None:
    link, program = chained(tmp_path, *names), tmp_path / names[-1]
    program.write_text(PROGRAM)
    ways: list[Callable[[], object]] = [
        lambda: check_writable(link),
        lambda: check_writable(link, folders=True),
        lambda: write_file(link, "result"),
        lambda: write_files({tmp_path / "other.csv": "result", link: "result"}),
    ]
    for way in ways:
        with pytest.raises(OutputError, match=r"it exists and is not a result file|a captured step is there"):
            way()
    assert program.read_text() == PROGRAM
    assert {path.name for path in tmp_path.iterdir()} == {*names}


MODELS = ["pt", "pt2", "pth", "ckpt", "safetensors", "onnx", "keras", "h5", "hdf5", "tflite", "pb", "bin", "npz", "npy"]
PROGRAMS = ["py", "ipynb", "sh", "bash", "c", "cc", "cpp", "cu"]


@pytest.mark.parametrize("suffix", [*MODELS, *PROGRAMS])
def test_no_result_replaces_a_model_or_a_program(tmp_path: Path, suffix: str) -> None:
    kept = tmp_path / f"net.{suffix.upper()}"
    kept.write_text(PROGRAM)
    for path in (kept, chained(tmp_path, "out.html", kept.name)):
        with pytest.raises(OutputError, match="it exists and is not a result file"):
            write_file(path, "result")
    assert kept.read_text() == PROGRAM


@pytest.mark.parametrize("replaces", ["", ".py"])
@pytest.mark.parametrize("name", ["train", "train.html", "train.py"])
def test_a_program_that_names_its_interpreter_stays_whatever_its_name(tmp_path: Path, name: str, replaces: str) -> None:
    (tmp_path / name).write_text("#!/bin/sh\n")
    link = chained(tmp_path, "t.html", name)
    for path, where in ((tmp_path / name, ""), (link, f"it is a link to {tmp_path / name}: ")):
        with pytest.raises(
            OutputError, match=re.escape(f"cannot write {path}: {where}it exists and is not a result file")
        ):
            check_writable(path, replaces=replaces)
    assert (tmp_path / name).read_text() == "#!/bin/sh\n"
    for content in ("", "#", "# !", "<html>"):
        (tmp_path / "old.html").write_text(content)
        write_file(tmp_path / "old.html", content)


def test_a_link_from_another_folder_is_followed_from_there(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "deep" / "results").mkdir(parents=True)
    (tmp_path / "results").symlink_to("deep/results")
    (tmp_path / "deep" / "results" / "out.html").symlink_to("../../train.py")
    with pytest.raises(OutputError, match="it exists and is not a result file"):
        write_file(tmp_path / "results" / "out.html", "result")
    assert (tmp_path / "train.py").read_text() == PROGRAM


def test_a_hard_link_is_replaced_and_the_program_stays(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "out.html").hardlink_to(tmp_path / "train.py")
    write_file(tmp_path / "out.html", "result")
    assert (tmp_path / "train.py").read_text() == PROGRAM
    assert (tmp_path / "out.html").read_text() == "result"


def test_files_of_the_writers_own_kind_are_replaced_also_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "old.tide").write_text("old")
    write_file(chained(tmp_path, "new.tide", "old.tide"), "new", replaces=".tide")
    assert (tmp_path / "old.tide").read_text() == "new"
    (tmp_path / "train.py").write_text(PROGRAM)
    with pytest.raises(OutputError, match="not a result file"):
        write_file(chained(tmp_path, "third.tide", "train.py"), "new", replaces=".tide")


def test_a_link_to_what_is_missing_makes_it(tmp_path: Path) -> None:
    link = chained(tmp_path, "out.html", "real.html")
    write_file(link, "new")
    assert link.is_symlink()
    assert (tmp_path / "real.html").read_text() == "new"
    lost = chained(tmp_path, "lost.html", "gone/out.html")
    with pytest.raises(OutputError, match="gone does not exist"):
        check_writable(lost)
    assert write_file(lost, "new", folders=True).read_text() == "new"
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file is not a directory"):
        check_writable(chained(tmp_path, "wrong.html", "file/out.html"), folders=True)


@pytest.mark.parametrize("names", [("a", "b", "a"), ("a", "a"), ("out.html", "a", "b", "a")], ids="->".join)
def test_links_in_a_circle_are_told(tmp_path: Path, names: tuple[str, ...]) -> None:
    link = chained(tmp_path, *names)
    for way in (check_writable, lambda path: write_file(path, "x"), lambda path: write_files({path: "x"})):
        with pytest.raises(OutputError, match="its symbolic links form a loop"):
            way(link)
    with pytest.raises(OutputError, match=r"a is a symbolic link that does not lead to a directory|a does not exist"):
        write_file(tmp_path / "a" / "deep" / "out.html", "x", folders=True)
    assert {path.name for path in tmp_path.iterdir()} == {*names}


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs /dev/shm")
def test_a_file_in_memory_is_replaced(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for text in ("one", "two"):
            assert write_file(Path(folder, "out"), text).read_text() == text


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
