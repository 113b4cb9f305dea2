"""The machine that a measurement runs on, as the framework sees it."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from typing import Any

import msgspec
import torch

from tensortide.errors import CaptureError, NotHere, RequestError
from tensortide.executors import cores
from tensortide.graph.model import UNKNOWN_DEVICE, Graph
from tensortide.timing.durations import Measurement, Platform
from tensortide.timing.host import cpu_name, governor, load_average
from tensortide.units import format_percent, format_seconds


def accelerators(graph: Graph) -> list[str]:
    """The devices of ``graph`` that work on their own."""
    return sorted({s.device for s in graph.storages if s.device.partition(":")[0] not in ("cpu", "meta")})


def own_device(graph: Graph) -> str:
    """The device to measure the ops of ``graph`` on: a GPU if there is one here and they run on one, or their source
    does not say where; else the CPU."""
    devices = {s.device.partition(":")[0] for s in graph.storages} - {"meta"}
    on_gpu = "cuda" in devices or devices == {UNKNOWN_DEVICE}
    return "cuda" if on_gpu and torch.cuda.is_available() else "cpu"


def machine_of(devices: Iterable[str], *, before: Platform | None = None) -> Platform:
    """The machine that a step runs on with these accelerators; after a measurement give the one of ``before`` it."""
    load = load_average()
    if before is not None:
        return msgspec.structs.replace(before, load_after=load)
    kinds = sorted({device.partition(":")[0] for device in devices})
    names = [torch.get_device_module(kind).get_device_name() for kind in kinds]
    versions = {
        "torch": str(torch.__version__),
        "tensortide": version("tensortide"),
        "python": platform.python_version(),
    }
    for kind, release in (("cuda", torch.version.cuda), ("hip", torch.version.hip)):
        if release is not None:
            versions[kind] = str(release)
    return Platform(
        device=kinds[0] if kinds else "cpu",
        name=" and ".join(names) or cpu_name(),
        isa=torch.backends.cpu.get_cpu_capability(),
        threads=torch.get_num_threads(),
        cores=cores(),
        governor=governor(),
        load_before=load,
        versions=versions,
    )


def describe(machine: Platform) -> str:
    """The device and what runs on it, in one line."""
    threads = f", {machine.threads} thread{'s' * (machine.threads != 1)}" if machine.threads is not None else ""
    torch_version = f", torch {machine.versions['torch']}" if "torch" in machine.versions else ""
    return f"{machine.name}{torch_version}{threads}"


def source_of(found: Measurement, how: str, steps: int, ns: Sequence[int]) -> str:
    """Describe the machine and the method of a measurement, and the share of an ordinary step that the ops make up."""
    assert found.machine is not None
    assert found.step is not None
    whole = found.step.median_ns
    share = f"its ops are {format_percent(sum(ns), whole)} of a step of {format_seconds(whole / 1e9)}"
    return f"measured on {describe(found.machine)}{how}, median of {steps} steps; {share}"


@contextlib.contextmanager
def chosen_threads(count: int | None) -> Iterator[None]:
    """``count`` threads within ops (None: as many as there are). Raises CaptureError for less than one."""
    if count is None:
        yield
        return
    if count < 1:
        raise CaptureError(f"cannot run on {count} threads: it takes at least 1")
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def device_context(device: str) -> contextlib.AbstractContextManager[Any]:
    """Tensors are made on ``device`` unless the workload says where. Raises NotHere if it is not here."""
    if device == "cpu":
        return contextlib.nullcontext()
    kind = device.partition(":")[0]
    where = f"there is no device {device} here: this PyTorch ({torch.__version__})"
    if kind != "cuda":
        raise RequestError(f"{where} measures on cpu and cuda.")
    if not torch.cuda.is_available():
        raise NotHere(f"{where} sees no GPU.")
    return torch.device(device)
