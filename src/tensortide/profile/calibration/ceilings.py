"""Ceilings of a machine: the rates of large products and of large copies, and of its links to other memories."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch

from tensortide.profile.stopwatch import Clocks
from tensortide.timing.calibration import Rates

PRODUCTS, COPIES = 15, 9
"""Repetitions, after one to warm up; the fastest counts."""


class Sizes(NamedTuple):
    """Side of the products, and bytes of the copies: many times the last-level cache."""

    side: int
    nbytes: int


SIZES = {"cpu": Sizes(1536, 128 << 20), "cuda": Sizes(8192, 1 << 30)}
DTYPES = {
    "cpu": (torch.float32, torch.float64, torch.bfloat16),
    "cuda": (torch.float32, torch.float64, torch.bfloat16, torch.float16),
}


def measure_ceilings(device: str, clock: Literal["wall", "thread"], clocks: Clocks = Clocks()) -> Rates:  # noqa: B008
    """Measure the rates of ``device`` by this ``clock``."""
    kind = device.partition(":")[0]
    watch = _Watch(device, clocks.wall if clock == "wall" else clocks.thread)
    size, flops, noise = SIZES[kind], {}, 0.0
    for dtype in DTYPES[kind]:
        times = _products(watch, size.side, dtype)
        flops[str(dtype).removeprefix("torch.")] = 2 * size.side**3 / min(times) * 1e9
        if dtype is torch.float32:
            noise = 1 - min(times) / statistics.median(times)
    return Rates(
        flops_per_s=flops, bytes_per_s=_bandwidth(watch, size.nbytes), noise_share=noise, links=_links(watch, size)
    )


class _Watch(NamedTuple):
    """Times calls on a device, each until the device is done."""

    device: str
    clock: Callable[[], int]

    def times(self, call: Callable[[], Any], repeats: int) -> list[int]:
        """Nanoseconds of ``repeats`` calls after the first."""
        found = []
        for _ in range(repeats + 1):
            self.wait()
            begin = self.clock()
            call()
            self.wait()
            found.append(max(1, self.clock() - begin))
        return found[1:]

    def wait(self) -> None:
        if self.device != "cpu":
            torch.accelerator.synchronize(self.device)


def _products(watch: _Watch, side: int, dtype: torch.dtype) -> list[int]:
    a, b = (torch.randn(side, side, device=watch.device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return watch.times(lambda: torch.mm(a, b, out=out), PRODUCTS if dtype is torch.float32 else COPIES)


def _bandwidth(watch: _Watch, nbytes: int) -> float:
    """Bytes per second that are read and written: of a copy, or of a sum if that moves more."""
    source = torch.ones(nbytes // 4, device=watch.device)
    target = torch.empty_like(source)
    copied = 2 * nbytes / min(watch.times(lambda: target.copy_(source), COPIES))
    read = nbytes / min(watch.times(source.sum, COPIES))
    return 1e9 * max(copied, read)


def _links(watch: _Watch, size: Sizes) -> dict[str, float]:
    """Bytes per second between the device, its host, and a second device, in one direction each."""
    if watch.device == "cpu":
        return {}
    on_device = torch.ones(size.nbytes // 16, device=watch.device)
    on_host = torch.ones(size.nbytes // 16, device="cpu").pin_memory()
    nbytes = on_host.nbytes
    calls: dict[str, Callable[[], Any]] = {
        "host to device": lambda: on_device.copy_(on_host, non_blocking=True),
        "device to host": lambda: on_host.copy_(on_device, non_blocking=True),
    }
    if torch.accelerator.device_count() > 1:
        other = torch.empty_like(on_device, device=f"{watch.device.partition(':')[0]}:1")
        calls["device to device"] = lambda: other.copy_(on_device, non_blocking=True)
    return {name: 1e9 * nbytes / min(watch.times(call, COPIES)) for name, call in calls.items()}
