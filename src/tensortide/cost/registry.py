"""The table of cost rules: one per op, whoever wrote it.

The project's own rules and those of installed packages are loaded the same way, when the first op is looked up:
ours are the modules of ``tensortide.cost.rules``; other vocabularies of ops, those of importers and of users, are entry
points of the group ``tensortide.cost_rules``.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import pkgutil
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from tensortide.cost.access import BytesRule, interface
from tensortide.cost.kinds import WEIGHTS, Kind, Weigh, Weights, elements, per_element, weights_of
from tensortide.cost.opcall import OpCall, qualified
from tensortide.cost.record import Cost
from tensortide.errors import TensortideError

ENTRY_POINTS = "tensortide.cost_rules"

Work: TypeAlias = Callable[[OpCall], Cost | None]
W = TypeVar("W", bound=Work)


class Rule(msgspec.Struct, frozen=True):
    """Rule that derives the cost of one op from its call. ``formula`` and ``meaning`` are texts for people.

    ``work`` returns None where even this op's shapes do not tell. Its bytes are those of ``bytes`` unless it sets
    them. ``asks_wanted``: the cost depends on which outputs are read afterwards. ``shape``: how the shape of the result
    follows from those of the operands, which ``broadcast``, or that of the ``first``, of which axes may be ``reduced``;
    empty where more decides. ``dims``: operands of a product and its result, with a letter for each dimension, where a
    row names all; one that the result lacks is summed, other operands are added to the result. ``packs``: an argument
    of weights of less than a byte, and their bits, or the attribute that has them. Rooms that ask something
    else of an op have a table by ``family``. A rule that a family makes has no ``name`` until it is in a row.
    """

    name: str
    formula: str
    work: Work
    bytes: BytesRule = interface
    meaning: str = ""
    asks_wanted: bool = False
    is_free: bool = False
    family: str = ""
    shape: str = ""
    dims: tuple[tuple[str, str], ...] = ()
    packs: str = ""


_lock = threading.RLock()
_loaded: set[tuple[str, str]] = set()
_ALL, _LOADING = ("", ""), ("", "loading")
"""In ``_loaded``, beside names and values of plug-ins: once all of them are, and our own rules; until then."""
_table: dict[str, Rule] = {}


def rule(
    *names: str,
    formula: str = "",
    bytes: BytesRule = interface,
    meaning: str = "",
    asks_wanted: bool = False,
    is_free: bool = False,
    family: str = "",
    then: str = "",
    shape: str = "",
    packs: str = "",
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
        made = Rule("", formula or first_line, work, bytes, meaning, asks_wanted, is_free, family, shape, packs=packs)
        registered(names, followed(made, then))
        return work

    return register


class Vocabulary(NamedTuple):
    """The ops of one namespace, whose names are given separated by spaces.

    As a decorator it registers a function, with what ``rule`` takes; stacked, each gives the ``meaning`` of its own
    ops, and the docstring is that of those without. ``rows`` registers ops that are instances of families. ``family``
    is that of rules that are functions. A ``*`` before a name: the op stands in the namespace ``also``, too; a ``+``:
    in that alone. ``then`` is the attribute that names the function which ops apply to their result.

        jax = Vocabulary("jax")
        @jax("cumsum cumprod", "R (n - 1)", "Running sum or product along rows of n.")
        jax.rows({"add sub neg": "arithmetic", "reduce_sum": reduction("sum")})
    """

    namespace: str
    family: str = ""
    also: str = ""
    then: str = ""

    def __call__(self, names: str, formula: str, meaning: str = "", **options: Any) -> Callable[[W], W]:
        """Register the decorated function as the rule of the ops ``names``."""
        options = {"family": self.family, "then": self.then, **options}
        return rule(*self._keys(names), formula=formula, meaning=meaning, **options)

    def each(
        self, names: str, formula: str, *, of: str = "out", kind: Kind | None = None, bound: str = "", **options: Any
    ) -> Callable[[Weigh], Weigh]:
        """Register the decorated function, which weighs one element, as the rule of the ops ``names``."""

        def register(weigh: Weigh) -> Weigh:
            options.setdefault("family", self.family or "elementwise")
            options.setdefault("shape", "broadcast" if of == "out" else "")
            self(names, formula, **options)(per_element(weigh, of, kind, bound))
            return weigh

        return register

    def rows(self, table: Mapping[str, Rule | Weights | str]) -> None:
        """Register a rule that a family makes, or weights of each element, for each row of names."""
        for names, given in table.items():
            made = given if isinstance(given, Rule) else elementwise(given)
            registered(self._keys(names), followed(made, self.then))

    def _keys(self, names: str) -> Iterator[str]:
        for name in names.split():
            bare = name.lstrip("*+")
            if name[0] != "+":
                yield f"{self.namespace}::{bare}"
            if name[0] in "*+":
                yield f"{self.also}::{bare}"


def registered(names: Iterable[str], made: Rule) -> None:
    """Register a rule that a family makes for ops by their full names."""
    add(msgspec.structs.replace(made, name=name) for name in names)


def elementwise(
    weights: Weights | str | int | Sequence[int],
    *,
    of: str = "out",
    kind: Kind | None = None,
    bound: str = "",
    bytes: BytesRule = interface,
    family: str = "elementwise",
) -> Rule:
    """Ops that do the same work for every element of the operand ``of``: weights by name, or numbers."""
    found = weights_of(weights)

    def work(op: OpCall) -> Weights:
        """Element by element, operands broadcast."""
        del op
        return found

    formula = found.per("output element" if of == "out" else "element")
    shape = "broadcast" if (of, family) == ("out", "elementwise") else ""
    return Rule("", formula, per_element(work, of, kind, bound), bytes, family=family, shape=shape)


def followed(made: Rule, attribute: str) -> Rule:
    """Ops that apply the function which ``attribute`` names, if any, to their result. A cell has it inside."""
    if not attribute or made.family == "recurrent":
        return made

    @functools.wraps(made.work)
    def work(op: OpCall) -> Cost | None:
        cost, then = made.work(op), WEIGHTS.get(str(op.arg(attribute, "")).lower())
        return cost if cost is None or then is None else cost + elements(op, op.out.numel, then)

    return msgspec.structs.replace(made, work=work)


def add(entries: Iterable[Rule], over: Collection[str] = ()) -> set[str]:
    """Put rules into the table, all or none, and return their names; rules of the names ``over`` are replaced. Raises
    TensortideError for a name that is malformed, or that has a rule or is given twice."""
    added: dict[str, Rule] = {}
    for entry in entries:
        namespace, separator, op = entry.name.partition("::")
        if not (namespace and separator and op):
            raise TensortideError(
                f"not an op name: {entry.name!r}.\nWrite it as namespace::op or namespace::op.overload."
            )
        name = qualified(entry.name) if "." in namespace else entry.name  # a domain of ONNX, as its ops are shown
        if name in added:
            raise TensortideError(f"{entry.name} is given twice")
        known = None if name in over else _table.get(name)
        if known is not None:
            place = f"{known.work.__module__}.{known.work.__name__}"
            raise TensortideError(f"{entry.name} has a cost rule already: {place}")
        added[name] = msgspec.structs.replace(entry, name=name)
    _table.update(added)
    return set(added)


def forget(names: Iterable[str]) -> None:
    """Take rules out of the table."""
    for name in names:
        _table.pop(name, None)


def find(name: str) -> Rule | None:
    """The rule for ``namespace::op`` or ``namespace::op.overload``: the most specific that there is."""
    load()
    base = name.partition(".")[0]
    rule = _table.get(name) or _table.get(base)
    if rule is None and base.endswith("_") and not base.endswith("__"):
        overload = name[len(base) :]
        rule = _table.get(base[:-1] + overload) or _table.get(base[:-1])
    return rule


def names() -> tuple[str, ...]:
    """Every name that has a rule."""
    load()
    return tuple(_table)


def load() -> None:
    """Import the modules and the plug-ins that register rules, each once: ours first, as others may not replace them.

    Nothing happens within a plug-in that is being imported."""
    if _ALL in _loaded:
        return
    with _lock:
        if _loaded & {_ALL, _LOADING}:
            return
        _loaded.add(_LOADING)
        try:
            package = importlib.import_module("tensortide.cost.rules")
            for module in pkgutil.iter_modules(package.__path__, "tensortide.cost.rules."):
                importlib.import_module(module.name)
            entries = importlib.metadata.entry_points(group=ENTRY_POINTS)
            for entry in sorted(entries, key=lambda entry: not entry.value.startswith("tensortide.")):
                if (entry.name, entry.value) not in _loaded:
                    _load_entry(entry)
                    _loaded.add((entry.name, entry.value))
            _loaded.add(_ALL)
        finally:
            _loaded.discard(_LOADING)


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
