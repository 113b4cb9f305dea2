"""Scripts run in forks; little is imported here, since every fork imports it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from tensortide.recorder import script_process


def run_in(folder: Path, request: dict[str, Any], kind: str, command: tuple[str, ...]) -> None:
    """Run a script as its interpreter would, and end this process with its exit status."""
    os.chdir(folder)
    with (folder / "err.txt").open("w", buffering=1) as err:
        sys.stdout = sys.stderr = err
        status = 70
        try:
            status = script_process.run(request, kind, *command)
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else 1
        finally:
            err.flush()
            os._exit(status)
