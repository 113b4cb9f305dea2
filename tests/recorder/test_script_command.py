"""A command that records no script says why, and what to type."""

from __future__ import annotations

import sys

import pytest

from tensortide.errors import ExitStatus, WorkloadError
from tensortide.recorder import script as script_module
from tensortide.recorder.script_command import Script, find_script


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("", "after -- comes the command of a training script"),
        ("python9 train.py", "there is no command python9"),
        (f"{sys.executable} missing.py", "missing.py is not there"),
        (f"{sys.executable} .", ". is a folder"),
        (f"{sys.executable} -u", "the command runs no script"),
        (f"{sys.executable} -c 1", "put the code into a file"),
        (f"{sys.executable} -m", "needs the name of a module"),
    ],
)
def test_a_command_that_runs_no_script_is_refused(command: str, said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        find_script(f"-- {command}")


def test_a_variable_of_a_launcher_is_told_from_other_errors() -> None:
    script = Script("python", (), "file", "train.py", ())
    asked = script_module._failure(script, 1, {"failed": "KeyError: 'RANK'"}, 2)
    failed = script_module._failure(script, 1, {"failed": "KeyError: 'BANK'"}, 2)
    assert (asked.status, failed.status) == (ExitStatus.WRONG, ExitStatus.CANNOT)
    assert "reads RANK" in str(asked)
    assert "raised KeyError: 'BANK'" in str(failed)
