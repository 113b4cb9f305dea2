"""The files of the tensor liveness tool that came from G10, line by line as it writes them."""

from __future__ import annotations

from collections.abc import Iterable

from tensortide.capture.g10.kernels import KERNEL_RULE
from tensortide.capture.g10.liveness import BLOCK_RULE, MIDDLE_RULE
from tensortide.capture.inductor.types import type_text
from tensortide.memory.liveness import Life, Period, liveness
from tensortide.report.liveness_files.study import Order, Study

__all__ = ["kernels_config", "liveness_config", "memory_log", "periods_log", "tensors_config"]


def kernels_config(study: Study, *, with_times: bool = False) -> str:
    """``kernels.config``; ``with_times`` adds the time of each kernel in nanoseconds, which the tool does not write."""
    graph, names = study.trace.graph, study.trace.kernels
    durations = study.times.durations(graph, "") if with_times else None
    lines: list[str] = []
    for index, op in enumerate(graph.ops):
        lines.append(f"Kernel ID: {index}, Name: {_word(names[index])}")
        if durations is not None:
            lines.append(f"Execution Time: {durations.ns[index]}")
        for title, tensors in (("Input Tensors:", op.inputs), ("Output Tensors:", op.outputs)):
            lines.append(title)
            lines.extend(_operand(study, tensor) for tensor in dict.fromkeys(tensors))
        lines.append(KERNEL_RULE)
    return _text(lines)


def tensors_config(study: Study) -> str:
    """``tensors.config``."""
    return _text(_tensor(study, index) for index in range(len(study.trace.tensors)))


def liveness_config(study: Study) -> str:
    """``liveness_analysis.config``. A tensor that no kernel uses, and that does not live across steps, has birth and
    death -1 and no periods."""
    lines: list[str] = []
    for life in _in_microseconds(study):
        tensor = _tensor(study, life.index)
        lines += [BLOCK_RULE, tensor, _birth_and_death(study, life), MIDDLE_RULE, tensor, "Inactive Periods:"]
        for number, period in enumerate(life.periods):
            lines.append(f"Period {number}: {period.start}--------{period.end}")
            lines.append(f"Estimated Time:{_time(period):g}us")
        lines.append(BLOCK_RULE)
    return _text(lines)


def periods_log(study: Study, order: Order = "creation") -> str:
    """``*_TensorPeriodLog.py``: bytes, microseconds and start of every period. The last line has no end."""
    rows = [(life.nbytes, period) for life in _in_microseconds(study) for period in life.periods]
    if order == "time_size":
        rows.sort(key=lambda row: -row[0] * _time(row[1]))
    sizes = "".join(f"{nbytes}, " for nbytes, _ in rows)
    times = "".join(f"{_time(period):g}, " for _, period in rows)
    starts = "".join(f"{period.start} " for _, period in rows)
    return f"sd_size = [{sizes}]\nsd_time = [{times}]\n# {starts}"


def memory_log(study: Study) -> str:
    """``*_NNMemConsumptionLog.py``: bytes per kernel, and in all."""
    series = study.series
    active = "".join(f"{nbytes}," for nbytes in series.active)
    parts = "".join(f"({first},{weights},{rest})," for first, weights, rest in series.active_breakdown)
    total = "".join(f"{nbytes}," for nbytes in series.total)
    return (
        f"active = [{active}]\nactive_breakdown = [{parts}]\ntotal = [{total}]\n"
        f"global_weight = {series.global_weight}\ninput_size = {series.input_size}\n"
    )


def _in_microseconds(study: Study) -> tuple[Life, ...]:
    """The lives with times in microseconds, summed in floating point as the tool does: its digits come out."""
    return liveness(study.trace.graph, "compat", [study.times.us(ticks) for ticks in study.times.ticks])


def _time(period: Period) -> float:
    return period.time or 0.0


def _birth_and_death(study: Study, life: Life) -> str:
    if study.lasting[life.index]:
        return "Global!"
    birth, death = (-1 if at is None else at for at in (life.birth, life.death))
    return f"Liveness: Birth: {birth}, Death: {death}."


def _operand(study: Study, index: int) -> str:
    tensor = study.trace.graph.tensors[index]
    return f"{_tensor(study, index)}Dimensions: {type_text(tensor.dtype, tensor.shape)}"


def _tensor(study: Study, index: int) -> str:
    name = _word(study.trace.tensors[index])
    lasts = int(study.lasting[index])
    return f"tensor{index}, Name: {name}, Is global?: {lasts}: Size in byte: {study.lives[index].nbytes}, "


def _word(name: str) -> str:
    """``name`` on one line."""
    return " ".join(name.split()) or "_"


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
