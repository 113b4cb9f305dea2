"""Test the rooms that changed and every room that imports them: those of the working tree against the last commit, or
against the revision given.

    python -m scripts.quick          # what is not committed yet
    python -m scripts.quick main     # what the branch changes

A change outside ``src/tensortide/ROOM`` and ``tests/ROOM`` runs the test files at the top of ``tests``.
"""

from __future__ import annotations

import subprocess
import sys

from scripts.import_graph import ROOT, changed_paths, package_imports, reached_tests


def main() -> int:
    """Run the tests, and pass on the exit code of pytest."""
    paths = changed_paths(sys.argv[1] if len(sys.argv) > 1 else "HEAD")
    found = reached_tests(paths, package_imports()) if paths else []
    if not found:
        print("nothing changed")
        return 0
    print("testing", *found, flush=True)
    pytest = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal"]
    return subprocess.run([*pytest, *found], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
