"""The lock of a measurement, among real processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tensortide.errors import CaptureError, OutputError
from tensortide.timing.lock import only_one

HOLD = """
import sys
from pathlib import Path

from tensortide.timing.lock import only_one

with only_one(Path(sys.argv[1]), "measuring"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which holds ``tmp_path / "a.lock"`` until its standard input ends."""
    command, pipe = [sys.executable, "-c", HOLD, str(tmp_path / "a.lock")], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_is_told_of_the_first_until_that_is_done(owner: subprocess.Popen[str], tmp_path: Path) -> None:
    told = rf"another process is measuring \(process {owner.pid} on .*, since \d\d:\d\d:\d\d\): wait until it is done"
    with pytest.raises(CaptureError, match=told), only_one(tmp_path / "a.lock", "measuring"):
        pass
    with only_one(tmp_path / "b.lock", "measuring"):
        pass
    owner.communicate()
    with only_one(tmp_path / "a.lock", "measuring"):
        assert (tmp_path / "a.lock").exists()
    assert not list(tmp_path.iterdir())


def test_the_lock_of_a_process_that_was_killed_is_taken_over(owner: subprocess.Popen[str], tmp_path: Path) -> None:
    owner.kill()
    owner.wait()
    assert (tmp_path / "a.lock").exists()
    with only_one(tmp_path / "a.lock", "measuring"):
        pass


def test_a_lock_that_its_owner_deleted_while_another_opened_it_is_not_held(tmp_path: Path) -> None:
    """A process that has the deleted file open must not take it for the lock."""
    path = tmp_path / "new" / "a.lock"
    with only_one(path, "measuring"):
        path.unlink()
        with only_one(path, "measuring"), pytest.raises(CaptureError), only_one(path, "measuring"):
            pass


def test_a_place_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"a\.lock"), only_one(tmp_path / "file" / "a.lock", "measuring"):
        pass
