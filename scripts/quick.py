"""Test the rooms that changed and every room that imports them: those of the working tree against the last commit, or
against the commit at which the branch left the revision given.

    python -m scripts.quick              # what is not committed yet
    python -m scripts.quick main         # what the branch changes
    python -m scripts.quick --dry-run    # print what would be tested

A change outside ``src/tensortide/ROOM`` and ``tests/ROOM`` runs the test files at the top of ``tests``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from scripts.import_graph import ROOT, changed_paths, package_imports, reached_tests


def main() -> int:
    """Run the tests, and pass on the exit code of pytest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", nargs="?", default="HEAD", help="a branch or another revision (default: HEAD)")
    parser.add_argument("--dry-run", action="store_true", help="print what would be tested")
    options = parser.parse_args()
    base = subprocess.run(
        ["git", "merge-base", options.revision, "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if base.returncode:
        parser.error(f"git knows no revision {options.revision!r} that has to do with this branch")
    paths = changed_paths(base.stdout.strip())
    found = reached_tests(paths, package_imports()) if paths else []
    if not found:
        print("nothing changed")
        return 0
    if options.dry_run:
        print(*found, sep="\n")
        return 0
    print("testing", *found, flush=True)
    pytest = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal"]
    return subprocess.run([*pytest, *found], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
