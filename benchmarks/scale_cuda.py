"""Memory and computing time of one rank of a divided step: predicted, and measured on a GPU.

    python benchmarks/scale_cuda.py [--measured FILE] [--write] [CASE ...]

On a machine with a GPU, ``python -m benchmarks.on_device.measure --out FILE`` runs a GPT-2 and a Llama as PyTorch
divides them: one device, ``DistributedDataParallel``, ``fully_shard``, ``parallelize_module``, stages of a pipeline,
``checkpoint``. It needs PyTorch alone; one process is one rank, and its collectives do nothing. Here the whole step is
captured for the same GPU without one, divided as ``tensortide scale`` does, and compared: bytes with
``max_memory_allocated``, times without communication. *Kernels* is the time in which the GPU ran something, *compute*
that of the step, in which the GPU may wait for the host. Without ``--measured`` tiny steps are measured on this CPU,
their bytes alone compared.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness

PER_NODE = 8
SMALLEST = ("gpt2 one", "gpt2 recompute", "gpt2 tensor2", "llama pipeline2 rank1")
"""Cases that are measured on the CPU."""
COLUMNS = {
    "case": "{case}",
    "measured MiB": "{mib:.2f}",
    "predicted MiB": "{predicted_mib:.2f}",
    "off": "{bytes_off:+z.1%}",
    "kernels ms": "{busy_ms:.2f}",
    "predicted": "{predicted_busy_ms:.2f}",
    "off ": "{busy_off:+z.1%}",
    "compute ms": "{step_ms:.2f}",
    "predicted ": "{predicted_ms:.2f}",
    "off  ": "{ms_off:+z.1%}",
}
MIB = 2**20


@functools.cache
def whole(model: str, shape: tuple[Any, ...], machine: str) -> Any:
    """The step of one device, captured for ``machine`` (empty: for the CPU)."""
    from benchmarks.on_device.decoders import Shape
    from benchmarks.on_device.divided_steps import Case, build
    from tensortide import capture

    sizes = Shape(*shape)

    def workload() -> Callable[[], None]:
        step = build(Case(model, end=sizes.layers), sizes, "cuda" if machine else "cpu")
        return lambda: step(lambda phase: None)

    return capture(workload, machine=machine or None, real=False)


def predicted(case: dict[str, Any], shape: dict[str, Any], micro_batches: int, machine: str) -> dict[str, Any]:
    """Bytes of the rank, ms of its step without communication, and those in which its device runs ops."""
    from benchmarks.on_device.decoders import Shape
    from benchmarks.on_device.divided_steps import Case
    from tensortide.parallelism import per_rank
    from tensortide.parallelism.closed import Configuration
    from tensortide.studies.scale.memory import memory_of_rank
    from tensortide.studies.scale.recomputation import recomputed
    from tensortide.studies.scale.stage import library_bytes, stage
    from tensortide.timing import device
    from tensortide.timing.collectives import nodes_of

    one, sizes = Case(**case), Shape(**shape)
    several = micro_batches if one.pipeline > 1 else 1
    graph = whole(one.model, tuple(sizes._replace(batch=sizes.batch * several * one.data)), machine)
    where = nodes_of(device(machine or "H100-SXM-80GB"), devices_per_node=PER_NODE)
    asked = Configuration(
        batch=sizes.batch * several * one.data,
        micro_batch=sizes.batch,
        data=one.data,
        tensor=one.tensor,
        pipeline=one.pipeline,
        zero=one.zero,
    )
    ranks = per_rank(recomputed(graph, "full" if one.recompute else "none"), asked.degrees)
    _check_cut(one, ranks.firsts)
    stages = [stage(each, asked, where, where.device) for each in ranks.graphs]
    memory = memory_of_rank(stages, asked, one.rank, library_bytes(graph))
    busy, compute = computing_ns(ranks.graphs[one.rank], where.device, several)
    return {
        "predicted_bytes": sum(memory.values()),
        "predicted_busy_ms": busy / 1e6,
        "predicted_ms": compute / 1e6,
        "memory": memory,
    }


def computing_ns(graph: Any, device: Any, micro_batches: int) -> tuple[int, int]:
    """Time in which the device runs ops of a rank's step, and that of the step, if collectives take none."""
    from tensortide.graph import Phase
    from tensortide.graph.communication import moves_data
    from tensortide.timelines.machines import with_times
    from tensortide.timelines.step import step_timeline
    from tensortide.timing.estimate import estimate
    from tensortide.timing.estimates import Estimate

    at_once = {op.index: Estimate() for op in graph if moves_data(op.name)}
    line = step_timeline(graph, with_times(estimate(graph, device), at_once), device)
    passes = [op.index for op in graph if op.phase in (Phase.FORWARD, Phase.BACKWARD)]
    end = max(int(line.run_start_ns[index] + line.run_ns[index]) for index in passes)
    busy = sum(line.clocks.device) + (micro_batches - 1) * sum(line.clocks.device[index] for index in passes)
    return busy, line.makespan_ns + (micro_batches - 1) * end


def _check_cut(case: Any, firsts: tuple[str, ...]) -> None:
    """Raise ValueError unless the measured stage begins where the predicted one does."""
    if case.rank and (began := firsts[case.rank].split(".")[:2]) != ["blocks", str(case.start)]:
        raise ValueError(f"the predicted stage begins with {'.'.join(began)}, the measured one with block {case.start}")


def measured(file: Path | None) -> dict[str, Any]:
    """Read the figures of ``file``; without one, measure tiny steps on the CPU."""
    if file is not None:
        found: dict[str, Any] = json.loads(file.read_text("utf-8"))
        return found
    from benchmarks.on_device.measure import measure as measure_steps

    *_, found = measure_steps(SMALLEST, "cpu")
    return found


def compared(have: dict[str, Any], want: dict[str, Any]) -> harness.Row:
    """A row: what was measured, what was predicted, and how far the latter is off."""
    row = {**have, **want, "bytes_off": want["predicted_bytes"] / have["peak_bytes"] - 1}
    row |= {"mib": have["peak_bytes"] / MIB, "predicted_mib": want["predicted_bytes"] / MIB}
    if "busy_ms" in have:
        row["busy_off"] = want["predicted_busy_ms"] / have["busy_ms"] - 1
        row["ms_off"] = want["predicted_ms"] / have["step_ms"] - 1
    return row


def measure(run: harness.Run) -> None:
    from benchmarks.on_device.divided_steps import Case

    found = measured(run.options.measured)
    on_gpu = found["device"] != "cpu"
    machine = found["device"] if on_gpu else ""
    run.note(f"Measured on {found['device']}, PyTorch {found['torch']}.")
    table = run.table(COLUMNS if on_gpu else dict(list(COLUMNS.items())[:4]), ("case",), found["device"])
    for name, case in found["cases"].items():
        if run.options.names and name not in run.options.names:
            continue
        if "error" in case:
            run.note(f"{name}: {case['error'].splitlines()[-1]}")
            continue
        how = {field: case[field] for field in Case._fields}
        want = predicted(how, found["shapes"][case["model"]], found["micro_batches"], machine)
        table.add({"case": name, **compared(case, want)})


if __name__ == "__main__":
    harness.main(__doc__, measure, measured={"type": Path, "help": "figures of a GPU; default: measure on this CPU"})
