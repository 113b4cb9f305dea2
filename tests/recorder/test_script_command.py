"""A command that records no script says why, and what to type."""

from __future__ import annotations

import sys

import pytest

from tensortide.errors import ExitStatus, WorkloadError
from tensortide.recorder import script as script_module
from tensortide.recorder.script import Script, find_script


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("", "after -- comes the command of a training script"),
        ("torchrun train.py", "torchrun starts the script"),
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


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("torchrun --nproc-per-node 2 train.py --x 1", "--ranks 2 -- python train.py --x 1"),
        ("python -m torch.distributed.run --nproc_per_node=4 train.py", "--ranks 4 -- python train.py"),
        ("accelerate launch --mixed_precision bf16 train.py", "itself: -- python train.py"),
        ("deepspeed train.py", "--ranks N -- python train.py"),
    ],
)
def test_the_script_that_a_launcher_starts_is_named(command: str, told: str) -> None:
    with pytest.raises(WorkloadError, match="starts the script in other processes") as error:
        find_script(f"-- {command.replace('python ', f'{sys.executable} ', 1)}")
    assert str(error.value).endswith(told)


def test_a_variable_of_a_launcher_is_told_from_other_errors() -> None:
    script = Script("python", (), "file", "train.py", ())
    asked = script_module._failure(script, 1, {"failed": "KeyError: 'RANK'"}, 2)
    failed = script_module._failure(script, 1, {"failed": "KeyError: 'BANK'"}, 2)
    assert (asked.status, failed.status) == (ExitStatus.WRONG, ExitStatus.CANNOT)
    assert "reads RANK" in str(asked)
    assert "raised KeyError: 'BANK'" in str(failed)
