"""The formulas of a workload, row by row, with how they were found and what has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from tensortide.cost.table import ZERO, Table, table_of
from tensortide.errors import ExpressionError
from tensortide.expr import Expr, constant, total
from tensortide.formulas.formulas import Formulas, Threshold, Totals, value_at
from tensortide.formulas.measure import Listed
from tensortide.formulas.search import HIGHEST
from tensortide.shown import Shown


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The ops of one name in one module and phase, and what they cost together (None: no expression).

    ``module`` has ``*`` for the numbers of modules that repeat, if their number is a hyperparameter.
    """

    phase: str
    module: str
    op: str
    count: Expr | None
    product_flops: Expr | None
    elementwise_flops: Expr | None
    bytes: Expr | None

    @property
    def flops(self) -> Expr | None:
        """Products and the rest."""
        if self.product_flops is None or self.elementwise_flops is None:
            return None
        return self.product_flops + self.elementwise_flops


class Regime(msgspec.Struct, frozen=True, kw_only=True):
    """A moment that is the peak of some settings: the op, and the bytes resident while it runs."""

    phase: str
    module: str
    op: str
    bytes: Expr

    @property
    def place(self) -> str:
        """Place in the source, for people."""
        return f"{self.op} in {self.module}, {self.phase}"


class Symbolic(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """Result of ``symbolic``.

    ``peak_bytes`` is the largest of the ``regimes``. ``structural``: hyperparameters that change the structure, and
    how. ``held``: hyperparameters of the request without a formula, with the reason; the formulas are for their value
    in ``settings``, which has all that was not varied. ``numeric``: figures without an expression, and why.
    ``unknown``: ops without a cost rule (they add nothing), by name. ``captures`` counts the captures; ``checked`` are
    settings at which the formulas were compared with a capture that they were not fitted to. ``notes`` say what was
    skipped. ``listed`` are the costs op by op, where no symbol changes which ops there are. Thresholds, with formulas
    for beyond where they could be found, are those of ``formulas``.
    """

    SECTION = "formulas"
    formulas: Formulas
    rows: tuple[Row, ...]
    regimes: tuple[Regime, ...] = ()
    structural: Mapping[str, str] = {}
    held: Mapping[str, str] = {}
    settings: Mapping[str, str | int | float | bool | None] = {}
    numeric: tuple[str, ...] = ()
    unknown: Mapping[str, int] = {}
    captures: int = 0
    checked: tuple[Mapping[str, int], ...] = ()
    notes: tuple[str, ...] = ()
    listed: Listed | None = None

    @property
    def symbols(self) -> tuple[str, ...]:
        """The hyperparameters in the formulas."""
        return self.formulas.symbols

    @property
    def thresholds(self) -> tuple[Threshold, ...]:
        """Conditions beyond which the step is another one, and what changes there."""
        return self.formulas.thresholds

    def total(self, name: str) -> Expr:
        """The formula of a total. Raises ExpressionError if it has none."""
        expr = self.formulas.totals.get(name)
        if expr is None:
            raise ExpressionError(f"{name} has no formula; there are {', '.join(self.formulas.totals)}")
        return expr

    def evaluate(self, **bindings: int) -> Totals:
        """All totals at a setting; see ``Formulas.evaluate``."""
        return self.formulas.evaluate(**bindings)

    def regime(self, **bindings: int) -> Regime:
        """The moment that is the peak at a setting, the first of several. Raises ExpressionError where these formulas
        do not hold, those of the other sides of thresholds aside."""
        setting = self.formulas.setting(bindings)
        replace(self.formulas, others=()).piece(setting)
        return max(self.regimes, key=lambda regime: regime.bytes.evaluate(setting))

    @property
    def moments(self) -> list[Regime]:
        """The moment that is the peak at the defaults, then the others, the highest first."""
        setting, first = self.formulas.defaults, self.regime() if self.regimes else None
        others = (other for other in self.regimes if other is not first)
        return [*filter(None, [first]), *sorted(others, key=lambda other: -other.bytes.evaluate(setting))]

    def table(self) -> Table:
        """The formulas op by op. Raises ExpressionError where symbols change which ops there are."""
        if self.listed is None:
            changing = ", ".join(self.structural) or "the symbols"
            raise ExpressionError(
                f"a list has the ops of one structure, and {changing} may change which there are: leave it out of the "
                "symbols (--symbols, over=), and set its value"
            )
        made = table_of(self.listed.counted, self.formulas.defaults)
        rows = list(made.rows)
        for index, (macs, elementwise, read, written) in self.listed.costs.items():
            flops = None if macs is None or elementwise is None else 2 * macs + elementwise
            nbytes = None if read is None or written is None else read + written
            known = {} if None not in (flops, nbytes) else {"known": False, "rule": "no formula"}
            rows[index] = replace(rows[index], flops=flops or ZERO, bytes=nbytes or ZERO, **known)
        return replace(made, rows=tuple(rows))

    def ops(self, setting: Mapping[str, int]) -> int | None:
        """The number of ops of a step at a full setting; None if it has no formula."""
        counts = [row.count for row in self.rows]
        return None if None in counts else int(value_at(total(c for c in counts if c is not None), setting))

    def reach(self, symbol: str, **bindings: int) -> tuple[int, int | None]:
        """Return the range of ``symbol`` in which the peak stays at its moment of a setting, the other symbols fixed;
        None: as far as 2**40. Only legal values count; divisibility is not checked."""
        setting = self.formulas.setting(bindings)
        regime = self.regime(**bindings)

        def same(value: int) -> bool:
            at = {**setting, symbol: value}
            return all(value_at(regime.bytes, at) >= value_at(other.bytes, at) for other in self.regimes)

        low, top = _furthest(same, setting[symbol], 1), _furthest(same, setting[symbol], HIGHEST)
        return low, None if top == HIGHEST else top

    def by(self, key: Callable[[Row], str], measure: str = "flops") -> dict[str, Expr | None]:
        """Sums of a measure (an attribute of Row) over the rows that share a ``key``; None where one has no
        expression."""
        groups: dict[str, list[Expr | None]] = {}
        for row in self.rows:
            groups.setdefault(key(row), []).append(getattr(row, measure))
        return {
            name: None if None in parts else total(p for p in parts if p is not None) for name, parts in groups.items()
        }

    def by_phase(self, measure: str = "flops") -> dict[str, Expr | None]:
        """Per phase."""
        return self.by(lambda row: row.phase, measure)

    def by_op(self, measure: str = "flops") -> dict[str, Expr | None]:
        """Per op name."""
        return self.by(lambda row: row.op, measure)

    def by_module(self, measure: str = "flops") -> dict[str, Expr | None]:
        """Per module, what is inside it included; in the order in which modules first run."""
        sums: dict[str, Expr | None] = {}
        for path, own in self.by(lambda row: row.module, measure).items():
            for inside in _lineage(path):
                known = sums.get(inside, constant(0))
                sums[inside] = None if known is None or own is None else known + own
        return sums


def _furthest(holds: Callable[[int], bool], start: int, end: int) -> int:
    """The value furthest from ``start`` towards ``end`` up to which ``holds``, if it stops holding once."""
    if holds(end):
        return end
    good, bad = start, end
    while abs(good - bad) > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


def _lineage(path: str) -> list[str]:
    """A module and all that contain it, outermost first."""
    if path.startswith("("):
        return [path]
    parts = path.split(".")
    return [".".join(parts[: n + 1]) for n in range(len(parts))]
