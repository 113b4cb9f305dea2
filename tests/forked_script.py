"""Scripts run as ``__main__`` in forks; little is imported here, since every fork imports it."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path


def run_as_main(script: Path, arguments: Sequence[str], out: Path, err: Path) -> None:
    """Run ``script`` with ``arguments`` as the interpreter would; the files ``out`` and ``err`` have what it prints."""
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    sys.argv[:] = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")
