"""Ranks whose experts have different numbers of rows, which wait for each other wherever tokens travel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensortide.graph.communication import group_of, moves_data
from tensortide.graph.model import Phase
from tensortide.parallelism.experts.owners import GROUP
from tensortide.studies.scale.stage import Stage


def in_step(of_each: Sequence[Sequence[Stage]]) -> tuple[Stage, ...]:
    """The stages of all ranks together, of those ``of_each``: each exchange of tokens, and what lies between two, takes
    as long as on the rank where it takes longest."""
    return tuple(_together(stages) for stages in zip(*of_each, strict=True))


def _together(stages: Sequence[Stage]) -> Stage:
    slowest = max(stages, key=lambda stage: stage.forward_ns + stage.backward_ns)
    if len(stages) == 1:
        return slowest
    forward, backward = (
        [max(parts) for parts in zip(*(_parts(stage, phase) for stage in stages), strict=True)]
        for phase in (Phase.FORWARD, Phase.BACKWARD)
    )
    exchanges = float(sum(forward[1::2]) + sum(backward[1::2]))
    return slowest._replace(
        forward_ns=sum(forward),
        backward_ns=sum(backward),
        update_ns=max(stage.update_ns for stage in stages),
        inside_ns={**slowest.inside_ns, GROUP: exchanges},
    )


def _parts(stage: Stage, phase: Phase) -> Iterator[int]:
    """Nanoseconds of a pass up to its first exchange of tokens, of that exchange, up to the next one, and so on."""
    graph, line = stage.line.recorded, stage.line
    at, end = (0, stage.forward_ns) if phase is Phase.FORWARD else (stage.forward_ns,) * 2
    end += stage.backward_ns if phase is Phase.BACKWARD else 0
    for op in graph:
        if op.phase is phase and moves_data(op.name) and group_of(op) == GROUP:
            start, taken = int(line.run_start_ns[op.index]), int(line.run_ns[op.index])
            yield start - at
            yield taken
            at = start + taken
    yield end - at
