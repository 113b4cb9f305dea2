"""Predictions held against measurements, which come from a file or from a function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tensortide.errors import PlacementError
from tensortide.placements import Net
from tensortide.python_object import load_object
from tensortide.request import Arg, Opt, Request, either
from tensortide.studies.placement.measured import Measure, Validation, validated
from tensortide.studies.placement.request import NET, PLACEMENTS, ClusterRequest, NetRequest
from tensortide.studies.placement.scores import Scored, score_all
from tensortide.timing.json_file import read_json


def measure_called(name: str) -> Measure:
    """The function that a text names. Raises PlacementError for an object that is none."""
    found = load_object(name)
    if not callable(found):
        raise PlacementError(f"{name} is no function.")
    measure: Measure = found
    return measure


By = Annotated[
    Measure | None,
    Opt(
        "Function that measures a placement: it takes a dict from layer to device, and returns the time of a "
        "batch in ms, or None where memory does not suffice.",
        read=measure_called,
        common=True,
        value="FILE.py:NAME",
    ),
]


@dataclass(frozen=True, kw_only=True)
class ValidateRequest(Request):
    """Ask how well predicted times agree with measured ones."""

    GROUP = "Measured times"

    net: Annotated[Path, Arg(NET)]
    placements: Annotated[tuple[Path, ...], Arg(PLACEMENTS)]
    times: Annotated[
        Path | None,
        Opt("Measured times: a JSON file from the name of a placement to ms, null: out of memory.", common=True),
    ] = None
    by: By = None
    cluster: ClusterRequest = field(default_factory=ClusterRequest)
    settings: NetRequest = field(default_factory=NetRequest)

    RULES = (either("times", "by", why="measured times come from a file or from a function"),)


def answer(asked: ValidateRequest) -> Validation:
    """The comparison. Raises PlacementError where a time is missing, or cannot be compared."""
    subject = asked.settings.subject(asked.net, asked.cluster)
    scores = score_all(subject, asked.placements)
    names = [one.path.name for one in scores]
    predicted = [one.run.makespan for one in scores]
    measured = _read(asked.times, names) if asked.times is not None else _measured(asked.by, subject.net, scores)
    return validated([*zip(names, predicted, measured, strict=True)])


def _read(times: Path, names: Sequence[str]) -> list[float | None]:
    known = read_json(times, dict[str, float | None], "measured times by name of placement")
    if missing := [name for name in names if name not in known]:
        raise PlacementError(f"{times} has no time of {', '.join(missing[:3])}.")
    return [known[name] for name in names]


def _measured(by: Measure | None, net: Net, scores: Sequence[Scored]) -> Iterator[float | None]:
    assert by is not None  # else there are times
    for one in scores:
        devices = (of if len(of) > 1 else of[0] for of in one.given.devices)
        yield by(dict(zip(net.order, devices, strict=True)))
