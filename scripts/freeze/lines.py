"""Lines of the frozen text: figures under stable names, and what differs between two texts.

A line is a name, a space and a value. The value of a table is its number of rows and a digest of each column, so that
one line tells which columns changed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from scripts.freeze.names import ANSWERS, MACHINE_KEYS, stable

Lines: TypeAlias = dict[str, str]

_DIGITS = 12
"""Digits of a float: the last ones depend on the processor's mathematical functions."""
_HEX = 6
"""Digits of a digest: 1 change in 16 million is not noticed."""


def text_of(lines: Lines) -> str:
    """The text of ``lines``, sorted by name."""
    return "".join(f"{name} {lines[name]}\n" for name in sorted(lines))


def lines_of(text: str) -> Lines:
    """The lines of a text by name."""
    split = (line.partition(" ") for line in text.splitlines())
    return {name: value for name, _, value in split}


def value_of(value: Any) -> str:
    """One value as a line has it."""
    return json.dumps(_rounded(value), ensure_ascii=True, separators=(",", ":"), sort_keys=True)


def digest_of(value: Any) -> str:
    """A short digest of any value that JSON has."""
    return hashlib.sha256(value_of(value).encode()).hexdigest()[:_HEX]


def table_line(columns: Mapping[str, Sequence[Any]]) -> str:
    """The value of a table: rows, and a digest by column, sorted by name."""
    rows = max(map(len, columns.values()), default=0)
    digests = (f"{name}:{digest_of(columns[name])}" for name in sorted(columns))
    return " ".join([f"{rows} rows", *digests])


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        short = float(f"{value:.{_DIGITS}g}")
        # A whole number is the same figure whichever type computed it.
        return int(short) if short.is_integer() and abs(short) < 10**_DIGITS else short
    if isinstance(value, Mapping):
        return {str(key): _rounded(each) for key, each in value.items() if key not in MACHINE_KEYS}
    if isinstance(value, (list, tuple)):
        return [_rounded(each) for each in value]
    return value


class Recorder:
    """Lines as they are found. ``names`` maps the keys of the program to the stable ones, where they differ."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.lines: Lines = {}
        self._names = names

    def add(self, source: str, case: str, value: str) -> None:
        """Add a line for the source key ``source`` (``verb/section/key``) of a ``case``. Raises ValueError if another
        source key has its name, or the name has a space."""
        verb, slash, rest = stable(source, self._names).partition("/")
        name = "/".join(filter(None, (verb, case, rest))) if slash else f"{verb}/{case}"
        if len(name.split()) != 1:
            raise ValueError(f"the name {name!r} of a figure has a space")
        if self.lines.setdefault(name, value) != value:
            raise ValueError(f"two figures are called {name}: {self.lines[name]} and {value}")

    def facts(self, verb: str, case: str, facts: Mapping[str, Any]) -> None:
        """Add a line for each fact, or each table: a mapping of lists."""
        for key, value in facts.items():
            if key in MACHINE_KEYS:
                continue
            if isinstance(value, Mapping) and value and all(isinstance(each, list) for each in value.values()):
                self.table(f"{verb}/{key}[]", case, value)
            else:
                self.add(f"{verb}/{key}", case, value_of(value))

    def table(self, source: str, case: str, columns: Mapping[str, Sequence[Any]]) -> None:
        """Add the line of a table."""
        name = source.rpartition("/")[2]
        kept = {key: column for key, column in columns.items() if key not in MACHINE_KEYS or f"{name}/{key}" in ANSWERS}
        named = {stable(f"{source}/{key}", self._names).rpartition("/")[2]: column for key, column in kept.items()}
        self.add(source, case, table_line(named))

    def document(self, verb: str, case: str, document: Mapping[str, Any], status: int) -> None:
        """Add the lines of what a verb prints with ``--json`` before it exits with ``status``."""
        self.add(f"{verb}/exit_status", case, str(status))
        if "sections" not in document:
            self.facts(verb, case, document)
            return
        for key, section in document["sections"].items():
            self._section(f"{verb}/{key}", case, section)

    def _section(self, source: str, case: str, section: Mapping[str, Any]) -> None:
        for key, value in section.get("facts", {}).items():
            if key not in MACHINE_KEYS:
                self.add(f"{source}/{key}", case, value_of(value))
        for key, columns in section.get("tables", {}).items():
            self.table(f"{source}/{key}[]", case, columns)
        # The words of notes and titles may change; which kinds there are is an answer.
        kinds = [note["kind"] for note in section.get("notes", ())]
        if kinds:
            self.add(f"{source}/notes", case, value_of({kind: kinds.count(kind) for kind in kinds}))
        for kind in ("curves", "scatters", "spans"):
            for key, drawn in section.get(kind, {}).items():
                self.add(f"{source}/{kind}.{_plain(key)}", case, table_line(_columns(drawn)))


def _columns(drawn: Mapping[str, Any]) -> dict[str, Any]:
    """The lists of numbers in what is drawn, by their path; titles and labels are words."""
    found: dict[str, Any] = {}
    pending: list[tuple[str, Any]] = [("", drawn)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, Mapping):
            pending += [(f"{path}.{_plain(key)}" if path else _plain(key), each) for key, each in value.items()]
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            pending += [(f"{path}.{number}", each) for number, each in enumerate(value)]
        elif isinstance(value, list) and value:
            found[path] = value
    return found


def _plain(key: str) -> str:
    return key.replace(" ", "_").replace(":", "_")


def differences(old: Lines, new: Lines) -> list[str]:
    """What changed from ``old`` to ``new``: a line for each name that is missing, added or changed."""
    found = [f"missing {name} {old[name]}" for name in sorted(old.keys() - new.keys())]
    found += [f"added {name} {new[name]}" for name in sorted(new.keys() - old.keys())]
    both = sorted(old.keys() & new.keys())
    return found + [f"changed {name} {_change(old[name], new[name])}" for name in both if old[name] != new[name]]


def _change(old: str, new: str) -> str:
    if not (_is_table(old) and _is_table(new)):
        return f"{old} -> {new}"
    before, after = _cells(old), _cells(new)
    parts = [] if old.split()[0] == new.split()[0] else [f"{old.split()[0]} -> {new.split()[0]} rows"]
    for title, names in (
        ("without", before.keys() - after.keys()),
        ("with", after.keys() - before.keys()),
        ("other", {name for name in before.keys() & after.keys() if before[name] != after[name]}),
    ):
        parts += [f"{title} {', '.join(sorted(names))}"] if names else []
    return "; ".join(parts)


def _is_table(value: str) -> bool:
    words = value.split()
    return len(words) > 1 and words[1] == "rows"


def _cells(value: str) -> dict[str, str]:
    cells = (cell.rpartition(":") for cell in value.split()[2:])
    return {name: digest for name, _, digest in cells}
