"""Calibrate the machine at hand: ceilings, small steps one after the other, ceilings again, and the fit of all."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from tensortide.errors import CaptureError, GraphFileError
from tensortide.graph.model import Graph
from tensortide.profile.calibration.ceilings import measure_ceilings
from tensortide.profile.calibration.networks import Step
from tensortide.profile.calibration.plan import PLAN
from tensortide.profile.host import chosen_threads, device_context, machine_of
from tensortide.profile.measure import measure
from tensortide.recorder.fallback import fallback
from tensortide.timing.calibration import Calibration, Chunk, Rates, Stored, Underway, load, path_for, save
from tensortide.timing.durations import Durations, Platform
from tensortide.timing.families import works
from tensortide.timing.fit.calibration import fit_calibration
from tensortide.timing.host import cache_bytes
from tensortide.timing.lock import only_one
from tensortide.timing.sequence import in_sequence
from tensortide.timing.store import lock_of
from tensortide.write import check_writable

LIMIT_S = 240
"""Seconds that the steps may take; one that begins late is measured over fewer repetitions."""
REPEATS, FEWER = 9, 3
RESOLUTION_NS = 200
"""Times are taken to be no shorter: what the clock and the hook cost is not known to more."""
FRESH = datetime.timedelta(hours=12)
"""Age up to which a calibration that was interrupted goes on."""

Say = Callable[[str], None]
Plan = Mapping[str, Callable[[], Step]]


def calibrate(
    *,
    device: str = "cpu",
    clock: Literal["wall", "thread"] = "wall",
    threads: int | None = None,
    plan: Plan = PLAN,
    store: Path | None = None,
    progress: Say | None = None,
    note: Say | None = None,
) -> tuple[Calibration, Path]:
    """Measure this machine and store its constants; a calibration that was interrupted goes on where it stopped.

    ``progress`` is told what is measured, ``note`` what a person should know once: steps that were kept, a damaged
    file. Returns the calibration and its file.

    Raises:
        CaptureError: the device is not here, the clock cannot see its work, or another process calibrates the device.
        OutputError: the store cannot be written.
    """
    say, tell = progress or (lambda text: None), note or (lambda text: None)
    threads = 1 if clock == "thread" and threads is None else threads
    if clock == "thread" and (device != "cpu" or threads != 1):
        raise CaptureError("the clock of one thread sees one thread of a CPU: give one thread, or take the wall clock")
    with chosen_threads(threads), device_context(device):
        machine = machine_of(() if device == "cpu" else (device,))
        path = check_writable(path_for(machine, store), folders=True)
        with only_one(lock_of(machine.name, store), f"calibrating {machine.name}"):
            underway = _begun(_stored(path, tell), clock, plan, tell)
            if underway is None:
                say("measuring ceilings")
                underway = Underway(when=_now().isoformat(), clock=clock, before=measure_ceilings(device, clock))
            underway = _steps(
                underway, plan, say, lambda found: save(Stored(_complete(path), found), path), device, clock
            )
            say("measuring ceilings again")
            after = measure_ceilings(device, clock)
            say("fitting")
            found = _fitted(machine_of((), before=machine), underway, plan, after)
            return found, save(Stored(found), path)


def _stored(path: Path, tell: Say) -> Stored:
    try:
        return load(path)
    except GraphFileError as error:
        tell(f"{error}. It is replaced.")
        return Stored()


def _complete(path: Path) -> Calibration | None:
    """The calibration that is complete by now: another process may have measured it meanwhile."""
    try:
        return load(path).calibration
    except GraphFileError:
        return None


def _begun(stored: Stored, clock: str, plan: Plan, tell: Say) -> Underway | None:
    """The calibration that was interrupted, if it is of the same kind and not old."""
    found = stored.underway
    if found is None or _now() - datetime.datetime.fromisoformat(found.when) > FRESH:
        return None
    if found.clock != clock:
        tell(f"{len(found.chunks)} steps that were measured with the {found.clock} clock are measured again")
        return None
    kept = sum(chunk.name in plan for chunk in found.chunks)
    tell(f"going on with a calibration that was interrupted: {kept} of {len(plan)} steps are measured")
    return found


def _steps(
    underway: Underway,
    plan: Plan,
    say: Say,
    keep: Callable[[Underway], object],
    device: str,
    clock: Literal["wall", "thread"],
) -> Underway:
    """Measure the steps of ``plan`` that are missing, and keep each as it is done."""
    keep(underway)
    done = {chunk.name for chunk in underway.chunks}
    begin = time.monotonic()
    missing = [name for name in plan if name not in done]
    for number, name in enumerate(missing):
        late = time.monotonic() - begin > LIMIT_S * (number + 1) / len(missing)
        say(f"step {len(plan) - len(missing) + number + 1} of {len(plan)}: {name}")
        graph, durations = measure(
            plan[name], name=name, repeats=FEWER if late else REPEATS, clock=clock, device=device
        )
        chunk = chunk_of(name, graph, durations)
        underway = Underway(
            when=underway.when, clock=underway.clock, before=underway.before, chunks=(*underway.chunks, chunk)
        )
        keep(underway)
    return underway


def chunk_of(name: str, graph: Graph, durations: Durations) -> Chunk:
    """The measured step as samples. Ops without a time are none: on an accelerator those that launch no kernel."""
    found = durations.measurement
    assert found is not None
    assert found.step is not None
    distinct, index = works(graph, fallback)
    if found.clock != "kernel":  # on a device of its own, ops leave the host's caches alone
        distinct, index = in_sequence(graph, distinct, index)
    kept = [i for i, ns in enumerate(durations.ns) if ns > 0 and i not in found.stand_ins]
    ns = [float(max(RESOLUTION_NS, durations.ns[i])) for i in kept]
    whole = sum(ns) if found.clock == "kernel" else float(found.step.median_ns)  # the host of a device is another model
    return Chunk(name, tuple(distinct), tuple(index[i] for i in kept), tuple(ns), whole)


def _fitted(machine: Platform, underway: Underway, plan: Plan, after: Rates) -> Calibration:
    chunks = [chunk for chunk in underway.chunks if chunk.name in plan]
    return fit_calibration(
        machine,
        underway.clock,
        _now().isoformat(),
        chunks,
        before=underway.before,
        after=after,
        cache_bytes=cache_bytes() if machine.device == "cpu" else None,
    )


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)
