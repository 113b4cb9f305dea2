"""The table of families, and rows of it from files."""

from __future__ import annotations

import functools
import inspect
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec

import msgspec

from tensortide.cost.kinds import chosen
from tensortide.cost.registry import Rule, add, elementwise, followed, forget, load
from tensortide.errors import TensortideError

P = ParamSpec("P")

FAMILIES: dict[str, Callable[..., Rule]] = {"elementwise": elementwise}
"""Families by the name that a row in a file gives."""


def family(name: str, shape: str = "") -> Callable[[Callable[P, Rule]], Callable[P, Rule]]:
    """Register the decorated function as a form of the family ``name``; rows in files name it by its own name.
    ``shape``: see Rule."""

    def register(function: Callable[P, Rule]) -> Callable[P, Rule]:
        @functools.wraps(function)
        def made(*args: P.args, **kwargs: P.kwargs) -> Rule:
            rule = function(*args, **kwargs)
            return msgspec.structs.replace(rule, family=rule.family or name, shape=rule.shape or shape)

        FAMILIES[function.__name__] = made
        return made

    return register


_TAKEN: dict[str, tuple[type, str]] = {
    "str": (str, "a text"),
    "int": (int, "a whole number"),
    "bool": (bool, "true or false"),
    "str | Sequence[int]": (object, ""),
    "Weights | str | int | Sequence[int]": (object, ""),
}
"""Types of the arguments of families that a row can give, as they are written there; weights are checked as such."""
_READ: dict[str, set[str]] = {}
"""Ops whose rules were read, by the file that had them."""
_THEN = inspect.Parameter("then", inspect.Parameter.KEYWORD_ONLY, default="", annotation="str")


def read_rows(source: str | Path | Mapping[str, Mapping[str, Any]]) -> None:
    """Register the ops of a TOML file, or of a mapping of the same form: for each op its family and what that takes.

        [ops."mylib::mix mylib::blend"]
        family = "contraction"
        letters = "*k,nk"
        operands = "x weight"
        bias = "bias"

    All are registered or none. A file that is read again, edited perhaps, replaces what it said before, and so does an
    op that is given again in a mapping. Raises TensortideError, which names the file, the op and the key, where the
    file cannot be read, a family is unknown or does not take a key or its value, or an op has another rule already.
    """
    where, at = "rows of ops" if isinstance(source, Mapping) else str(source), ""
    load()  # whatever has a rule already
    try:
        rules: list[Rule] = []
        for names, row in _ops(source).items():
            at = f"{names}: "
            made = _made(row)
            rules += (msgspec.structs.replace(made, name=name) for name in str(names).split() or [""])
        at = ""
        key = where if isinstance(source, Mapping) else str(Path(source).resolve())
        known = _READ.get(key, set())
        added = add(rules, known)
    except TensortideError as error:
        raise TensortideError(f"{where}: {at}{error}") from error
    if not isinstance(source, Mapping):
        forget(known - added)
        known = set()
    _READ[key] = known | added


def _made(row: Any) -> Rule:
    """Make the rule of a row."""
    if not isinstance(row, Mapping):
        raise TensortideError(f"{row!r} is no row: give it a family, and what that takes.")
    name = str(row.get("family", ""))
    maker = chosen("family", name, FAMILIES)
    takes = {key: one for key, one in inspect.signature(maker).parameters.items() if one.annotation in _TAKEN}
    takes = {key: one for key, one in takes.items() if key != "family"} | {"then": _THEN}
    given = {key: value for key, value in row.items() if key != "family"}
    needed = [key for key, one in takes.items() if one.default is one.empty]
    for key in [*given, *needed]:
        if key not in takes or key not in given:
            wrong = "needs this key" if key in takes else "takes no such key"
            raise TensortideError(f"{key}: {name} {wrong}.\nIt takes: {', '.join(takes)}.")
        _check(key, given[key], takes[key])
    then = given.pop("then", "")
    return followed(maker(**given), then)


def _check(key: str, value: Any, parameter: inspect.Parameter) -> None:
    """Raise TensortideError for a value of another type, and for a count below one; weights are checked as such."""
    kind, what = _TAKEN[parameter.annotation]
    if kind is not object and type(value) is not kind:
        raise TensortideError(f"{key}: {value!r} is not {what}.")
    if kind is int and key != "default" and value < 1 and value != parameter.default:
        raise TensortideError(f"{key}: {value} is below 1.")


def _ops(source: str | Path | Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        return source
    if not isinstance(source, str | Path):
        raise TensortideError("rows of ops come from a file or a mapping")
    try:
        found = tomllib.loads(Path(source).read_text("utf-8"))
    except OSError as error:
        raise TensortideError(f"{error.strerror or error}: name a TOML file with a row for each op") from error
    except ValueError as error:
        raise TensortideError(str(error)) from error
    if list(found) != ["ops"] or not isinstance(found["ops"], dict):
        others = ", ".join(key for key in found if key != "ops") or "nothing else"
        raise TensortideError(f'it has one table, [ops."namespace::op"] for each op; found: {others}')
    return found["ops"]
