"""Scripts run as ``__main__`` in forks of a process that has imported what takes seconds.

Little is imported here, since every fork imports it.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tensortide.executors.forks import prepared


def forked(script: Path, *arguments: str, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
    """Run ``script`` with ``arguments``; processes that it starts are new interpreters.

    After ``timeout_s`` it is killed.
    """
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        child = prepared(run_as_main, script, arguments, out, err)
        child.daemon = False  # it may start others
        child.start()
        child.join(timeout_s)
        child.kill()
        child.join()
        assert child.exitcode is not None
        return subprocess.CompletedProcess(arguments, child.exitcode, out.read_text("utf-8"), err.read_text("utf-8"))


def run_as_main(script: Path, arguments: Sequence[str], out: Path, err: Path) -> None:
    """Run ``script`` with ``arguments`` as the interpreter would; the files ``out`` and ``err`` have what it prints."""
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a new interpreter
    sys.argv[:] = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")
