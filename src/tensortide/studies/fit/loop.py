"""The loop around the step: first step, evaluation and the saving of checkpoints, as far as the code shows them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec

from tensortide.errors import TensortideError
from tensortide.graph.model import Graph, Phase, Role
from tensortide.memory import reserve
from tensortide.shown import Show
from tensortide.studies.fit.subject import Subject
from tensortide.timelines import timeline

_TRAINING = ("train", "training")
"""Names of the hyperparameter that says whether a step trains."""


class Part(msgspec.Struct, frozen=True):
    """A part of the loop: what it takes at its peak, and where the code has it. ``what`` says what that is made of."""

    name: Annotated[str, Show()]
    peak_bytes: Annotated[int, Show("Peak")]
    reserved_bytes: int
    where: Annotated[str, Show()]
    what: Annotated[str, Show(fold=True, dim=True)]


def parts(
    subject: Subject, again: Callable[[dict[str, bool], bool], Graph], say: Callable[[str], None]
) -> Iterator[Part]:
    """Yield the parts that the code of ``subject`` has.

    ``again`` captures its step with other settings; the very first one if the flag is true.
    """
    if subject.again is not None:
        say("capturing the first step")
        yield from _captured("first step", lambda: again({}, True), "", "gradients and optimizer state are made in it")
        for name in _TRAINING:
            if subject.graph.meta.hyperparameters.get(name) is True:
                say("capturing the evaluation")
                off = partial(again, {name: False}, False)
                yield from _captured("evaluation", off, f"--set {name}=False", "no backward pass", trains=False)
    if subject.code is not None:
        yield from _saved(subject, subject.code)


def _captured(name: str, capture: Callable[[], Graph], where: str, what: str, *, trains: bool = True) -> Iterator[Part]:
    """A part that is captured; none if that fails, or if it has a backward pass although it does not train."""
    try:
        graph = capture()
    except TensortideError:
        return
    if not trains and any(op.phase is Phase.BACKWARD for op in graph.ops):
        return
    peak = timeline(graph).peak_bytes
    taken = reserve(graph).peak_reserved if graph.index.main_device.startswith("cuda") else peak
    yield Part(name, peak, taken, where, what)


def _saved(subject: Subject, code: Path) -> Iterator[Part]:
    """The saving of checkpoints in a file: copies that are made on the device, and those that are written from it."""
    try:
        tree = ast.parse(code.read_text("utf-8"))
    except (OSError, SyntaxError, ValueError):
        return
    line = timeline(subject.graph)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args):
        name, given = ast.unparse(call.func).rpartition(".")[2], ast.unparse(call.args[0])
        if name not in ("deepcopy", "save") or not ("state_dict" in given or (name == "deepcopy" and "model" in given)):
            continue
        kept = _kept(subject.graph, given)
        copied = kept if name == "deepcopy" else 0
        what = "a copy on the device" if copied else "written by way of the host, without a copy on the device"
        total = line.persistent_bytes + copied
        yield Part("saving", total, total, f"{code.name}:{call.lineno}", f"{given}: {what}")


def _kept(graph: Graph, given: str) -> int:
    """Bytes of what the expression ``given`` holds: the state of the optimizer if it names that, else the model."""
    roles = (Role.OPTIMIZER_STATE,) if "optim" in given else (Role.PARAMETER, Role.BUFFER)
    device = graph.index.main_device
    return sum(int(each.nbytes) for each in graph.storages if each.role in roles and each.device == device)
