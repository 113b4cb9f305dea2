"""The user's cache: what is used stays, whoever uses it, and what nobody uses for long is removed."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tensortide import user_cache
from tensortide.user_cache import KEPT_DAYS, claim_folder, mark_used, remove_unused

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nothing is removed where files cannot be locked")

FORK = multiprocessing.get_context("fork")
LONG_AGO_S = (KEPT_DAYS + 1) * 86_400
LATELY_S = (KEPT_DAYS - 1) * 86_400


def aged(path: Path, age_s: float) -> Path:
    moment = time.time() - age_s
    os.utime(path, (moment, moment))
    return path


def kernels(home: Path, name: str, age_s: float) -> Path:
    """A folder of kernels that was last used ``age_s`` ago."""
    folder = home / f"kernels-{name}"
    folder.mkdir(parents=True)
    (folder / "kernel.nbi").write_bytes(b"machine code")
    return aged(folder, age_s)


def core(home: Path, suffix: str, age_s: float) -> Path:
    path = home / f"core-1{suffix}"
    path.write_bytes(b"machine code")
    return aged(path, age_s)


@pytest.fixture(autouse=True)
def own_locks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Entries that a test uses are released after it."""
    held: dict[Path, int] = {}
    monkeypatch.setattr(user_cache, "_held", held)
    yield
    for number in held.values():
        os.close(number)


def test_only_machine_code_that_nobody_has_used_for_long_is_removed(tmp_path: Path) -> None:
    old, new = kernels(tmp_path, "old", LONG_AGO_S), kernels(tmp_path, "new", LATELY_S)
    library, failure = core(tmp_path, ".so", LONG_AGO_S), core(tmp_path, ".log", LONG_AGO_S)
    stay = [core(tmp_path, ".lock", LONG_AGO_S), core(tmp_path, ".new.so", LATELY_S)]
    measured = tmp_path / "measured"
    measured.mkdir()
    stay += [aged(measured, LONG_AGO_S), new]
    assert {*remove_unused(tmp_path)} == {old, library, failure}
    assert {*tmp_path.iterdir()} == {*stay, tmp_path / "pruned"}
    assert (new / "kernel.nbi").exists()


def test_it_is_looked_for_once_a_day(tmp_path: Path) -> None:
    kernels(tmp_path, "one", LONG_AGO_S)
    assert len(remove_unused(tmp_path)) == 1
    two = kernels(tmp_path, "two", LONG_AGO_S)
    assert remove_unused(tmp_path) == []
    aged(tmp_path / "pruned", 86_401)
    assert remove_unused(tmp_path) == [two]


def use(path: Path, ready: Connection) -> None:
    ready.send(mark_used(path))
    ready.recv()


def test_what_another_process_uses_stays_until_it_ends(tmp_path: Path) -> None:
    entries = [kernels(tmp_path, "old", LONG_AGO_S), core(tmp_path, ".so", LONG_AGO_S)]
    users = []
    for entry in entries:
        here, there = FORK.Pipe()
        users.append((FORK.Process(target=use, args=(entry, there), daemon=True), here))
        users[-1][0].start()
        assert here.recv() is True
    for entry in entries:
        assert time.time() - entry.stat().st_mtime < 60
        aged(entry, LONG_AGO_S)  # a process that runs for long
    assert remove_unused(tmp_path) == []
    for process, pipe in users:
        pipe.send(None)
        process.join()
    (tmp_path / "pruned").unlink()
    assert {*remove_unused(tmp_path)} == {*entries}


def work(home: Path, number: int, rounds: int) -> None:
    """Use one folder again and again; what is written there is found while it is in use."""
    path = home / "kernels-shared"
    for turn in range(rounds):
        assert claim_folder(path)
        mine = path / f"{number}-{turn}"
        mine.write_text("code")
        time.sleep(0.001)
        assert mine.read_text() == "code"
        os.close(user_cache._held.pop(path))


def remove_again_and_again(home: Path, done: Path) -> None:
    """Remove the folder as soon as nobody holds it."""
    removed = 0
    while not done.exists():
        for path in (home / "kernels-shared", home / "pruned"):
            try:
                aged(path, LONG_AGO_S)
            except FileNotFoundError:
                continue
        removed += len(remove_unused(home))
    done.with_name(f"removed-{os.getpid()}").write_text(str(removed))


def test_processes_that_use_and_remove_at_once_never_lose_what_they_use(tmp_path: Path) -> None:
    home, done = tmp_path / "home", tmp_path / "done"
    removers = [FORK.Process(target=remove_again_and_again, args=(home, done), daemon=True) for _ in range(2)]
    workers = [FORK.Process(target=work, args=(home, number, 20), daemon=True) for number in range(2)]
    for process in (*removers, *workers):
        process.start()
    for process in workers:
        process.join(60)
    done.touch()
    for process in removers:
        process.join(60)
    assert [process.exitcode for process in (*removers, *workers)] == [0] * 4
    assert sum(int(path.read_text()) for path in tmp_path.glob("removed-*")) > 0
    assert {path.name for path in home.iterdir()} <= {"kernels-shared", "pruned"}


def use_as_another(home: Path, entry: Path) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setuid(65534)
    assert mark_used(entry)
    assert not claim_folder(home / "kernels-new")
    assert remove_unused(home) == []


def test_a_cache_that_is_only_read_is_used_and_left_alone() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        entry = kernels(home, "old", LONG_AGO_S)
        for path in (Path(folder), entry, home):
            path.chmod(0o555)
        process = FORK.Process(target=use_as_another, args=(home, entry), daemon=True)
        process.start()
        process.join(60)
        for path in (home, entry, Path(folder)):
            path.chmod(0o755)
        assert process.exitcode == 0
        assert [path.name for path in home.iterdir()] == ["kernels-old"]


def test_an_entry_that_is_removed_by_hand_is_made_again(tmp_path: Path) -> None:
    entry = tmp_path / "kernels-one"
    assert not mark_used(entry)
    assert claim_folder(entry)
    entry.rmdir()
    assert not mark_used(entry)
    assert claim_folder(entry)
    assert entry.is_dir()


def test_a_process_removes_at_its_end(tmp_path: Path) -> None:
    home = tmp_path / "tensortide"
    kernels(home, "old", LONG_AGO_S)
    used = kernels(home, "used", LONG_AGO_S)
    program = (
        f"from pathlib import Path; from tensortide.user_cache import mark_used; assert mark_used(Path({str(used)!r}))"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    assert {path.name for path in home.iterdir()} == {"kernels-used", "pruned"}
