"""The files of the tensor liveness tool that came from G10, line by line as it writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tensortide.importers.g10.analysis import Order, Series, TimedLives
from tensortide.importers.g10.kernels import KERNEL_RULE
from tensortide.importers.g10.results import BLOCK_RULE, MIDDLE_RULE
from tensortide.importers.inductor.types import type_text
from tensortide.timelines.intervals import Life, liveness


def texts(timed: TimedLives, with_times: bool, order: Order) -> dict[str, str]:
    """Write every file, by name. ``with_times`` adds to ``kernels.config`` the time of each kernel in nanoseconds,
    which the tool does not write."""
    tensors = [
        f"tensor{index}, Name: {_word(name)}, Is global?: {lasts:d}: Size in byte: {life.nbytes}, "
        for index, (name, lasts, life) in enumerate(zip(timed.trace.tensors, timed.lasting, timed.lives, strict=True))
    ]
    # The tool sums microseconds in floating point: so its digits come out.
    lives = liveness(timed.trace.graph, "compat", [timed.times.us(ticks) for ticks in timed.times.ticks])
    return {
        "kernels.config": _lines(_kernels(timed, tensors, with_times)),
        "tensors.config": _lines(tensors),
        "liveness_analysis.config": _lines(_lives(timed, tensors, lives)),
        "TensorPeriodLog.py": _periods_log(lives, order),
        "NNMemConsumptionLog.py": _memory_log(timed.series),
    }


def _kernels(timed: TimedLives, tensors: Sequence[str], with_times: bool) -> Iterator[str]:
    graph = timed.trace.graph
    durations = timed.times.durations(graph, "").ns if with_times else ()
    operands = [
        f"{line}Dimensions: {type_text(tensor.dtype, tensor.shape)}"
        for line, tensor in zip(tensors, graph.tensors, strict=True)
    ]
    for index, (op, name) in enumerate(zip(graph.ops, timed.trace.kernels, strict=True)):
        yield f"Kernel ID: {index}, Name: {_word(name)}"
        if with_times:
            yield f"Execution Time: {durations[index]}"
        for title, side in (("Input Tensors:", op.inputs), ("Output Tensors:", op.outputs)):
            yield title
            yield from [operands[tensor] for tensor in dict.fromkeys(side)]
        yield KERNEL_RULE


def _lives(timed: TimedLives, tensors: Sequence[str], lives: Sequence[Life]) -> Iterator[str]:
    """A tensor that no kernel uses, and that does not live across steps, has birth and death -1 and no periods."""
    for line, lasts, life in zip(tensors, timed.lasting, lives, strict=True):
        birth, death = (-1 if at is None else at for at in (life.birth, life.death))
        told = "Global!" if lasts else f"Liveness: Birth: {birth}, Death: {death}."
        yield from (BLOCK_RULE, line, told, MIDDLE_RULE, line, "Inactive Periods:")
        for number, interval in enumerate(life.intervals):
            yield f"Period {number}: {interval.start}--------{interval.end}"
            yield f"Estimated Time:{interval.time:g}us"
        yield BLOCK_RULE


def _periods_log(lives: Sequence[Life], order: Order) -> str:
    """Bytes, microseconds and start of every period. The last line has no end."""
    rows = [(life.nbytes, interval.time, interval.start) for life in lives for interval in life.intervals]
    if order == "time_size":
        rows.sort(key=lambda row: -row[0] * row[1])
    sizes = "".join(f"{nbytes}, " for nbytes, _, _ in rows)
    times = "".join(f"{time:g}, " for _, time, _ in rows)
    starts = "".join(f"{start} " for _, _, start in rows)
    return f"sd_size = [{sizes}]\nsd_time = [{times}]\n# {starts}"


def _memory_log(series: Series) -> str:
    """Bytes per kernel, and in all."""
    active = "".join(f"{nbytes}," for nbytes in series.active)
    parts = "".join(f"({first},{weights},{rest})," for first, weights, rest in series.active_breakdown)
    total = "".join(f"{nbytes}," for nbytes in series.total)
    return (
        f"active = [{active}]\nactive_breakdown = [{parts}]\ntotal = [{total}]\n"
        f"global_weight = {series.global_weight}\ninput_size = {series.input_size}\n"
    )


def _word(name: str) -> str:
    """``name`` on one line."""
    return " ".join(name.split()) or "_"


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
