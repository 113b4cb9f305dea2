"""Captured steps of an experiment: each is made once, and read by the trials that share it."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from pathlib import Path

from tensortide.errors import GraphError, OutputError, RequestError
from tensortide.graph import Graph, save
from tensortide.importers.door import Built, File, resolve
from tensortide.plans.remat.schedule import Recording
from tensortide.replays.remat import Simulator
from tensortide.studies.experiment.trials import NONE, Trial
from tensortide.targets.durations import timed
from tensortide.targets.recordings import recorded_step
from tensortide.targets.requests import CaptureRequest, TimedRequest, TimesRequest
from tensortide.timing import save_durations
from tensortide.timing.durations import beside
from tensortide.write import reason_of

_played: dict[str, Simulator] = {}
"""The step of the last simulation, by its file: the next one in this process is of the same, as a rule."""
made: set[str] = set()
"""Captures that were begun in this process: code of the user's ran in it."""


def requested(trial: Trial, *, measure: bool) -> TimedRequest:
    """The step of the trial, with times of its ops."""
    machines = () if trial.machine is None else (trial.machine,)
    settings = tuple(f"{name}={value}" for name, value in trial.set.items())
    capture = CaptureRequest(set=settings, device=trial.device, machines=machines)
    return TimedRequest(capture=capture, times=TimesRequest(measure=measure))


def is_shared(trial: Trial, capture: str) -> bool:
    """True if the step is read from the file ``capture``: it is there, and a baseline makes it anew."""
    return trial.policy != NONE and Path(capture).is_file()


def digest_of(graph: Graph, durations_ns: Sequence[int]) -> str:
    """Hexadecimal digest of all that a simulation sees: the ops, what they touch, and their times."""
    return hashlib.sha256(f"{graph.index.digest} {[*durations_ns]}".encode()).hexdigest()[:12]


def step_for(trial: Trial, capture: str, *, measure: bool, digest: str = "") -> Recording:
    """The step of the trial with times of its ops. It is kept in the file ``capture``, with its times beside it, and
    read from there; steps that are files already are read from these.

    ``digest`` is that of the step of its baseline, if it is known: a file of another step is made anew, as is one that
    is damaged. Raises RequestError if that step is another one, too.
    """
    if is_shared(trial, capture):
        with contextlib.suppress(GraphError):
            kept = recorded_step(capture, TimedRequest())
            if digest in ("", digest_of(kept.graph, kept.durations_ns)):
                return kept
    if not Path(trial.workload).is_file():
        made.add(capture)
    asked, found = requested(trial, measure=measure), resolve(trial.workload)
    if not capture or (isinstance(found, File) and not isinstance(found, Built)):
        step = recorded_step(trial.workload, asked)
        _check(trial, digest, step.graph, step.durations_ns)
        return step
    captured = timed(found, asked)
    assert captured.durations is not None
    _check(trial, digest, captured.graph, captured.durations.ns)
    try:
        Path(capture).parent.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {capture}: {reason_of(error)}.") from error
    save_durations(captured.durations, beside(capture))
    save(captured.graph, capture)
    return recorded_step(capture, TimedRequest())


def _check(trial: Trial, digest: str, graph: Graph, durations_ns: Sequence[int]) -> None:
    """Raise RequestError for a step that cannot be compared with the baseline's."""
    if digest not in ("", digest_of(graph, durations_ns)):
        raise RequestError(
            f"{trial.step}: its step or the times of its ops have changed since the baseline ran: give --out another "
            "folder"
        )


def simulator_for(trial: Trial, capture: str, digest: str = "") -> Simulator:
    """The simulator of the step of the trial; ``digest`` is that of its baseline's."""
    if not capture or capture not in _played or trial.policy == NONE:
        _played.clear()
        recording = step_for(trial, capture, measure=trial.measure, digest=digest)
        _played[capture] = Simulator(recording, device=trial.device or "")
    return _played[capture].by(trial.deallocation)
