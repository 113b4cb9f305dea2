"""A script that runs again writes nothing and connects to nothing, and reads back what it wrote."""

# ruff: noqa: PTH102, PTH103, PTH104, PTH105, PTH107, PTH110, PTH123, PTH208, SIM115

from __future__ import annotations

import os
import shutil
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tensortide.recorder.script import ScriptOptions
from tensortide.recorder.second_run import folders_made, kept_apart
from tests.recorder.script_run import STEP, forked, loop


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() else "" for path in sorted(folder.rglob("*"))
    }


def test_files_are_as_they_were_and_are_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").mkdir()
    for name in ("a.txt", "b.txt", "log.txt", "old/c.txt"):
        Path(name).write_text(name)
    before = contents(tmp_path)
    with kept_apart([], []) as world:
        with open("log.txt", "a") as log:
            log.write("+")
            log.flush()
            assert (Path("log.txt").read_text(), log.name) == ("log.txt+", "log.txt")
        os.makedirs("out/deep")
        Path("out/deep/x.txt").write_text("x")
        os.rename("a.txt", "out/a.txt")
        os.replace("out/deep/x.txt", "b.txt")
        shutil.copy2("b.txt", "copy.txt")
        shutil.rmtree("old")
        assert not os.path.exists("a.txt")
        assert not os.path.exists("old/c.txt")
        assert sorted(os.listdir()) == ["b.txt", "copy.txt", "log.txt", "out"]
        assert sorted(each.name for each in os.scandir(".")) == sorted(path.name for path in Path.cwd().glob("*"))
        assert [*os.walk("out")] == [("out", ["deep"], ["a.txt"]), ("out/deep", [], [])]
        assert (Path("b.txt").read_text(), Path("out/a.txt").read_text()) == ("x", "a.txt")
        os.remove("copy.txt")
        os.close(os.open("low.bin", os.O_WRONLY | os.O_CREAT))
        assert Path("low.bin").stat().st_size == 0
        for missing in (lambda: open("copy.txt"), lambda: os.remove("copy.txt"), lambda: open("nowhere/x", "w")):
            with pytest.raises(FileNotFoundError):
                missing()
        with pytest.raises(FileExistsError):
            os.mkdir("out")
        assert str(tmp_path / "log.txt") in world.written
    assert contents(tmp_path) == before


def test_a_folder_that_the_first_run_made_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with folders_made() as made:
        os.makedirs("runs/1")
    with kept_apart(made, []):
        os.makedirs("runs/1")
        with pytest.raises(FileExistsError):
            os.mkdir("runs/1")


def test_other_hosts_are_out_of_reach_and_this_one_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, kept_apart([], []) as world:
        socket.create_connection(server.getsockname()).close()
        with pytest.raises(urllib.error.URLError, match="no other host"):
            urllib.request.urlopen("http://tracker.invalid/log")
        with socket.socket() as own, pytest.raises(ConnectionRefusedError):
            own.connect(("192.0.2.1", 80))
        assert os.environ["HF_HUB_OFFLINE"] == "1"
        assert world.hosts == {"tracker.invalid", "192.0.2.1"}
    assert "HF_HUB_OFFLINE" not in os.environ


def test_a_second_run_of_a_script_writes_nothing(tmp_path: Path) -> None:
    body = f"""
    import os
    {STEP}
    os.makedirs("out", exist_ok=True)
    with open("out/log.txt", "a") as log: log.write("step\\n")
    assert open("out/log.txt").read() == "step\\n" * (i + 1)
    with open("out/last.pt", "wb") as file: torch.save(model.state_dict(), file)
    assert torch.load("out/last.pt")["bias"].shape == (1,)
    """
    ran = forked(tmp_path, loop(tmp_path, body), options=ScriptOptions(device="cuda"), moved=True)
    assert ran.graph is not None, ran.err + str(ran.outcome)
    assert not (tmp_path / "out").exists()
    assert [Path(each).name for each in ran.outcome["kept_apart"][0]] == ["out", "last.pt", "log.txt"]
