"""Numbers that a step read, whose comparisons can be turned: to find out what depends on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_COMPARISONS = ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "__bool__")
_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
_ARITHMETIC = (
    *(f"__{side}{name}__" for name in _BINARY for side in ("", "r")),
    *("__neg__", "__pos__", "__abs__", "__round__"),
)

Asked = Callable[[bool], bool]
"""A function of the result of a comparison that returns the one to give."""


def turnable(value: float, asked: Asked) -> Any:
    """A number that equals ``value`` and has ``asked`` answer its comparisons, and those of what is computed of it."""
    kind = _Float if type(value) is float else _Int
    made = kind(value)
    made.asked = asked
    return made


class _Turnable:
    """The part that both kinds share."""

    asked: Asked

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is a plain number."""
        plain = type(self).__mro__[2]
        return plain, (plain(self),)


def _made(name: str, plain: type) -> type[Any]:
    members: dict[str, Any] = {"__hash__": plain.__hash__}
    for each in _COMPARISONS:
        members[each] = _comparison(getattr(plain, each))
    for each in _ARITHMETIC:
        members[each] = _computation(getattr(plain, each))
    return type(name, (_Turnable, plain), members)


def _comparison(plain: Callable[..., Any]) -> Callable[..., Any]:
    def compare(self: Any, *other: Any) -> Any:
        found = plain(self, *other)
        return found if found is NotImplemented else self.asked(found)

    return compare


def _computation(plain: Callable[..., Any]) -> Callable[..., Any]:
    def compute(self: Any, *others: Any) -> Any:
        found = plain(self, *others)
        return turnable(found, self.asked) if type(found) in (int, float) else found

    return compute


_Float, _Int = _made("_Float", float), _made("_Int", int)
