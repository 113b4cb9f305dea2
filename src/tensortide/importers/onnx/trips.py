"""Trips of a Loop: its maximum, the trips that its condition allows, or those that are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensortide.errors import WorkloadError
from tensortide.expr import Size, expr_of
from tensortide.importers.onnx.contents import array, scalar
from tensortide.importers.onnx.read import Body, Stored
from tensortide.importers.onnx.shapes.base import Call
from tensortide.importers.onnx.value import Contents, Value
from tensortide.importers.trips import FAR, NOTHING, Counting, smaller

_NO_MAXIMUM = (1 << 63) - 1
"""The trip count of a loop that its condition alone ends, as exporters write it."""


def title(call: Call) -> str:
    """Name a node: by its first output where it has no name."""
    return call.node.name or next(filter(None, call.node.outputs), call.node.type)


def trips_of(call: Call, body: Body, scope: Mapping[str, Value]) -> tuple[int, bool]:
    """Return how often a body runs, and whether that is a guess: where it is one, it may be given. ``scope`` are the
    values around it.

    Raises OnnxError for a maximum that is not one integer of 64 bits, WorkloadError for a number of trips that is given
    and cannot be.
    """
    _require_one_integer(call)
    settings, name = call.settings, f"trips.{title(call)}"
    if name not in settings.given:
        return _known_trips(call, _Loop(call, body, scope))
    notes = dict(settings.notes)
    known, assumed = _known_trips(call, _Loop(call, body, scope))
    settings.notes = notes
    count, most = settings.given[name], _maximum(call)
    if not assumed:
        raise WorkloadError(f"loop {title(call)!r} runs {int(known)} times: that is known, and is not set")
    if most is not None and count > int(most):
        free = [one for one in expr_of(most).symbols if one not in settings.given]
        how = "".join(f"; {one} = {settings.values[one]} is assumed: --set {one}=N" for one in free)
        raise WorkloadError(f"{name}={count}: loop {title(call)!r} runs at most {int(most)} times{how}")
    return settings.size(name, 1), False


def _require_one_integer(call: Call) -> None:
    maximum = call.given(0)
    if maximum is None:
        return
    what = "" if maximum.dtype == "int64" else maximum.dtype
    if any(int(n) != 1 for n in maximum.shape if call.settings.known(n)):
        what = f"{maximum.dtype} of the shape {tuple(map(int, maximum.shape))}"
    if maximum.items is not None:
        what = "a sequence"
    if what:
        raise call.fail(f"its maximum of trips is {what}, not one int64")


def _maximum(call: Call) -> int | None:
    """Return the number of trips that a loop does not exceed; None if it names none, or the largest number."""
    found = call.content(0)
    if not found or not isinstance(found[0], int) or int(found[0]) == _NO_MAXIMUM:
        return None
    return found[0] if int(found[0]) > 0 else 0


def _known_trips(call: Call, loop: _Loop) -> tuple[int, bool]:
    """Return the trips that a loop has, at most where data may end it, and whether that is a guess."""
    settings, name = call.settings, f"trips.{title(call)}"
    maximum, most = call.given(0), _maximum(call)
    start = call.content(1)
    if (start and start[0] is False) or (most is not None and not isinstance(most, Size) and most == 0):
        return 0, False
    runs = call.given(1) is None or bool(start and start[0] is True)
    counted = loop.trips() if runs else None
    endless = runs and loop.always()
    if maximum is not None and maximum.iteration is not None:
        return _mean(call, maximum.iteration, counted, runs and (endless or counted is not None))
    if counted is not None:
        trips = counted if most is None else smaller(counted, most)
        return trips, not settings.known(trips)
    if endless and most is not None:
        return most, not settings.known(most)
    if endless and (maximum is None or call.content(0) == [_NO_MAXIMUM]):
        none = "it has no maximum" if maximum is None else "its maximum is 2**63 - 1, which stands for none"
        return settings.size(name, 1, f"nothing ends the loop: {none}, and its condition stays true"), True
    if most is not None and int(most) < FAR:
        settings.notes[f"{name}: its maximum of {int(most)}; data may end it before (--set {name}=...)"] = None
        return most, True
    within = "" if most is None else f", its maximum of {int(most)} at most"
    return settings.size(name, 1, f"data decide how often the loop runs{within}"), True


def _mean(call: Call, around: int, counted: int | None, known: bool) -> tuple[int, bool]:
    """Return the mean trips of a loop whose maximum is the number of the iteration around it, one of ``around``, and
    whether that is a guess; ``counted`` are those that its condition allows."""
    most = around if counted is None else min(int(counted), around)
    total = most * (most - 1) // 2 + (around - most) * most
    notes, name = call.settings.notes, f"trips.{title(call)}"
    if not known:
        notes[f"{name}: at most the number of the iteration around it; data may end it before"] = None
    if total % around:
        notes[f"{name}: the mean over the {around} trips around it, rounded up"] = None
    return -(-total // around), not known or bool(total % around)


PASSES = frozenset({"Identity", "Cast", "Squeeze", "Unsqueeze", "Reshape"})
"""Ops that pass a number on."""
_NAMES = {
    "Less": "lt", "LessOrEqual": "le", "Greater": "gt", "GreaterOrEqual": "ge", "Equal": "eq", "And": "and",
    "Or": "or", "Not": "not", "Add": "add", "Sub": "sub", **dict.fromkeys(PASSES, "same"),
}  # fmt: skip
_NEXT, _ONE = "/next", "/one"
"""The number of the following iteration, and what that is more."""


class _Loop:
    """The body of a Loop, by names, as counting reads it."""

    def __init__(self, call: Call, body: Body, scope: Mapping[str, Value]) -> None:
        self.scope, states = scope, [value for value in call.inputs[2:] if value is not None]
        self.stored = {entry.name: entry.contents for entry in body.stored}
        self.makers = {name: node for node in body.nodes for name in node.outputs}
        number, going, *rest = (port.name for port in body.inputs)
        condition, *following = (port.name for port in body.outputs)
        self.states: dict[str, tuple[int | None, str]] = {number: (0, _NEXT), going: (None, condition)}
        self.number, self.going = number, going
        for name, state, after in zip(rest, states, following, strict=False):
            self.states[name] = _whole(state.contents), after
        self.counting = Counting(self.made, lambda name: _whole(self.contents(name)), self.states.get)
        self.condition = condition

    def made(self, name: str) -> tuple[str, Sequence[str]]:
        node = self.makers.get(name)
        if name == _NEXT:
            return "add", (self.number, _ONE)
        return NOTHING if node is None else ("" if node.domain else _NAMES.get(node.type, ""), node.inputs)

    def contents(self, name: str) -> Contents | None:
        """The contents of what is the same in every trip: stored, or computed outside."""
        if name == _ONE:
            return scalar(1)
        if name in self.stored:
            return self.stored[name]
        node = self.makers.get(name)
        if node is not None and node.type == "Constant":
            value = next(iter(node.attributes.values()), None)
            if isinstance(value, Stored):
                return value.contents
            listed = value if isinstance(value, tuple) else (value,)
            return array(listed) if all(isinstance(one, int | float) for one in listed) else None
        outside = node is None and name not in self.states and name in self.scope
        return self.scope[name].contents if outside else None

    def always(self) -> bool:
        """Tell whether the condition that the body hands on is the one it got, or true."""
        source = self.counting.source(self.condition)
        found = self.contents(source)
        return source == self.going or (found is not None and found.size == 1 and bool(found.flat[0]))

    def trips(self) -> int | None:
        """Count the trips of a body that runs before its condition is read."""
        handed_on = self.contents(self.counting.source(self.condition))
        goes_on: object = handed_on.flat[0] if handed_on is not None and handed_on.size == 1 else None
        if goes_on is False:
            return 1
        found = self.counting.trips(self.condition, self.going)
        return None if found is None else found + 1


def _whole(contents: Contents | None) -> int | None:
    found: object = contents.flat[0] if contents is not None and contents.size == 1 else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None
