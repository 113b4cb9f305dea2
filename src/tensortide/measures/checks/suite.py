"""Checks in a file: ``[check.NAME]`` tables of ``tensortide.toml``, or ``[tool.tensortide.check.NAME]`` of
``pyproject.toml``.

    [check.gpt2]
    target = "train.py:workload"
    set = { batch = 8 }
    device = "cuda"
    assert = ["peak <= 24GiB", "flops <= +1% of baseline", "no recomputation in blocks.*"]
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from tensortide.errors import CheckError, RequestError
from tensortide.file_faults import reading
from tensortide.request import option_of
from tensortide.targets.requests import CaptureRequest

FILE, PROJECT = "tensortide.toml", "pyproject.toml"
BASELINES = "baselines"
"""Folder of the baselines of checks that name none, beside the file."""

_WORDS: Mapping[type, str] = {bool: "true or false", int: "a number", str: "a text"}


def _kind(name: str) -> tuple[type, str]:
    """The type of an option of captures, and how to say it."""
    hint = option_of(CaptureRequest, name).hint
    kind = next(one for one in (hint, *get_args(hint)) if one in _WORDS)
    return kind, _WORDS[kind]


_OPTIONS: Mapping[str, tuple[type, str]] = {
    "set": (dict, "a table of hyperparameters"),
    "machine": (str, _WORDS[str]),
    "step": (int, _WORDS[int]),
    "assume": (dict, "a table of values by FILE:LINE"),
    **{name: _kind(name) for name in ("device", "ranks", "real", "first_step", "compiled", "fake")},
}
"""Options of captures that a check may have, some of them written as TOML does."""
_KINDS: Mapping[str, tuple[type, str]] = {
    "target": (str, _WORDS[str]),
    "assert": (list, "a list of assertions"),
    "baseline": (str, "the name of a file"),
    **_OPTIONS,
}
"""Keys of a check, the type of each value, and how to say it."""


@dataclass(frozen=True)
class Check:
    """A named check: its target and assertions, the file of its baseline, and how the step is captured."""

    name: str
    target: str
    assertions: tuple[str, ...]
    baseline: Path | None
    capture: CaptureRequest
    file: Path | None = None
    usual: bool = False
    """True if the check names no baseline: its file is used if an assertion compares with it."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """The line of each assertion in the file, where it stands on one."""


def find_file(folder: Path) -> Path:
    """Find the file of checks in ``folder``, or in the nearest folder above it. Raises CheckError."""
    for place in (folder, *folder.resolve().parents):
        if (place / FILE).is_file():
            return place / FILE
        if (place / PROJECT).is_file() and "tensortide" in _read(place / PROJECT).get("tool", {}):
            return place / PROJECT
    raise CheckError(
        f"no checks: there is no {FILE} here, and no [tool.tensortide] in a {PROJECT}.\n"
        "Write one, or check a target: tensortide check TARGET --assert 'peak <= 24GiB'"
    )


def load_checks(path: Path) -> tuple[Check, ...]:
    """Read all checks of a file. Raises CheckError for one that is none, and for keys and values that are not known."""
    content, text = _read(path), path.read_text("utf-8")
    if path.name == PROJECT:
        content = content.get("tool", {}).get("tensortide", {})
    _refuse_unknown(content, ("check",), f"{path}")
    tables = content.get("check", {})
    if not isinstance(tables, dict) or not tables:
        raise CheckError(f"{path}: no checks: write [{'tool.tensortide.' * (path.name == PROJECT)}check.NAME]")
    found = tuple(_check(path, name, table, text) for name, table in tables.items())
    owners: dict[Path | None, str] = {}
    for one in found:
        if (other := owners.setdefault(one.baseline, one.name)) != one.name:
            raise CheckError(
                f"{path}: checks {other} and {one.name} have one baseline, {one.baseline}: give each its own"
            )
    return found


def chosen(checks: Iterable[Check], names: Iterable[str]) -> tuple[Check, ...]:
    """Return the checks called ``names``; all if there are none. Raises CheckError for an unknown name."""
    known = {check.name: check for check in checks}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise CheckError(
                f"there is no check {name!r}{hint}; there are {', '.join(known)}.\n"
                "To check a target write --assert: tensortide check TARGET --assert 'peak <= 24GiB'"
            )
    return tuple(known[name] for name in names) or tuple(known.values())


def _read(path: Path) -> dict[str, Any]:
    try:
        with reading(path, CheckError):
            return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise CheckError(f"cannot read {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CheckError(f"{path} is not TOML: {error}") from None


def _check(path: Path, name: str, table: Any, text: str) -> Check:
    where = f"{path}: check {name}"
    if not isinstance(table, dict):
        raise CheckError(f"{where} is no table: write [check.{name}]")
    _refuse_unknown(table, _KINDS, where)
    for key, value in table.items():
        kind, words = _KINDS[key]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise CheckError(f"{where}: {key} takes {words}, not {value!r}")
    for key in ("target", "assert"):
        if not table.get(key):
            raise CheckError(f"{where} has no {key}")
    assertions = table["assert"]
    if not all(isinstance(one, str) for one in assertions):
        raise CheckError(f"{where}: assert takes a list of assertions, not {assertions!r}")
    baseline = path.parent / table.get("baseline", f"{BASELINES}/{_as_file(name)}.json")
    try:
        capture = _capture(table)
    except RequestError as error:
        raise CheckError(f"{where}: {error}") from error
    target = _beside(path.parent, table["target"])
    usual = "baseline" not in table
    return Check(name, target, tuple(assertions), baseline, capture, path, usual, _lines(text, name, assertions))


def _capture(table: Mapping[str, Any]) -> CaptureRequest:
    """The options of a check in a file as those of the command line. Raises RequestError."""
    given = {key: table[key] for key in _OPTIONS if key in table}
    for key in ("set", "assume"):
        given[key] = tuple(f"{name}={value}" for name, value in given.get(key, {}).items())
    if "machine" in given:
        given["machines"] = (given.pop("machine"),)
    if "step" in given:
        given["step"] = str(given["step"])
    return CaptureRequest(**given)


def _refuse_unknown(given: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, list(known), n=1)
            hint = f": did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
            raise CheckError(f"{where}: unknown key {key!r}{hint}")


def _beside(folder: Path, target: str) -> str:
    """A target whose path is relative to ``folder``."""
    path = target.partition(":")[0]
    if folder == Path() or target.startswith("-- ") or not (path.endswith(".py") or (folder / path).exists()):
        return target
    return str(folder / target)


def _as_file(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)


def _lines(text: str, name: str, assertions: Iterable[str]) -> dict[str, int]:
    """The lines that have the assertions of a check, below its heading."""
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if re.match(rf"\s*\[.*check\.[\"']?{re.escape(name)}", line)]
    start = heads[0] if heads else 0
    found = {}
    for one in assertions:
        place = next((number for number in range(start, len(lines)) if one in lines[number]), None)
        if place is not None:
            found[one] = place + 1
    return found
