"""Memory: the peak of a step by role, the activation peak of a forward, and what a forward keeps for the backward."""

from __future__ import annotations

from tensortide.errors import Unavailable
from tensortide.graph.model import Role
from tensortide.graph.roles import WORKSPACE
from tensortide.measures.metric import Metric
from tensortide.measures.registry import metric
from tensortide.measures.subject import Captured, Subject
from tensortide.timelines.resident import GIVEN, saved_storages
from tensortide.timelines.timeline import StorageTimeline

_PEAKS = tuple(
    Metric(f"step_peak_{role}", f"Peak: {role.replace('_', ' ')}", "bytes", f"bytes of role {role} at the step's peak")
    for role in (*Role, WORKSPACE)
)


@metric(Metric("step_peak", "Peak memory", "bytes", "most bytes resident during any op, with known workspace"), *_PEAKS)
def step_peak(subject: Subject, batch_size: int | None = None) -> dict[str, int]:
    """Find the peak of the step, or of forward and backward of a model, and split it by role; the parts add up."""
    found = _stepping(subject, batch_size).memory
    at = found.peak_op
    parts = {role: int(series[at]) for role, series in found.by_role.items()} if at >= 0 else {}
    return {"step_peak": found.peak_bytes, **{f"step_peak_{role}": parts.get(role, 0) for role in (*Role, WORKSPACE)}}


def _stepping(subject: Subject, batch_size: int | None) -> Captured:
    return subject.captured(batch_size) if subject.kind == "step" else subject.training(batch_size)


@metric(
    Metric(
        "activation_peak",
        "Activation peak",
        "bytes",
        "most bytes of results resident at once in an inference forward; weights and inputs apart",
    )
)
def activation_peak(subject: Subject, batch_size: int | None = None) -> int:
    """Find the peak of results in a forward pass. Raises Unavailable for a step with a backward."""
    found = subject.captured(batch_size)
    if found.trains:
        raise Unavailable("the step has a backward: see step_peak and saved_activations")
    return max(live_results(found.memory), default=0)


def live_results(memory: StorageTimeline) -> list[int]:
    """Bytes of results resident during each op: neither given to the step nor a kernel's workspace."""
    series = [values.tolist() for role, values in memory.by_role.items() if role not in (*GIVEN, WORKSPACE)]
    return [sum(values) for values in zip(*series, strict=True)] or [0] * len(memory.graph)


@metric(
    Metric(
        "saved_activations",
        "Saved activations",
        "bytes",
        "bytes of results of the forward that are resident when the backward begins and that it uses",
    )
)
def saved_activations(subject: Subject, batch_size: int | None = None) -> int:
    """Sum up the storages that a forward leaves to its backward; each counts once."""
    graph = subject.training(batch_size).graph
    return sum(graph.storages[index].nbytes for index in saved_storages(graph))
