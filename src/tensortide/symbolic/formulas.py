"""Formulas: what a step costs as exact expressions in its hyperparameters, and where they hold."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import msgspec

from tensortide.errors import ExpressionError
from tensortide.expr import Compiled, Condition, Expr, compiled

__all__ = ["QUANTITIES", "Formulas"]

QUANTITIES: dict[str, str] = {
    "parameters": "trainable elements, tied weights once",
    "flops": "algorithmic FLOPs: products and the rest",
    "product_flops": "FLOPs of matrix products and convolutions, two per multiply-accumulate",
    "elementwise_flops": "FLOPs that are no products",
    "bytes": "bytes that ops must read and write",
    "footprint_bytes": "bytes of all storages of the step",
    "io_bytes": "bytes fed to the step and read from it",
    "peak_bytes": "most bytes resident at once, as the step runs eagerly",
    "minimal_footprint_lower_bytes": "no order of the ops needs fewer bytes",
    "minimal_footprint_upper_bytes": "an order of the ops needs no more bytes",
}
"""The totals of a step by name, with what they mean. A Formulas has those that it could express."""


class Formulas(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """The totals of a step as expressions, by the names of ``QUANTITIES``.

    ``defaults`` are values of all symbols: those of the workload's own hyperparameters. ``region`` are the
    conditions under which the expressions were derived; outside of it they are not claimed.
    """

    totals: Mapping[str, Expr]
    defaults: Mapping[str, int]
    region: tuple[Condition, ...] = ()
    workload: str = ""

    @property
    def symbols(self) -> tuple[str, ...]:
        """The hyperparameters, in the order in which they were asked for."""
        return tuple(self.defaults)

    def evaluate(self, **bindings: int) -> dict[str, int]:
        """All totals at a setting; hyperparameters that are not given have their defaults.

        Raises ExpressionError for a name that is no symbol, a value that is no positive integer, and outside the
        region.
        """
        return dict(zip(self.totals, self.values(self.setting(bindings)), strict=True))

    def setting(self, bindings: Mapping[str, int]) -> dict[str, int]:
        """The full setting that ``bindings`` stands for, checked."""
        for name, value in bindings.items():
            if name not in self.defaults:
                raise ExpressionError(f"{name!r} is no symbol of these formulas; they are {', '.join(self.symbols)}")
            if type(value) is not int or value < 1:
                raise ExpressionError(f"{name} must be a positive integer, not {value!r}")
        return {**self.defaults, **bindings}

    def values(self, setting: Mapping[str, int]) -> list[int]:
        """The totals at a full setting, in order. Raises ExpressionError outside the region."""
        try:
            values = self._compiled(setting)
        except ArithmeticError as error:
            raise ExpressionError(f"no value at {_shown(setting)}: {error}") from None
        results, asked = values[: len(self.totals)], values[len(self.totals) :]
        for condition, value in zip(self.region, asked, strict=True):
            if not condition.holds(value):
                raise ExpressionError(f"the formulas do not hold at {_shown(setting)}: they need {condition}")
        return results

    @functools.cached_property
    def _compiled(self) -> Compiled:
        return compiled([*self.totals.values(), *(condition.expr for condition in self.region)])


def _shown(setting: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in setting.items())
