"""The file of formulas: JSON that people read and other programs write."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tensortide.errors import ExpressionError
from tensortide.expr import parse, parse_condition, text
from tensortide.formulas.formulas import Formulas, Partial, Threshold
from tensortide.importers.textfile import head
from tensortide.versioned import Format
from tensortide.write import write_file

FORMAT = Format("formulas", "tensortide.formulas", (1,), ExpressionError, "derive them again")

T = TypeVar("T")


class _Partial(msgspec.Struct, forbid_unknown_fields=True):
    known: str
    missing: dict[str, int | None]


class _Threshold(msgspec.Struct, forbid_unknown_fields=True):
    condition: str
    change: str


class _Piece(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    defaults: dict[str, int]
    totals: dict[str, str]
    region: list[str] = []
    only: dict[str, list[str]] = {}
    tested: dict[str, tuple[int, int]] = {}
    thresholds: list[_Threshold] = []
    partial: dict[str, _Partial] = {}


class _File(_Piece, kw_only=True, forbid_unknown_fields=True):
    format: str
    workload: str = ""
    assumptions: list[str] = []
    settings: dict[str, str | int | float | bool | None] = {}
    held: dict[str, str] = {}
    notes: list[str] = []
    others: list[_Piece] = []


def save_formulas(formulas: Formulas, path: str | os.PathLike[str]) -> Path:
    """Write ``formulas`` to ``path``, the totals as text, factored; the whole file or nothing. Raises OutputError."""
    file = _File(
        format=f"{FORMAT.tag}/{FORMAT.version}",
        workload=formulas.workload,
        assumptions=list(formulas.assumptions),
        settings=dict(formulas.settings),
        held=dict(formulas.held),
        notes=list(formulas.notes),
        others=[_Piece(**_written(other)) for other in formulas.others],
        **_written(formulas),
    )
    return write_file(path, msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n")


def _written(piece: Formulas) -> dict[str, Any]:
    return {
        "defaults": dict(piece.defaults),
        "totals": {name: text(expr) for name, expr in piece.totals.items()},
        "region": [str(condition) for condition in piece.region],
        "only": {name: [str(condition) for condition in asked] for name, asked in piece.only.items()},
        "tested": dict(piece.tested),
        "thresholds": [_Threshold(str(threshold.condition), threshold.change) for threshold in piece.thresholds],
        "partial": {name: _Partial(text(part.known), dict(part.missing)) for name, part in piece.partial.items()},
    }


def is_formulas_file(path: str | os.PathLike[str]) -> bool:
    """Tell a file of formulas, of whatever version, by its content."""
    return f'"{FORMAT.tag}/'.encode() in head(Path(path))


def load_formulas(path: str | os.PathLike[str]) -> Formulas:
    """Read a file of formulas. Raises ExpressionError that says what is wrong with it, and where."""
    file = FORMAT.load(path, _File)
    others = tuple(_piece(path, f"others[{i}].", other, file.workload) for i, other in enumerate(file.others))
    first = _piece(path, "", file, file.workload)
    return msgspec.structs.replace(
        first,
        others=others,
        assumptions=tuple(file.assumptions),
        settings=file.settings,
        held=file.held,
        notes=tuple(file.notes),
    )


def _piece(path: str | os.PathLike[str], where: str, piece: _Piece, workload: str) -> Formulas:
    formulas = Formulas(
        totals={name: _read(path, f"{where}totals.{name}", parse, shown) for name, shown in piece.totals.items()},
        defaults=piece.defaults,
        region=tuple(_read(path, f"{where}region", parse_condition, shown) for shown in piece.region),
        only={
            name: tuple(_read(path, f"{where}only.{name}", parse_condition, shown) for shown in asked)
            for name, asked in piece.only.items()
        },
        tested=piece.tested,
        thresholds=tuple(
            Threshold(condition=_read(path, f"{where}thresholds", parse_condition, t.condition), change=t.change)
            for t in piece.thresholds
        ),
        partial={
            name: Partial(known=_read(path, f"{where}partial.{name}", parse, part.known), missing=part.missing)
            for name, part in piece.partial.items()
        },
        workload=workload,
    )
    exprs = [*formulas.totals.values(), *(part.known for part in formulas.partial.values())]
    used = {name for expr in exprs for name in expr.symbols}
    used |= {name for condition in formulas.region_of(formulas.only) for name in condition.expr.symbols}
    if unbound := sorted(used - piece.defaults.keys()):
        raise ExpressionError(f"{path} has no default for {', '.join(unbound)}")
    if bad := [name for name, value in piece.defaults.items() if value < formulas.least(name)]:
        raise ExpressionError(f"{path}: the default of {bad[0]} must be a positive integer")
    return formulas


def _read(path: str | os.PathLike[str], where: str, read: Callable[[str], T], shown: str) -> T:
    try:
        return read(shown)
    except ExpressionError as error:
        raise ExpressionError(f"{path}, {where}: {error}") from None
