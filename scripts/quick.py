"""Test the rooms that changed: those of the working tree against the last commit, or against the revision given.

    python scripts/quick.py          # what is not committed yet
    python scripts/quick.py main     # what the branch changes

A change in ``src/tensortide/ROOM`` or ``tests/ROOM`` runs ``tests/ROOM``; any other change in either runs the test
files at the top of ``tests``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def changed(revision: str) -> list[str]:
    """Paths that differ from ``revision``, and files that git does not know yet."""
    commands = (["git", "diff", "--name-only", revision], ["git", "ls-files", "--others", "--exclude-standard"])
    found = [subprocess.run(each, cwd=ROOT, capture_output=True, text=True, check=True).stdout for each in commands]
    return "".join(found).splitlines()


def targets(paths: list[str], root: Path = ROOT) -> list[str]:
    """Folders and files of tests to run for changes in ``paths``."""
    found: set[str] = set()
    for path in paths:
        folder = next((each for each in ("src/tensortide/", "tests/") if path.startswith(each)), None)
        if folder is None:
            continue
        rest = path.removeprefix(folder)
        room = root / "tests" / rest.split("/")[0]
        if "/" in rest and room.is_dir():
            found.add(f"tests/{room.name}")
        else:
            found.update(f"tests/{file.name}" for file in (root / "tests").glob("test_*.py"))
    return sorted(found)


def main() -> int:
    """Run the tests, and pass on the exit code of pytest."""
    found = targets(changed(sys.argv[1] if len(sys.argv) > 1 else "HEAD"))
    if not found:
        print("nothing changed in src/tensortide or tests")
        return 0
    print("testing", *found, flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *found], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
