"""How often a Loop runs: its maximum, what its condition says, or what is given."""

from __future__ import annotations

from tensortide.errors import WorkloadError
from tensortide.expr import Size
from tensortide.importers.onnx.read import Body, Stored
from tensortide.importers.onnx.shapes.base import Call
from tensortide.importers.symbols import FAR

_NO_MAXIMUM = (1 << 63) - 1
"""The trip count of a loop that its condition alone ends, as exporters write it."""


def title(call: Call) -> str:
    """Name a node: by its first output where it has no name."""
    return call.node.name or next(filter(None, call.node.outputs), call.node.type)


def trips_of(call: Call, body: Body) -> tuple[int, bool]:
    """Return how often a body runs, and whether that is a guess: where it is one, it may be given.

    Raises OnnxError for a maximum that is not one integer of 64 bits, WorkloadError for a number of trips that is given
    and cannot be.
    """
    _require_one_integer(call)
    settings, name = call.settings, f"trips.{title(call)}"
    if name not in settings.given:
        return _known_trips(call, body)
    notes = dict(settings.notes)
    known, assumed = _known_trips(call, body)
    settings.notes = notes
    count, most = settings.given[name], _maximum(call)
    if not assumed:
        raise WorkloadError(f"loop {title(call)!r} runs {int(known)} times: that is known, and is not set")
    if most is not None and count > int(most):
        raise WorkloadError(f"{name}={count}: loop {title(call)!r} runs at most {int(most)} times")
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


def _known_trips(call: Call, body: Body) -> tuple[int, bool]:
    """Return the trips that a loop has, at most where data may end it, and whether that is a guess."""
    settings, name = call.settings, f"trips.{title(call)}"
    maximum, most = call.given(0), _maximum(call)
    if maximum is not None and maximum.iteration is not None:
        total = maximum.iteration - 1
        if total % 2:
            settings.notes[f"{name}: on average half of the {total + 1} trips around it, rounded up"] = None
        return -(-total // 2), bool(total % 2)
    start = call.content(1)
    if (start and start[0] is False) or (most is not None and not isinstance(most, Size) and most == 0):
        return 0, False
    endless = (call.given(1) is None or bool(start and start[0] is True)) and _always(body)
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


def _always(body: Body) -> bool:
    """Return whether the condition that a body hands on is the one it got, or true."""
    if not body.outputs:
        return False
    makers = {name: node for node in body.nodes for name in node.outputs}
    stored = {entry.name: entry for entry in body.stored}
    name = body.outputs[0].name
    for _ in range(len(body.nodes) + 1):
        if len(body.inputs) > 1 and name == body.inputs[1].name:
            return True
        if name in stored:
            return _true(stored[name])
        node = makers.get(name)
        if node is None:
            return False
        if node.type == "Constant":
            return any(_true(value) for value in node.attributes.values() if isinstance(value, Stored))
        if node.type not in ("Identity", "Cast") or not node.inputs:
            return False
        name = node.inputs[0]
    return False


def _true(stored: Stored) -> bool:
    return stored.contents is not None and stored.contents.size == 1 and bool(stored.contents.flat[0])
