"""The language of assertions: a text is read into frozen data, or refused at the column where it goes wrong.

peak <= 24GiB on cuda                    a metric, a relation and a limit
flops <= +1% of baseline                 parameters == baseline
time(8xa100-sxm-80gb) <= 210 ms          predicted for machines of the catalogue
flops in blocks.* <= 2 TFLOP             of modules, those inside them included
peak by activation <= 8GiB               the part of one role
no recomputation in blocks.*             no aten.copy_ in encoder.*
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal, NoReturn, TypeAlias, get_args

from tensortide.cost import registry
from tensortide.errors import CheckError, TensortideError
from tensortide.measures.checks.limits import Limit, as_part, limit_of, number_text
from tensortide.measures.metric import Metric
from tensortide.measures.registry import ALIASES, MetricFunction, Registry, meant
from tensortide.targets.machines import is_local, machines_of
from tensortide.timelines.module_figures import BY_MODULE
from tensortide.timing.collectives.nodes import counts_and_name

Relation: TypeAlias = Literal["<=", ">=", "==", "<", ">"]

_RELATION = re.compile(r"<=|>=|==|=|<|>")
_WORD = re.compile(r"\S+")
_NAME = re.compile(r"[^\W\d]\w*")
_NAMES = re.compile(r"[^\W\d]\w*\s+\w+")
_MACHINE = re.compile(r"\(([^()]*)\)")
_CLAUSES = {"in": "modules, as blocks.*", "by": "a role, as activation"}
_SHOWN = 200
"""Characters of an assertion that a message quotes."""
_PEAK = "step_peak"
_ON_DEVICE = (_PEAK,)
"""Metrics that each device has of its own."""


@dataclass(frozen=True)
class Quantity:
    """A metric: predicted for a ``machine``, of the ``modules`` that a pattern matches, or of one ``device``."""

    metric: Metric
    machine: str = ""
    modules: str = ""
    device: str = ""

    @property
    def key(self) -> str:
        """Its name in a baseline."""
        text = self.metric.name + f"({self.machine})" * bool(self.machine)
        text += f" in {self.modules}" * bool(self.modules)
        return text + f" on {self.device}" * bool(self.device)


@dataclass(frozen=True)
class Bound:
    """A quantity against a limit."""

    text: str
    quantity: Quantity
    relation: Relation
    limit: Limit

    @property
    def relative(self) -> bool:
        """True if the limit is a part of the baseline."""
        return self.limit.factor is not None


@dataclass(frozen=True)
class Absence:
    """No op called like ``ops`` in the ``modules`` that a pattern matches; no recomputation where ``ops`` is empty."""

    text: str
    ops: str = ""
    modules: str = ""


Assertion: TypeAlias = Bound | Absence


def parse(text: str, registry: Registry) -> Assertion:
    """Read an assertion over metrics of ``registry``. Raises CheckError with the column and what was expected."""
    if not isinstance(text, str):
        raise CheckError(f"an assertion is a text, as 'peak <= 24GiB', not {text!r}")
    return _Parser(text, registry).assertion()


def _joined(name: str) -> str:
    """The name of a metric as people write it in words: ``Peak memory`` is ``peak_memory``."""
    return "_".join(name.lower().split())


def bounded(name: str, limit: str | float, registry: Registry) -> str:
    """Write the assertion that keywords state: ``peak="2GiB"`` is ``peak <= 2GiB``, ``coverage="100%"`` ``>=`` it.

    A limit that begins with a relation keeps it; a number is in base units. Raises CheckError for anything else.
    """
    if isinstance(limit, str) and _RELATION.match(limit.strip()):
        return f"{name} {limit.strip()}"
    found = _Parser(name, registry).metric(0, name)[0]
    text = limit if isinstance(limit, str) else number_text(limit, found.unit)
    if text is None:
        raise CheckError(f"{name} takes a text, as '+1% of baseline', or a number in base units, not {limit!r}")
    return f"{name} { ({'lower': '<=', 'higher': '>='}.get(found.direction, '==')) } {text}"


class _Parser:
    def __init__(self, text: str, registry: Registry) -> None:
        self.text, self.registry = text, registry

    def fail(self, at: int, problem: str) -> NoReturn:
        text = self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]} ..."
        raise CheckError(f"column {at + 1} of {text!r}: {problem}")

    def assertion(self) -> Assertion:
        start = len(self.text) - len(self.text.lstrip())
        if not self.text.strip():
            self.fail(0, "expected an assertion, as peak <= 24GiB")
        if (word := _WORD.match(self.text, start)) is not None and word[0] == "no":
            return self._absence(word.end())
        relations = list(_RELATION.finditer(self.text))
        if not relations:
            end = len(self.text.rstrip())
            self.fail(end, "expected a relation and a limit, as <= 24GiB (or: no OP in MODULES)")
        if len(relations) > 1:
            self.fail(relations[1].start(), "expected one relation: write two assertions")
        relation = "==" if relations[0][0] == "=" else relations[0][0]
        assert relation in get_args(Relation)
        quantity, end = self._quantity(start, relations[0].start())
        limit, device = self._limit(relations[0].end(), quantity)
        quantity = Quantity(quantity.metric, quantity.machine, quantity.modules, device)
        return Bound(self.text.strip(), quantity, relation, limit)  # type: ignore[arg-type]  # asserted above

    def _absence(self, at: int) -> Absence:
        words = list(_WORD.finditer(self.text, at))
        if not words:
            self.fail(len(self.text.rstrip()), "expected recomputation, or the name of an op, as aten.copy_")
        ops = "" if words[0][0] == RECOMPUTATION else words[0][0].replace("::", ".")
        if ops and (problem := problem_of(ops)):
            self.fail(words[0].start(), problem)
        if len(words) > 1 and words[1][0] != "in":
            self.fail(words[1].start(), f"expected in MODULES, as in blocks.*, not {words[1][0]!r}")
        if len(words) == 2:
            self.fail(words[1].end(), "expected modules, as blocks.*")
        if len(words) > 3:
            self.fail(words[3].start(), f"expected the end, not {words[3][0]!r}")
        return Absence(self.text.strip(), ops, words[2][0] if len(words) > 2 else "")

    def metric(self, at: int, name: str) -> tuple[Metric, MetricFunction]:
        """Find a metric by its name or another one of it."""
        known = meant(name, self.registry.units)
        if known not in self.registry:
            known = meant(_joined(name), self.registry.units)
        if known not in self.registry:
            names = [*self.registry, *ALIASES]
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
            hint = f": did you mean {near[0]}?" if near else f"; there are {', '.join(names)}"
            self.fail(at, f"there is no metric {name!r}{hint}")
        found = self.registry[known]
        if found.metric.unit == "text" or not found.metric.row:
            self.fail(at, f"{name} has no numeric value")
        return found.metric, found.function

    def _quantity(self, start: int, end: int) -> tuple[Quantity, int]:
        word = self._name(start, end)
        metric, function = self.metric(start, word[0])
        machine, at = "", word.end()
        if (found := _MACHINE.match(self.text, at, end)) is not None:
            if "machine" not in function.options:
                self.fail(at, f"{word[0]} does not depend on a machine: step_time and utilization do, as time(h100)")
            if not found[1].strip():
                self.fail(at + 1, "expected a machine of the catalogue, as h100")
            machine, at = found[1].strip(), found.end()
            try:
                if is_local(counts_and_name(machine)[1]):
                    raise CheckError("a check is the same wherever it runs: name a machine of the catalogue or a file")
                machines_of(machine)
            except TensortideError as error:
                self.fail(found.start(1), str(error))
        given = {name: (place, value) for name, place, value in self._clauses(at, end)}
        if "by" in given:
            metric = self._part(metric, *given["by"])
        if "in" in given and metric.name not in BY_MODULE:
            self.fail(given["in"][0], f"{metric.name} is not known by module; {', '.join(BY_MODULE)} are")
        return Quantity(metric, machine, given["in"][1] if "in" in given else ""), end

    def _name(self, start: int, end: int) -> re.Match[str]:
        """Match the name of a metric; its words may be apart (``peak memory``)."""
        word = _NAME.match(self.text, start, end)
        if word is None:
            self.fail(start, "expected the name of a metric, as peak, flops or step_time")
        apart = _NAMES.match(self.text, start, end)
        return apart if apart and meant(_joined(apart[0]), self.registry.units) in self.registry else word

    def _clauses(self, at: int, end: int) -> list[tuple[str, int, str]]:
        words, found = list(_WORD.finditer(self.text, at, end)), list[tuple[str, int, str]]()
        for place in range(0, len(words), 2):
            name = words[place][0]
            if name not in _CLAUSES:
                self.fail(words[place].start(), f"expected in MODULES, by ROLE or a relation, not {name!r}")
            if place + 1 == len(words):
                self.fail(words[place].end(), f"expected {_CLAUSES[name]}")
            if name in {one for one, _, _ in found}:
                self.fail(words[place].start(), f"{name} is given twice")
            found.append((name, words[place + 1].start(), words[place + 1][0]))
        return found

    def _part(self, metric: Metric, at: int, role: str) -> Metric:
        """The part of the peak that is of a role."""
        if metric.name != _PEAK:
            self.fail(at, f"{metric.name} is not known by role; peak is")
        parts = {name.removeprefix(f"{_PEAK}_"): name for name in self.registry if name.startswith(f"{_PEAK}_")}
        if role not in parts:
            near = difflib.get_close_matches(role, parts, n=1, cutoff=0.5)
            hint = f": did you mean {near[0]}?" if near else f"; there are {', '.join(parts)}"
            self.fail(at, f"there is no role {role!r}{hint}")
        return self.registry[parts[role]].metric

    def _limit(self, at: int, quantity: Quantity) -> tuple[Limit, str]:
        text, device = self.text[at:], ""
        start = at + len(text) - len(text.lstrip())
        if (found := re.search(r"\bon\b", text)) is not None:
            text, device, on = text[: found.start()], text[found.end() :].strip(), at + found.start()
            if quantity.metric.name not in _ON_DEVICE or quantity.modules:
                self.fail(on, "on DEVICE goes with peak alone; the device of a whole check is its own (--device)")
            if not re.fullmatch(r"\w+(:\d+)?", device):
                self.fail(at + found.end(), f"expected a device, as cuda, not {device!r}")
        if not text.strip():
            self.fail(start if text else at, "expected a limit")
        try:
            return limit_of(text.strip(), quantity.metric.unit), device
        except CheckError as error:
            part = as_part(text) if quantity.metric.unit != "share" else ""
            written = f"; a part of the baseline is written {self.text[:at].strip()} {part}" if part else ""
            self.fail(start, f"{error}{written}")


# -- names of ops -----------------------------------------------------------------------------------
# Names of ops in assertions. A name that no op has is refused: every step would be free of it.


RECOMPUTATION = "recomputation"
OWN = "aten"
"""The namespace of the framework's ops. Another one is a library's, whose ops nobody needs to have priced."""
_WILD = re.compile(r"[*?[]")


def problem_of(pattern: str) -> str:
    """Say why no op can be called like ``pattern``, which may leave out overload and namespace; else empty."""
    names = registry.names()
    known = _called(names)
    namespace, dot, rest = pattern.partition(".")
    if dot and rest and namespace != OWN and not _WILD.search(namespace):
        if namespace not in known or any(name.startswith(f"{namespace}::") for name in names):
            return ""
        return f"there is no namespace {namespace!r} of ops: did you mean {OWN}.{pattern}?"
    name = ".".join(pattern.split(".")[:2])
    if any(fnmatchcase(one, name) for one in known) if _WILD.search(name) else name in known:
        return ""
    near = difflib.get_close_matches(name, [RECOMPUTATION, *sorted(known)], n=1, cutoff=0.6)
    hint = f": did you mean {near[0]}?" if near else "; an op of a library is written NAMESPACE.OP"
    return f"there is no op {pattern!r}{hint}"


@lru_cache(maxsize=1)
def _called(names: tuple[str, ...]) -> frozenset[str]:
    """All that ops with a cost rule may be called: as such, in place and on lists, with and without namespace."""
    found = set[str]()
    for full in names:
        namespace, _, op = full.partition("::")
        for form in (base := op.partition(".")[0], f"{base}_", f"_foreach_{base}", f"_foreach_{base}_"):
            found |= {form, f"{namespace}.{form}"}
    return frozenset(found)
