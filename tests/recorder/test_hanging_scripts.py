"""A script that hangs, or lacks what it needs, ends with one line that says where and what to do."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tensortide.errors import ProgramFailed
from tensortide.recorder import idle
from tensortide.recorder.idle import Idle, innermost
from tensortide.recorder.program_errors import of_program
from tensortide.recorder.script import ScriptOptions, capture_script
from tensortide.recorder.script_command import find_script, script_text
from tests.recorder.script_run import forked

STACK = """Current thread 0x1 (most recent call first):
  File "/usr/lib/python3.11/socket.py", line 706 in readinto
  File "/venv/lib/python3.11/site-packages/requests/api.py", line 5 in get
  File "{file}", line 2 in fetch
  File "/home/me/train.py", line 30 in main
"""


def test_the_line_of_a_stack_is_the_innermost_of_the_program(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("def fetch():\n    sock.recv(1)\n")
    assert innermost(STACK.format(file=file)) == f"{file}:2 in fetch: sock.recv(1)"
    assert innermost("") == ""


def test_a_process_works_while_it_waits_for_a_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def written(process: int, ticks: int, queued_ns: int, children: str) -> None:
        thread = tmp_path / f"{process}" / "task" / f"{process}"
        thread.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{process}" / "stat").write_text(f"{process} (a (b) c) S {'0 ' * 10}{ticks} 0 0 0 20")
        (thread / "children").write_text(children)
        (thread / "schedstat").write_text(f"5 {queued_ns} 9")

    monkeypatch.setattr(idle, "_PROCESSES", tmp_path)
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    written(7, 150, 0, "8 9")  # 9 has ended
    written(8, 50, 3 * 10**9, "")
    assert idle._used_s(7) == 1.5 + 0.5 + 3
    assert idle._used_s(10) is None


GRANDCHILD = """
import subprocess, sys
busy = "import time\\nuntil = time.time() + 8\\nwhile time.time() < until: pass"
own = f"import subprocess, sys; subprocess.run([sys.executable, chr(45) + chr(83), chr(45) + chr(99), {busy!r}])"
subprocess.run([sys.executable, "-S", "-c", own])
"""


@pytest.mark.parametrize(
    ("work", "hangs"),
    [("import time; time.sleep(60)", True), ("while True: pass", False), (GRANDCHILD, False)],
    ids=["sleeps", "works", "has a grandchild that works"],
)
@pytest.mark.slow
def test_a_process_hangs_if_it_uses_no_processor(work: str, hangs: bool) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", work]) as process:
        try:
            watch, until = Idle(process, 2.0), time.monotonic() + 5
            found = False
            while not found and time.monotonic() < until:
                found = watch.hangs("")
                time.sleep(0.05)
            assert found is hangs
        finally:
            process.kill()


@pytest.mark.slow
def test_a_script_that_waits_ends_and_its_line_is_told(tmp_path: Path) -> None:
    file = tmp_path / "waits.py"
    file.write_text("import socket\nown, other = socket.socketpair()\nown.recv(1)\n")
    script = find_script(script_text([sys.executable, str(file)]))
    assert script is not None
    with pytest.raises(ProgramFailed, match=r"waits.py hangs in step 1 at .*waits.py:3 in <module>: own.recv\(1\)"):
        capture_script(script, ScriptOptions(fake=True, idle=3.0))


MESH = "from torch.distributed.device_mesh import init_device_mesh\ninit_device_mesh('cpu', (8,))\n"


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("open('data/train.bin')", ScriptOptions(), "needs data/train.bin, which is not there in {here} (at {at}:1): "),
        ("\nopen('/no/x')", ScriptOptions(fake=True), "needs /no/x, which is not there (at {at}:2): make it"),
        (MESH, ScriptOptions(fake=True, ranks=4), "has a mesh of 8 ranks, and is launched on 4 (at {at}:2): --ranks 8"),
        (
            "import amp_C",
            ScriptOptions(),
            "needs amp_C, a compiled extension that is not installed (at {at}:1): install",
        ),
    ],
)
def test_a_script_that_lacks_something_is_told_what(
    text: str, options: ScriptOptions, said: str, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(text)
    outcome = forked(tmp_path, "own.py", options=options).outcome
    assert outcome["error"].startswith(f"own.py {said.format(here=tmp_path, at=tmp_path / 'own.py')}")
    assert "\n" not in outcome["error"]
    assert outcome["cannot"]


def test_errors_of_other_kinds_are_not_those_of_something_lacking() -> None:
    assert of_program(FileNotFoundError("no checkpoint"), "x") is None
    assert of_program(ModuleNotFoundError("No module named 'helper'", name="helper"), "x") is None
    text = "libcudart.so.12: cannot open shared object file: No such file or directory"
    assert "compiled extension" in (of_program(ImportError(text), "x") or "")
