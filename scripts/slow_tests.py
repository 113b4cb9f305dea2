"""Choose the slow tests of one run of continuous integration, and run them.

    python -m scripts.slow_tests --seconds 900             # choose what takes 900 seconds, and run it
    python -m scripts.slow_tests --seconds 900 --dry-run
    python -m scripts.slow_tests --record report.csv       # take durations into the table
    python -m scripts.slow_tests --count                   # count this landing

A *landing* is what continuous integration tests and the main branch then takes. One run has no time for all slow
tests. It takes a share of all of them, which moves on with every landing, so that each is run within ``CYCLE``; then
those of the rooms that changed since the last landing, then those of rooms that import these, then the others.

The choice follows from the clone alone: the commits since the last landing are those of the last four hours of work,
durations and the number of the landing stand in ``tests/slow_tests.csv``. ``make test`` adds one to the number, unless
that was done in the last two hours; so a landing may add two, and a share has the turns of two numbers. For a landing
that is not counted the number of commits takes its place.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from scripts.import_graph import ROOT, changed_paths, package_imports, reached_tests, room_of

TABLE = ROOT / "tests/slow_tests.csv"
UNLISTED_S = 20.0
"""CPU seconds of a file that the table does not list yet."""
_MARK = re.compile(r"mark\.slow|some_slow\(|\bSLOW\b")
CYCLE = 7
"""Landings within which every slow test is chosen. It is a prime, so that also numbers of commits visit all turns."""
WORKERS = 2
FRAMEWORK_ROOMS = {"importers", "cost", "graph"}
"""Rooms whose changes need the tests of JAX, Keras and TensorFlow."""
LANDING_S = 4 * 3600
"""Work on one landing takes less: commits this much older than the last one belong to those before."""
RECOUNT_AFTER_S = 2 * 3600
"""A landing is counted at most once in this time."""


@dataclass(frozen=True)
class Table:
    """CPU seconds of the slow tests of each file, and the number of the landing they were written for."""

    landing: int
    cpu_s: dict[str, float]


def read_table(path: Path = TABLE) -> Table:
    """Read the table of durations."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = dict(csv.reader(file))
    return Table(int(rows.pop("landing")), {test_file: float(seconds) for test_file, seconds in rows.items()})


def with_unlisted(table: Table, root: Path = ROOT) -> Table:
    """The table with files of slow tests that it does not list yet, and without those that are gone. A file that it
    lists stays without a mark in its text: it may have parameters of another one."""
    texts = {
        path.relative_to(root).as_posix(): path.read_text("utf-8", "replace")
        for path in (root / "tests").rglob("test_*.py")
    }
    found = {name for name, text in texts.items() if name in table.cpu_s or _MARK.search(text)}
    return Table(table.landing, {name: table.cpu_s.get(name, UNLISTED_S) for name in found})


def write_table(table: Table, path: Path = TABLE) -> None:
    """Write the table of durations, a line a file, so that changes can be read."""
    rows = [("landing", str(table.landing)), *((name, f"{table.cpu_s[name]:.1f}") for name in sorted(table.cpu_s))]
    path.write_text("".join(f"{name},{value}\n" for name, value in rows), "utf-8")


def share(table: Table, landing: int) -> list[str]:
    """Test files whose turn it is, or would have been if the number before had been that of a landing."""
    return [*_with_turn(table, landing), *_with_turn(table, landing - 1)]


def _with_turn(table: Table, landing: int) -> list[str]:
    """Each file has its own turn among ``CYCLE``, whatever other files come or go."""
    return [name for name in sorted(table.cpu_s) if (_turn(name) - landing) % CYCLE == 0]


def _turn(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])


def choose(table: Table, landing: int, reached: Iterable[str], limit_cpu_s: float) -> list[str]:
    """Test files to run, in this order: the share of the landing, then files in ``reached`` (folders and files of
    tests, nearest to the change first), then the others beginning with those longest not run."""
    now = share(table, landing)
    near = [name for target in reached for name in sorted(table.cpu_s) if _is_within(name, target)]
    others = [name for back in range(CYCLE - 1, 1, -1) for name in _with_turn(table, landing - back)]
    found, total_s = [], 0.0
    for name in dict.fromkeys([*now, *near, *others]):
        # The share is run whatever it takes: that no test is left out for long rests on it.
        if name in now or total_s + table.cpu_s[name] <= limit_cpu_s:
            found.append(name)
            total_s += table.cpu_s[name]
    return found


def _is_within(name: str, target: str) -> bool:
    return name == target or name.startswith(f"{target}/")


def landing_base(root: Path = ROOT, older_by_s: int = LANDING_S) -> str:
    """The last commit before this landing: the newest one that is so much older than HEAD; else the first of all."""
    newest_s = int(_git(root, "log", "-1", "--format=%ct"))
    older = _git(root, "rev-list", "-1", f"--before={newest_s - older_by_s}", "HEAD")
    return older or _git(root, "rev-list", "--max-parents=0", "HEAD").splitlines()[-1]


def landing_changes(base: str, root: Path = ROOT) -> list[str]:
    """Paths that this landing changes: all, where the clone holds no commit before it."""
    is_all = base == _git(root, "rev-parse", "HEAD")
    return changed_paths(_git(root, "hash-object", "-t", "tree", "--stdin") if is_all else base, root)


def is_counted(base: str, root: Path = ROOT) -> bool:
    """True if commits since ``base``, or what is not committed, have changed the number of the landing."""
    shown = _git(root, "diff", base, "--", TABLE.relative_to(ROOT).as_posix())
    return any(line.startswith("+landing,") for line in shown.splitlines())


def landing_number(table: Table, base: str, root: Path = ROOT) -> int:
    """The number of this landing. One that is not counted moves on with every commit."""
    return table.landing + (0 if is_counted(base, root) else int(_git(root, "rev-list", "--count", "HEAD")))


def count_landing() -> None:
    """Add one to the number of the landing, to be committed with it, unless that was done a short time ago."""
    table = read_table()
    if not is_counted(landing_base(older_by_s=RECOUNT_AFTER_S)):
        write_table(Table(table.landing + 1, table.cpu_s))
        print(f"landing {table.landing + 1} is counted in {TABLE.relative_to(ROOT)}: commit it")


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=root, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    ).stdout.strip()


def updated(table: Table, report: Path) -> Table:
    """``table`` with the durations of the files that a report of ``--cpu-report`` has."""
    with report.open(encoding="utf-8", newline="") as file:
        seconds: dict[str, float] = defaultdict(float)
        for test, cpu_s in csv.reader(file):
            if "::" in test:
                seconds[test.partition("::")[0]] += float(cpu_s)
    return Table(table.landing, {**table.cpu_s, **seconds})


def main() -> int:
    """Choose and run; pass on the exit code of pytest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1e9, help="wall time to fill with tests")
    parser.add_argument(
        "--stop-after", type=float, default=1e9, metavar="SECONDS", help="start no test after that time"
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be run")
    parser.add_argument("--frameworks", action="store_true", help="exit with 0 if the changes need tests of frameworks")
    parser.add_argument("--cpu-report", metavar="FILE", help="write the CPU seconds of each test")
    parser.add_argument("--record", type=Path, metavar="REPORT", help="take durations from a report into the table")
    parser.add_argument("--count", action="store_true", help="count this landing, unless that was just done")
    options = parser.parse_args()
    if options.count:
        count_landing()
        return 0
    if options.record is not None:
        write_table(updated(read_table(), options.record))
        return 0
    table, base, stop_at = with_unlisted(read_table()), landing_base(), time.time() + options.stop_after
    changed = landing_changes(base)
    if options.frameworks:
        return FRAMEWORK_ROOMS.isdisjoint(map(room_of, changed))
    landing = landing_number(table, base)
    reached = reached_tests(changed, package_imports())
    chosen = choose(table, landing, reached, options.seconds * WORKERS)
    chosen_s, total_s = sum(table.cpu_s[name] for name in chosen), sum(table.cpu_s.values())
    print(
        f"landing {landing}, changes since {base[:8]}: {len(chosen)} of {len(table.cpu_s)} files of slow tests,",
        end=" ",
    )
    print(f"{chosen_s:.0f} of {total_s:.0f} CPU s", flush=True)
    if options.dry_run:
        print(*chosen, sep="\n")
        return 0
    pytest = [sys.executable, "-m", "pytest", "-m", "slow and not frameworks", "-n", str(WORKERS), "--dist", "loadfile"]
    command = [*pytest, "--no-loadscope-reorder", f"--stop-at={stop_at:.0f}", "--durations", "20"]
    if options.cpu_report is not None:
        command.append(f"--cpu-report={options.cpu_report}")
    return subprocess.run([*command, *chosen], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
