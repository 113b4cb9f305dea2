"""One frame for every benchmark: command line, processes of their own, steps that take turns, tables, recorded results.

A benchmark ends with ``harness.main(__doc__, measure)``. Its ``measure(run)`` adds rows to the tables of ``run``, which
prints each as it comes. ``--write`` records them as ``results/NAME.md`` and, with all figures, ``results/NAME.json``;
rows of earlier runs stay for what this run leaves out. ``--smallest`` is the quickest run that goes through everything.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tensortide.executors import cores
from tensortide.timing.host import cpu_name, load_average

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).with_name("results")
sys.path.append(str(ROOT))  # some benchmarks build their cases as the tests do

T = TypeVar("T")
Row = dict[str, Any]


class ChildFailed(Exception):
    """A case in a process of its own ended with an error, or took too long; the text is its last line."""


@dataclass
class Table:
    """Rows of figures. ``columns``: head -> format of a row (``{seconds:.2f}``; one without a colon is text, on the
    left). Rows of ``results/NAME.json`` are replaced by those with the same ``key``."""

    run: Run
    columns: Mapping[str, str]
    key: tuple[str, ...]
    title: str = ""
    rows: list[Row] = field(default_factory=list)

    def add(self, row: Row) -> Row:
        """Append ``row``, print it, and record it."""
        self.rows.append(row)
        print(self.line(row), flush=True)
        self.run.record()
        return row

    def head(self) -> str:
        sides = ("---:" if ":" in text else "---" for text in self.columns.values())
        return f"| {' | '.join(self.columns)} |\n|{'|'.join(sides)}|"

    def line(self, row: Row) -> str:
        """Format ``row``; a figure that it lacks, or that is None, leaves its cell empty."""
        cells = []
        for text in self.columns.values():
            try:
                cells.append(text.format(**row))
            except (KeyError, TypeError):
                cells.append("")
        return f"| {' | '.join(cells)} |"

    def recorded(self) -> list[Row]:
        """Read the rows that are on file."""
        return _recorded(self.run.file).get(self.title, [])

    def merged(self, recorded: Iterable[Row]) -> list[Row]:
        """Rows recorded before, those of this run in their places or after them."""
        rows = {tuple(str(row.get(key)) for key in self.key): row for row in (*recorded, *self.rows)}
        return list(rows.values())


@dataclass
class Run:
    """One run of the benchmark in the file ``script``, described by ``about``."""

    script: Path
    about: str
    options: argparse.Namespace
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def file(self) -> Path:
        """Path of the recorded figures."""
        return RESULTS / f"{self.script.stem}.json"

    @property
    def smallest(self) -> bool:
        return bool(self.options.smallest)

    def cases(self, cases: Mapping[str, T]) -> dict[str, T]:
        """Select those named on the command line; by default all, or of the smallest run the first."""
        chosen = {name: case for name, case in cases.items() if name in self.options.names}
        return chosen or dict(list(cases.items())[: 1 if self.smallest else None])

    def table(self, columns: Mapping[str, str], key: tuple[str, ...], title: str = "") -> Table:
        """Begin a table and print its head."""
        table = Table(self, columns, key, title)
        self.tables.append(table)
        print(f"\n{title}\n{table.head()}" if title else table.head(), flush=True)
        return table

    def note(self, text: str) -> None:
        """Print ``text`` and record it below the tables."""
        self.notes.append(text)
        print(text, flush=True)
        self.record()

    def child(self, function: Callable[..., T], *arguments: Any, timeout_s: float | None = None, **variables: str) -> T:
        """Call ``function`` of the benchmark's file in a process of its own, with ``variables`` in its environment.

        Arguments and result are JSON. Raises ChildFailed.
        """
        command = [sys.executable, str(self.script), "--child", function.__name__, json.dumps(arguments)]
        given = {"capture_output": True, "text": True, "timeout": timeout_s, "env": {**os.environ, **variables}}
        try:
            done = subprocess.run(command, check=False, **given)  # type: ignore[call-overload]
        except subprocess.TimeoutExpired:
            raise ChildFailed(f"not done in {timeout_s:g} s") from None
        if done.returncode:
            raise ChildFailed((done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1])
        result: T = json.loads(done.stdout.splitlines()[-1])
        return result

    def record(self) -> None:
        """Write what is known so far, if asked to."""
        if not self.options.write:
            return
        rows = {table.title: table.merged(table.recorded()) for table in self.tables}
        facts = {"command": f"python benchmarks/{self.script.name}", "machine": machine(), "notes": self.notes}
        self.file.write_text(json.dumps({**facts, "tables": rows}, indent=1) + "\n", "utf-8")
        title, _, about = self.about.partition("\n\n")
        parts = [f"# {title}", f"`{facts['command']} --write` on {facts['machine']}.", about]
        for table in self.tables:
            lines = "\n".join(map(table.line, rows[table.title]))
            parts += [*([f"## {table.title}"] if table.title else []), f"{table.head()}\n{lines}"]
        self.file.with_suffix(".md").write_text("\n\n".join([*parts, *self.notes]) + "\n", "utf-8")


def main(doc: str | None, measure: Callable[[Run], None], **arguments: Mapping[str, Any]) -> None:
    """Run a benchmark whose docstring is ``doc``: a sentence, its command lines indented, and what the figures are.

    ``arguments`` are options beside the common ones, as ``argparse`` takes them.
    """
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(measure.__globals__[sys.argv[2]](*json.loads(sys.argv[3]))))
        return
    title, _, rest = (doc or "").strip().partition("\n\n")
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="cases; by default all")
    parser.add_argument("--smallest", action="store_true", help="the quickest run that goes through everything")
    parser.add_argument("--write", action="store_true", help="record the figures in benchmarks/results")
    for name, how in arguments.items():
        parser.add_argument(f"--{name}", **how)
    about = [part for part in rest.split("\n\n") if not part.startswith("    ")]
    text = "\n\n".join([" ".join(title.split()).rstrip("."), *(part.strip() for part in about)])
    measure(Run(Path(measure.__globals__["__file__"]).resolve(), text, parser.parse_args()))


def _recorded(file: Path) -> dict[str, list[Row]]:
    """Read the tables in a file of results; none if there is no file."""
    tables: dict[str, list[Row]] = json.loads(file.read_text("utf-8"))["tables"] if file.exists() else {}
    return tables


def machine() -> str:
    """Describe what figures are measured on, in general terms."""
    parts = [f"{cpu_name()}, {cores()} cores (load {load_average()})", f"Python {platform.python_version()}"]
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        parts.append(f"PyTorch {importlib.metadata.version('torch')}")
    return "; ".join(parts)


def seconds(step: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Time one call of ``step``: of the processor, by default."""
    began = clock()
    step()
    return clock() - began


def paired(
    rounds: int, *steps: Callable[[], object], clock: Callable[[], float] = time.process_time
) -> list[list[float]]:
    """Time ``steps`` that take turns for some ``rounds``, so that other work on the machine slows all of them alike.

    Returns the seconds of each step, round by round.
    """
    times = [[seconds(step, clock) for step in steps] for _ in range(rounds)]
    return [list(column) for column in zip(*times, strict=True)]


def reference() -> Path:
    """Return the folder of published data that cases are read from."""
    from tests.reference import reference_folder

    return reference_folder()


def named(name: str, settings: Mapping[str, Any]) -> str:
    """Write a workload with its settings."""
    return " ".join([name, *(f"{key}={value}" for key, value in settings.items())])
