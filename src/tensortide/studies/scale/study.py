"""The study: every candidate predicted or refused, the best first, and the best one on more and fewer devices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec.structs import replace

from tensortide.errors import DegreesError, ExitStatus, PlanError
from tensortide.executors import SERIAL, Where, run_all
from tensortide.parallelism.closed.configuration import Configuration, Recompute
from tensortide.progress import detail
from tensortide.shown import Show, Shown
from tensortide.studies.scale.predictors import Predictor, ScalePrediction
from tensortide.studies.scale.problem import Problem, divisors
from tensortide.timelines.timeline import Timeline
from tensortide.timing.collectives import Nodes
from tensortide.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from tensortide.run.placed.divided import MeasuredRun
else:
    MeasuredRun = object  # the name is looked up by ``help``, which needs no PyTorch

MOST_SIZES = 8
CHEAPER: tuple[Recompute, ...] = ("none", "selective", "ops")
"""Recomputation of less than every block."""
HOUR_NS = 3600 * 1e9


class Candidate(msgspec.Struct, frozen=True):
    """A candidate: its prediction, or the ``reason`` why it is refused (empty: it is not)."""

    configuration: Configuration
    found: ScalePrediction | None
    reason: Annotated[str, Show("Reason", fold=True)] = ""

    @property
    def micro_batches(self) -> Annotated[int | None, Show("micro-batches", at_width=110)]:
        """Micro-batches of a replica; None where the batch is not divided evenly."""
        one = self.configuration
        return None if one.batch % (one.data * one.micro_batch) else one.micro_batches


class ScalingRow(msgspec.Struct, frozen=True):
    """The chosen configuration with more or fewer replicas. ``efficiency_share`` is the throughput per device relative
    to that with the fewest."""

    devices: Annotated[int, Show("Devices")]
    configuration: Configuration
    found: ScalePrediction
    samples_per_s: Annotated[float, Show("samples/s", "amount")]
    efficiency_share: Annotated[float, Show("efficiency")]


class Rates(msgspec.Struct, frozen=True):
    """Samples a second; and, counted in tokens or samples (``Scale.counts``), those a second and device, and hours of a
    device and price for 1e9 of them."""

    samples_per_s: Annotated[float, Show("Samples per second", "amount")]
    per_s_and_device: Annotated[float, Show(unit="amount")]
    device_hours_per_1e9: Annotated[float, Show(unit="amount")]
    price_per_1e9: Annotated[float | None, Show(unit="amount")]
    mfu_share: Annotated[float | None, Show("Model FLOPs utilization")]


class Scale(Shown, msgspec.Struct, frozen=True, dict=True):
    """All outcomes: those that fit, fastest first, then those refused. ``strong`` scaling keeps the batch, ``weak``
    that of a replica. ``timeline`` is the predicted step of the best, ``measured`` a run of it. ``untried`` counts the
    candidates left when the search was stopped."""

    SECTION = "scale"
    problem: Problem
    name: str
    how: str
    counted: str
    tokens: int
    outcomes: tuple[Candidate, ...]
    strong: tuple[ScalingRow, ...] = ()
    weak: tuple[ScalingRow, ...] = ()
    timeline: Timeline | None = None
    untried: int = 0
    measured: MeasuredRun | None = None

    @property
    def counts(self) -> str:
        """Name what a sample counts for: tokens, or itself."""
        return "tokens" if self.tokens > 1 else "samples"

    def rates(self, one: Candidate) -> Rates | None:
        """The rates of a configuration, to four digits, and its model FLOPs utilization."""
        if one.found is None:
            return None
        price, device_ns = self.problem.price_per_hour, self.problem.nodes.size * one.found.step_ns
        samples, tokens = one.configuration.batch, one.configuration.batch * self.tokens
        hours = device_ns / HOUR_NS / tokens * 1e9
        return Rates(
            samples_per_s=_rounded(samples / one.found.step_ns * 1e9),
            per_s_and_device=_rounded(tokens / device_ns * 1e9),
            device_hours_per_1e9=_rounded(hours),
            price_per_1e9=None if price is None else _rounded(hours * price),
            mfu_share=None if math.isnan(one.found.ideal_ns) else one.found.ideal_ns / device_ns,
        )

    @property
    def best(self) -> Candidate | None:
        """The fastest that fits."""
        first = self.outcomes[0] if self.outcomes else None
        return first if first is not None and not first.reason else None

    @property
    def table(self) -> str:
        """The key of the table that a CSV file has."""
        return "configurations" if len(self.legal) > 1 else "parts"

    @property
    def status(self) -> ExitStatus:
        """FAILS if no candidate fits, or if a run differs; UNDECIDED if some were not tried."""
        if self.best is None:
            return ExitStatus.UNDECIDED if self.untried else ExitStatus.FAILS
        return ExitStatus.HOLDS if self.measured is None or self.measured.verified else ExitStatus.FAILS

    @property
    def legal(self) -> tuple[Candidate, ...]:
        """Candidates that fit."""
        return tuple(one for one in self.outcomes if not one.reason)

    @property
    def refused(self) -> tuple[Candidate, ...]:
        """Candidates that are refused, with reasons."""
        return tuple(one for one in self.outcomes if one.reason)


def scale(
    problem: Problem,
    predictor: Predictor,
    say: Callable[[str], None] = lambda text: None,
    stop: Callable[[], bool] = lambda: False,
    where: Where = SERIAL,
) -> Scale:
    """Predict all candidates of ``problem`` on the workers of ``where``, which do not affect the result.

    ``say`` receives progress messages; ``stop`` is polled and ends the study with the candidates predicted so far, and
    without the rows of scaling that are left.

    Raises DegreesError if the given degrees leave no candidate, and RunError as ``executors.run_all``.
    """
    candidates = list(problem.candidates(predictor.layers, predictor.kv_groups))
    found: dict[int, Candidate] = {}
    aside = f", {where.at_once} at a time" if where.cluster is None and where.at_once > 1 else ""
    best: Candidate | None = None
    say(f"configuration 1 of {len(candidates):,}{aside}")
    for number, outcome in _outcomes(problem, predictor, candidates, where, stop):
        found[number] = outcome
        if outcome.reason:
            detail("skipped", f"{_degrees_text(outcome.configuration)}: {outcome.reason}")
        if best is None or _rank(outcome) < _rank(best):
            best = outcome
        if len(found) < len(candidates):
            say(f"configuration {len(found) + 1:,} of {len(candidates):,}{aside}; {_best_so_far(best)}")
    outcomes = sorted((found[number] for number in sorted(found)), key=_rank)
    made = Scale(
        problem,
        predictor.name,
        predictor.how,
        predictor.counted,
        predictor.tokens,
        tuple(outcomes),
        untried=len(candidates) - len(outcomes),
    )
    if made.best is None:
        return made
    one = made.best.configuration
    say("strong and weak scaling of the fastest")
    return msgspec.structs.replace(
        made,
        strong=_scaling(problem, predictor, one, stop, weak=False),
        weak=_scaling(problem, predictor, one, stop, weak=True),
        timeline=predictor.timeline(one, problem.nodes),
    )


def with_faster_recomputation(found: Scale, predictor: Predictor) -> Scale:
    """``found`` with a remark on the recomputation with which its best configuration fits, too, and is faster."""
    best = found.best
    if best is None or best.found is None:
        return found
    others = [replace(best.configuration, recompute=kind) for kind in CHEAPER]
    tried = min((_outcome(found.problem, predictor, one) for one in others), key=_rank)
    if tried.reason or tried.found is None or tried.found.step_ns >= best.found.step_ns:
        return found
    less = 1 - tried.found.step_ns / best.found.step_ns
    told = (
        f"--recompute {tried.configuration.recompute} fits as well, in {format_bytes(tried.found.peak_bytes)}, and "
        f"takes {format_seconds(tried.found.step_ns / 1e9)}, {less:.0%} less."
    )
    first = msgspec.structs.replace(best, found=best.found._replace(remarks=(*best.found.remarks, told)))
    return msgspec.structs.replace(found, outcomes=(first, *found.outcomes[1:]))


def _best_so_far(best: Candidate) -> str:
    if best.reason or best.found is None:
        return "none fits yet"
    return f"best {format_seconds(best.found.time.time_ns / 1e9)} ({_degrees_text(best.configuration)})"


def _degrees_text(one: Configuration) -> str:
    return f"data {one.data} x tensor {one.tensor} x pipeline {one.pipeline}, micro-batch {one.micro_batch}"


def _outcomes(
    problem: Problem,
    predictor: Predictor,
    candidates: Sequence[Configuration],
    where: Where,
    stop: Callable[[], bool],
) -> Iterator[tuple[int, Candidate]]:
    """Yield the number and the outcome of each candidate as it completes. Candidates of the same degrees form one task,
    which divides their Graphs once. With a single worker each is its own task, so ``stop`` is polled more often."""
    serial = where.cluster is None and where.at_once == 1
    numbered = itertools.groupby(enumerate(candidates), lambda each: each[0] if serial else _degrees(each[1]))
    groups = [list(group) for _, group in numbered]
    tasks = [[one for _, one in group] for group in groups]
    for task, found in run_all(partial(_group, problem, predictor), tasks, where, stop):
        yield from zip((number for number, _ in groups[task]), found, strict=True)


def _degrees(one: Configuration) -> object:
    return one.data, one.tensor, one.pipeline


def _group(problem: Problem, predictor: Predictor, some: Sequence[Configuration]) -> list[Candidate]:
    return [_outcome(problem, predictor, one) for one in some]


def _rank(one: Candidate) -> tuple[bool, bool, float]:
    return bool(one.reason), one.found is None, one.found.time.time_ns if one.found else 0.0


def _outcome(problem: Problem, predictor: Predictor, one: Configuration, where: Nodes | None = None) -> Candidate:
    """Predict or refuse ``one`` on the nodes of ``problem``, or on ``where``."""
    on = where or problem.nodes
    if wrong := predictor.objections(one, on.size):
        return Candidate(one, None, "; ".join(wrong))
    try:
        found = predictor.predict(one, on)
    except (DegreesError, PlanError) as error:
        return Candidate(one, None, str(error))
    limit = problem.memory_bytes
    if limit is not None and found.peak_bytes > limit:
        reason = f"needs {format_bytes(found.peak_bytes)}, a device has {format_bytes(limit)} for it"
        return Candidate(one, found, reason)
    return Candidate(one, found)


def _scaling(
    problem: Problem, predictor: Predictor, one: Configuration, stop: Callable[[], bool], *, weak: bool
) -> tuple[ScalingRow, ...]:
    """The configuration with each number of replicas that divides its own, and twice and four times as many.

    With the batch of all (strong), the faster that fits of the same micro-batch and of as many of them; one that does
    not fit only where none does.
    """
    sizes = [size for size in divisors(4 * one.data) if size <= one.data or size % one.data == 0]
    rows, first = list[ScalingRow](), 0.0
    for data in sizes[-MOST_SIZES:]:
        if stop():
            break
        batch = one.batch * data // one.data if weak else one.batch
        where = resized(problem.nodes, data * one.devices // one.data)
        if where is None or (weak and one.batch * data % one.data):
            continue
        own = {one.micro_batch}
        if problem.degrees.micro_batch is None and not weak:  # with other replicas, as many micro-batches may be faster
            own.add(one.micro_batch * one.data // data)
        tried = [_outcome(problem, predictor, replace(one, data=data, batch=batch, micro_batch=m), where) for m in own]
        known = [each for each in tried if each.found is not None]
        if not known:
            continue
        best = min(known, key=_rank)
        changed, found = best.configuration, best.found
        assert found is not None
        rate = batch / found.time.time_ns * 1e9
        first = first or rate / changed.devices
        rows.append(ScalingRow(changed.devices, changed, found, _rounded(rate), rate / changed.devices / first))
    return tuple(rows)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def resized(nodes: Nodes, devices: int) -> Nodes | None:
    """Nodes like ``nodes``, of ``devices``: part of a node, or whole nodes; None where they fill none, or where
    nobody knows how to join several."""
    per = nodes.devices_per_node
    if devices >= per:
        count, rest = divmod(devices, per)
        if rest or (count > 1 and nodes.nic is None):
            return None
        return replace(nodes, count=count, cluster_name="")
    return replace(nodes, devices_per_node=devices, count=1, nics=max(1, nodes.nics * devices // per), cluster_name="")
