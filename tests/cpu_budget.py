"""CPU seconds of the tests, added up by room and held against the budgets of ``tests/rooms.toml``.

A plugin of pytest, on with ``--cpu-budget=fast`` or ``--cpu-budget=slow``. It counts the process that runs a test,
and what it starts, directly or through others; not the processes of a Ray cluster. Each
process counts what it imports and collects in the room ``collection``. Since processors differ, seconds are those of
the machine on which the budgets were written: every process times the same loop when it starts and when it ends. A loop
does not see slow memory, or a shared cache: what most rooms take beyond their budgets is the machine's pace, too.
"""

from __future__ import annotations

import csv
import os
import resource
import statistics
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

TABLE = Path(__file__).with_name("rooms.toml")
EXCESS = 1.5
"""A room fails the run above this multiple of its budget at the machine's pace."""
SLOWEST = 2.0
"""Paces beyond this are not the machine's: then all rooms take too long."""
LONG_S = 1.0
"""CPU seconds above which a test is to be marked ``slow``."""
CLOCK_HZ = os.sysconf("SC_CLK_TCK")
"""Ticks a second in which ``/proc`` counts CPU time."""
REFERENCE_LOOP_S = 0.0283
"""CPU seconds of the loop on the machine on which the budgets were written."""


def loop_s() -> float:
    """CPU seconds of a loop that is the same everywhere: the least of five."""
    found = []
    for _ in range(5):
        before, total = time.thread_time(), 0
        for i in range(1_000_000):
            total += i
        found.append(time.thread_time() - before)
    return min(found)


def cpu_s() -> float:
    """CPU seconds so far of this process, of its children, and of theirs that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used) + sum(map(_process_s, sorted(_children())))


_seen: set[str] = set()
"""Numbers of processes that were children of this one when it looked."""


def _children() -> set[str]:
    """Numbers of the child processes that run: servers that tests fork from live as long as this process.

    The kernel may leave some out of its list while others end, so those that were seen before are looked at, too.
    """
    _seen.update(_children_of("self"))
    return _seen


def _children_of(process: str) -> list[str]:
    try:
        tasks = os.listdir(f"/proc/{process}/task")  # noqa: PTH208 # this is called twice a test
    except OSError:  # it has ended meanwhile
        return []
    return [child for task in tasks for child in _text(f"/proc/{process}/task/{task}/children").split()]


def _process_s(process: str, parent: str = str(os.getpid())) -> float:
    """CPU seconds of a child of ``parent``, and of all that it started; 0 once it has ended itself."""
    fields = _text(f"/proc/{process}/stat").rpartition(")")[2].split()
    if not fields or fields[1] != parent:
        _seen.discard(process)
        return 0.0
    own_s = sum(map(int, fields[11:15])) / CLOCK_HZ
    return own_s + sum(_process_s(child, process) for child in _children_of(process))


def _text(path: str) -> str:
    """Text of a small file of ``/proc``; empty if its process or thread has ended meanwhile."""
    try:
        number = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(number, 4096).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(number)


def room_of(test: str) -> str:
    """The room of a test: its folder in ``tests``."""
    parts = test.partition("::")[0].split("/")
    return parts[1] if len(parts) > 2 else "top"


def budgets(tier: str) -> dict[str, float]:
    """CPU seconds that each room may take in the tier ``fast`` or ``slow``."""
    table = tomllib.loads(TABLE.read_text("utf-8"))
    return {room: float(row[f"{tier}_cpu_s"]) for room, row in table.items() if f"{tier}_cpu_s" in row}


def pace(used: dict[str, float], allowed: dict[str, float]) -> float:
    """CPU seconds that half of the rooms take, or more, for a second of their budgets; at least 1, at most SLOWEST."""
    rates = [used[room] / seconds for room, seconds in allowed.items() if seconds and room in used]
    return min(max(statistics.median(rates), 1.0), SLOWEST) if len(rates) > 2 else 1.0


def over_budget(used: dict[str, float], allowed: dict[str, float]) -> list[str]:
    """One message for each room that takes over half more than it may at the machine's pace, or has no budget."""
    limit = EXCESS * pace(used, allowed)
    return [
        f"{room}: {seconds:.0f} CPU s, budget {allowed.get(room, 0):.0f}"
        for room, seconds in sorted(used.items())
        if seconds > limit * allowed.get(room, 0)
    ]


class CpuBudget:
    """Counts in every process; the one that other processes report to compares and prints."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._tier: str | None = config.getoption("cpu_budget")
        self._loops = [loop_s()]
        self._tests: defaultdict[str, float] = defaultdict(float)
        self._used_s = 0.0
        self._left: Counter[str] = Counter()
        self._compiling_s = 0.0
        self.slow_files: set[str] = set()
        """Files of tests that are left out as slow."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            before, self._used_s = self._used_s, cpu_s()
            self._tests[item.nodeid] += self._used_s - before

    def pytest_collection_finish(self) -> None:
        self._tests["collection"] = self._used_s = cpu_s()

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        for item in items:
            is_slow = item.get_closest_marker("frameworks") is None
            self._left["slow" if is_slow else "frameworks"] += 1
            if is_slow and item.get_closest_marker("slow") is not None:
                self.slow_files.add(item.nodeid.partition("::")[0])

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._loops.append(loop_s())
        output: dict[str, Any] | None = getattr(self._config, "workeroutput", None)
        if output is not None:
            scale = REFERENCE_LOOP_S / min(self._loops)
            tests = {test: seconds * scale for test, seconds in self._tests.items()}
            output["cpu_budget"] = {"tests": tests, "left": dict(self._left), "compiling_s": _compiling_s()}
        elif self._tier is not None and over_budget(self._by_room(), budgets(self._tier)) and not session.exitstatus:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        found = getattr(node, "workeroutput", {}).get("cpu_budget", {"tests": {}, "left": {}, "compiling_s": 0.0})
        for test, seconds in found["tests"].items():
            self._tests[test] += seconds
        self._left = Counter(found["left"])
        self._compiling_s += found["compiling_s"]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if report := self._config.getoption("cpu_report"):
            with Path(report).open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows((test, f"{seconds:.3f}") for test, seconds in _longest_first(self._tests))
        if self._tier is None:
            return
        allowed, used = budgets(self._tier), self._by_room()
        terminalreporter.section(f"CPU seconds by room, {self._tier} tests")
        for room, seconds in _longest_first(used):
            terminalreporter.write_line(f"{room:14}{seconds:8.1f} of {allowed.get(room, 0):6.0f}")
        terminalreporter.write_line(
            f"{'all':14}{sum(used.values()):8.1f} of {sum(allowed.values()):6.0f}, pace {pace(used, allowed):.2f}"
        )
        if self._tier == "fast":
            self._print_long(terminalreporter)
        for line in over_budget(used, allowed):
            terminalreporter.write_line(f"over budget by more than half (tests/rooms.toml): {line}", red=True)
        compiling_s = self._compiling_s + _compiling_s()
        terminalreporter.write_line(
            f"spent compiling kernels that python -m tests.kernels had not compiled: {compiling_s:.0f} s"
        )
        left = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self._left.items()))
        terminalreporter.write_line(f"left to make test-all: {left or 'none'}")

    def _print_long(self, terminalreporter: pytest.TerminalReporter) -> None:
        long = [(test, seconds) for test, seconds in _longest_first(self._tests) if seconds > LONG_S and "::" in test]
        for test, seconds in long[:20]:
            terminalreporter.write_line(f"over one CPU second, to be marked slow: {seconds:.1f} {test}")

    def _by_room(self) -> dict[str, float]:
        found: dict[str, float] = defaultdict(float)
        for test, seconds in self._tests.items():
            found[test if test == "collection" else room_of(test)] += seconds
        return found


def _compiling_s() -> float:
    """Seconds that this process has spent compiling kernels."""
    module = sys.modules.get("tensortide.compiled")
    return 0.0 if module is None else float(module.compiling_s())


def _longest_first(seconds: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda item: -item[1])
