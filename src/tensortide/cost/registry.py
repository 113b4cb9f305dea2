"""The table of cost rules: one per op, whoever wrote it.

The project's own rules and those of installed packages are loaded the same way, when the first op is looked up:
ours are the modules of ``tensortide.cost.rules``; other vocabularies of ops, those of importers and of users, are entry
points of the group ``tensortide.cost_rules``.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from tensortide.cost.access import BytesRule, interface
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.errors import TensortideError

ENTRY_POINTS = "tensortide.cost_rules"

Work: TypeAlias = Callable[[OpCall], Cost | None]
W = TypeVar("W", bound=Work)


class Rule(msgspec.Struct, frozen=True):
    """Rule that derives the cost of one op from its call. ``formula`` and ``meaning`` are texts for people.

    ``work`` returns None where even this op's shapes do not tell. Its bytes are those of ``bytes`` unless it sets
    them. ``asks_wanted``: the cost depends on which outputs are read afterwards.
    """

    name: str
    formula: str
    work: Work
    bytes: BytesRule = interface
    meaning: str = ""
    asks_wanted: bool = False
    is_free: bool = False


_lock = threading.RLock()
_loaded: set[tuple[str, str]] = set()
_ALL = ("", "")
"""In ``_loaded``, beside names and values of plug-ins, once all of them are, and our own rules."""
_table: dict[str, Rule] = {}


def rule(
    *names: str,
    formula: str = "",
    bytes: BytesRule = interface,
    meaning: str = "",
    asks_wanted: bool = False,
    is_free: bool = False,
) -> Callable[[W], W]:
    """Register the decorated function as the cost rule of the ops ``names``.

    A name is ``namespace::op``, which stands for all overloads, their in-place and ``out=`` forms and the
    ``_foreach_`` form (where the rule gets one item of the lists at a time), or ``namespace::op.overload``, which
    wins over it. The function gets the call and returns a Cost; without bytes in it, the bytes of all inputs and
    outputs are added. Its docstring is the ``meaning``, if there is no other.

        @tensortide.cost.rule("mylib::mix", formula="n d MACs")
        def mix(op):
            n, d = op.shape("x")
            op.let(n=n, d=d)
            return Cost(macs=n * d)

    Raises TensortideError if a name is malformed or has a rule already.
    """

    def register(work: W) -> W:
        first_line = (work.__doc__ or "").strip().split("\n")[0].rstrip(".")
        for name in names:
            _add(Rule(name, formula or first_line, work, bytes, meaning, asks_wanted, is_free))
        return work

    return register


class Vocabulary(NamedTuple):
    """The decorator that registers rules of one namespace: names of its ops, separated by spaces, then what ``rule``
    takes. Stacked, each gives the ``meaning`` of its own ops; the docstring is that of those without.

        jax = Vocabulary("jax")
        @jax("cumsum cumprod", "R (n - 1)", "Running sum or product along rows of n.")
    """

    namespace: str

    def __call__(self, names: str, formula: str, meaning: str = "", **options: Any) -> Callable[[W], W]:
        """Register the decorated function as the rule of the ops ``names``."""
        keys = (f"{self.namespace}::{name}" for name in names.split())
        return rule(*keys, formula=formula, meaning=meaning, **options)


def _add(entry: Rule) -> None:
    namespace, separator, op = entry.name.partition("::")
    if not (namespace and separator and op):
        raise TensortideError(f"not an op name: {entry.name!r}.\nWrite it as namespace::op or namespace::op.overload.")
    known = _table.get(entry.name)
    if known is not None:
        raise TensortideError(f"{entry.name} has a cost rule already: {known.work.__module__}.{known.work.__name__}")
    _table[entry.name] = entry


def find(name: str) -> Rule | None:
    """The rule for ``namespace::op`` or ``namespace::op.overload``: the most specific that there is."""
    _load()
    base = name.partition(".")[0]
    rule = _table.get(name) or _table.get(base)
    if rule is None and base.endswith("_") and not base.endswith("__"):
        overload = name[len(base) :]
        rule = _table.get(base[:-1] + overload) or _table.get(base[:-1])
    return rule


def names() -> tuple[str, ...]:
    """Every name that has a rule."""
    _load()
    return tuple(_table)


def _load() -> None:
    """Import the modules and the plug-ins that register rules, each once."""
    if _ALL in _loaded:
        return
    with _lock:
        package = importlib.import_module("tensortide.cost.rules")
        for module in pkgutil.iter_modules(package.__path__, "tensortide.cost.rules."):
            importlib.import_module(module.name)
        for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
            if (entry.name, entry.value) not in _loaded:
                _load_entry(entry)
                _loaded.add((entry.name, entry.value))
        _loaded.add(_ALL)


def _load_entry(entry: importlib.metadata.EntryPoint) -> None:
    """Import a plug-in's module; a callable is called."""
    try:
        loaded = entry.load()
        if callable(loaded):
            loaded()
    except Exception as error:
        owner = f" of {entry.dist.name}" if entry.dist is not None else ""
        raise TensortideError(
            f"the cost rules {entry.name!r} ({entry.value}){owner} cannot be loaded: {error!r}"
        ) from error
