"""Formulas as a file: JSON that people read and other programs write."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from tensortide.errors import ExpressionError
from tensortide.expr import parse, parse_condition, text
from tensortide.formulas.formulas import Formulas
from tensortide.importers.textfile import head
from tensortide.versioned import Format
from tensortide.write import write_file

__all__ = ["SUFFIX", "is_formulas_file", "load_formulas", "save_formulas", "to_json"]

SUFFIX = ".formulas.json"
FORMAT = Format("formulas", "tensortide.formulas", (1,), ExpressionError, "derive them again")

T = TypeVar("T")


class _File(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    format: str
    workload: str = ""
    defaults: dict[str, int]
    totals: dict[str, str]
    region: list[str] = []
    only: dict[str, list[str]] = {}


def to_json(formulas: Formulas) -> bytes:
    """Encode ``formulas`` as the content of a file: the totals as text, factored."""
    file = _File(
        format=f"{FORMAT.tag}/{FORMAT.version}",
        workload=formulas.workload,
        defaults=dict(formulas.defaults),
        totals={name: text(expr) for name, expr in formulas.totals.items()},
        region=[str(condition) for condition in formulas.region],
        only={name: [str(condition) for condition in asked] for name, asked in formulas.only.items()},
    )
    return msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n"


def save_formulas(formulas: Formulas, path: str | os.PathLike[str]) -> Path:
    """Write ``formulas`` to ``path``; the whole file or nothing. Raises OutputError."""
    return write_file(path, to_json(formulas))


def is_formulas_file(path: str | os.PathLike[str]) -> bool:
    """Tell a file of formulas, of whatever version, by its content."""
    return f'"{FORMAT.tag}/'.encode() in head(Path(path))


def load_formulas(path: str | os.PathLike[str]) -> Formulas:
    """Read a file of formulas. Raises ExpressionError that says what is wrong with it, and where."""
    file = FORMAT.load(path, _File)
    formulas = Formulas(
        totals={name: _read(path, f"totals.{name}", parse, shown) for name, shown in file.totals.items()},
        defaults=file.defaults,
        region=tuple(_read(path, "region", parse_condition, shown) for shown in file.region),
        only={
            name: tuple(_read(path, f"only.{name}", parse_condition, shown) for shown in asked)
            for name, asked in file.only.items()
        },
        workload=file.workload,
    )
    used = {name for expr in formulas.totals.values() for name in expr.symbols}
    used |= {name for condition in formulas.region_of(formulas.only) for name in condition.expr.symbols}
    if unbound := sorted(used - file.defaults.keys()):
        raise ExpressionError(f"{path} has no default for {', '.join(unbound)}")
    if bad := [name for name, value in file.defaults.items() if value < 1]:
        raise ExpressionError(f"{path}: the default of {bad[0]} must be a positive integer")
    return formulas


def _read(path: str | os.PathLike[str], where: str, read: Callable[[str], T], shown: str) -> T:
    try:
        return read(shown)
    except ExpressionError as error:
        raise ExpressionError(f"{path}, {where}: {error}") from None
