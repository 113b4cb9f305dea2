"""The files of the tensor liveness tool that came from G10, line by line as it writes them."""

from __future__ import annotations

from collections.abc import Iterable

from tensortide.importers.g10.export import Order, TimedLives
from tensortide.importers.g10.kernels import KERNEL_RULE
from tensortide.importers.g10.liveness import BLOCK_RULE, MIDDLE_RULE
from tensortide.importers.inductor.types import type_text
from tensortide.timelines.intervals import Life, Period, liveness

__all__ = ["texts"]


def texts(timed: TimedLives, with_times: bool = False, order: Order = "creation") -> dict[str, str]:
    """Write every file, by name."""
    return {
        "kernels.config": kernels_config(timed, with_times=with_times),
        "tensors.config": tensors_config(timed),
        "liveness_analysis.config": liveness_config(timed),
        "TensorPeriodLog.py": periods_log(timed, order),
        "NNMemConsumptionLog.py": memory_log(timed),
    }


def kernels_config(timed: TimedLives, *, with_times: bool = False) -> str:
    """``kernels.config``; ``with_times`` adds the time of each kernel in nanoseconds, which the tool does not write."""
    graph, names = timed.trace.graph, timed.trace.kernels
    durations = timed.times.durations(graph, "") if with_times else None
    lines: list[str] = []
    for index, op in enumerate(graph.ops):
        lines.append(f"Kernel ID: {index}, Name: {_word(names[index])}")
        if durations is not None:
            lines.append(f"Execution Time: {durations.ns[index]}")
        for title, tensors in (("Input Tensors:", op.inputs), ("Output Tensors:", op.outputs)):
            lines.append(title)
            lines.extend(_operand(timed, tensor) for tensor in dict.fromkeys(tensors))
        lines.append(KERNEL_RULE)
    return _text(lines)


def tensors_config(timed: TimedLives) -> str:
    """``tensors.config``."""
    return _text(_tensor(timed, index) for index in range(len(timed.trace.tensors)))


def liveness_config(timed: TimedLives) -> str:
    """``liveness_analysis.config``. A tensor that no kernel uses, and that does not live across steps, has birth and
    death -1 and no periods."""
    lines: list[str] = []
    for life in _in_microseconds(timed):
        tensor = _tensor(timed, life.index)
        lines += [BLOCK_RULE, tensor, _birth_and_death(timed, life), MIDDLE_RULE, tensor, "Inactive Periods:"]
        for number, period in enumerate(life.periods):
            lines.append(f"Period {number}: {period.start}--------{period.end}")
            lines.append(f"Estimated Time:{_time(period):g}us")
        lines.append(BLOCK_RULE)
    return _text(lines)


def periods_log(timed: TimedLives, order: Order = "creation") -> str:
    """``*_TensorPeriodLog.py``: bytes, microseconds and start of every period. The last line has no end."""
    rows = [(life.nbytes, period) for life in _in_microseconds(timed) for period in life.periods]
    if order == "time_size":
        rows.sort(key=lambda row: -row[0] * _time(row[1]))
    sizes = "".join(f"{nbytes}, " for nbytes, _ in rows)
    times = "".join(f"{_time(period):g}, " for _, period in rows)
    starts = "".join(f"{period.start} " for _, period in rows)
    return f"sd_size = [{sizes}]\nsd_time = [{times}]\n# {starts}"


def memory_log(timed: TimedLives) -> str:
    """``*_NNMemConsumptionLog.py``: bytes per kernel, and in all."""
    series = timed.series
    active = "".join(f"{nbytes}," for nbytes in series.active)
    parts = "".join(f"({first},{weights},{rest})," for first, weights, rest in series.active_breakdown)
    total = "".join(f"{nbytes}," for nbytes in series.total)
    return (
        f"active = [{active}]\nactive_breakdown = [{parts}]\ntotal = [{total}]\n"
        f"global_weight = {series.global_weight}\ninput_size = {series.input_size}\n"
    )


def _in_microseconds(timed: TimedLives) -> tuple[Life, ...]:
    """The lives with times in microseconds, summed in floating point as the tool does: its digits come out."""
    return liveness(timed.trace.graph, "compat", [timed.times.us(ticks) for ticks in timed.times.ticks])


def _time(period: Period) -> float:
    return period.time or 0.0


def _birth_and_death(timed: TimedLives, life: Life) -> str:
    if timed.lasting[life.index]:
        return "Global!"
    birth, death = (-1 if at is None else at for at in (life.birth, life.death))
    return f"Liveness: Birth: {birth}, Death: {death}."


def _operand(timed: TimedLives, index: int) -> str:
    tensor = timed.trace.graph.tensors[index]
    return f"{_tensor(timed, index)}Dimensions: {type_text(tensor.dtype, tensor.shape)}"


def _tensor(timed: TimedLives, index: int) -> str:
    name = _word(timed.trace.tensors[index])
    lasts = int(timed.lasting[index])
    return f"tensor{index}, Name: {name}, Is global?: {lasts}: Size in byte: {timed.lives[index].nbytes}, "


def _word(name: str) -> str:
    """``name`` on one line."""
    return " ".join(name.split()) or "_"


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
