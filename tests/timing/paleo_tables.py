"""Figures of the original Paleo beside ours: every table of the placement data as pairs (published, ours)."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from operator import sub
from pathlib import Path
from typing import Any

from tensortide.timing import Device, paleo
from tensortide.timing.paleo.scaling import Exchange, Mode

Pairs = Iterator[tuple[float, float]]

FILES = {"resnet50": "resnet50_fork", "mnist": "mnist_fork"}
"""Files of networks that are not called as in the tables."""
SENT: tuple[Exchange, ...] = ("OneToAll", "TreeAllReduce", "ButterflyAllReduce")
"""The collectives of the demo table, in its order."""
OTHER_DEVICES = {
    "Intel Xeon Gold 6132": Device(name="Xeon", fp32_tflops=1.8, memory_gbytes_per_s=76.8, boost_mhz=145600),
    "NVIDIA Tesla V100": Device(name="V100", fp32_tflops=14, memory_gbytes_per_s=900, boost_mhz=1312),
    "Intel Core i7 5930K": paleo.DEVICES["CPU_I7"],
    "NVIDIA Titan X": paleo.DEVICES["TITAN_X"],
    "NVIDIA K80": paleo.DEVICES["K80"],
}
"""The devices of Exprimo's device graphs, a placement simulator that times ops by Paleo's formulas."""


def table(folder: Path, name: str) -> Any:
    return json.loads(gzip.decompress((folder / f"{name}.json.gz").read_bytes()))


@cache
def net(folder: Path, name: str) -> paleo.Net:
    return paleo.read(folder / "inputs" / "paleo" / "nets" / f"{FILES.get(name, name)}.json")


def layer_pairs(folder: Path) -> Pairs:
    """Computation and memory of the three parts of every layer, in ms of 6 digits after the point."""
    published = table(folder, "paleo_layers_totals")["layers"]
    for name, rows in published.items():
        described = net(folder, name)
        for device in sorted({key for row in rows for key in row if key in paleo.DEVICES}):
            batch = rows[0]["inputs"][0]
            times = {t.name: t for t in paleo.step(described, device, batch=batch, platform="ideal").layers}
            for row in rows:
                ours = times[row["name"]]
                for key, part in (("fwd", ours.forward), ("bwd_data", ours.data), ("bwd_filter", ours.weights)):
                    if device in row:
                        yield from zip(row[device][key], part, strict=True)


def total_pairs(folder: Path, every: int = 1) -> Pairs:
    """Forward, backward and update of whole steps, or of one in so many, with and without overlap."""
    rows = table(folder, "paleo_layers_totals")["totals"][::every]
    for row in rows:
        share, described = paleo.PaleoPlatform("share", row["ppp"], 1.0), net(folder, row["net"])
        summed, slower = (
            paleo.step(described, row["device"], batch=row["batch"], platform=share, overlap=overlap)
            for overlap in (False, True)
        )
        yield row["fwd"], summed.forward
        yield row["bwd"], summed.backward
        yield row["update"], summed.update
        yield row["fwd_lb"], slower.forward
        yield row["bwd_lb"], slower.backward


def _row_pairs(published: list[list[float]], ours: paleo.Scaling) -> Pairs:
    for row, found in zip(published, ours.rows, strict=True):
        figures = (found.workers, found.batch, 1, found.forward, found.backward, found.update, found.compute)
        yield from zip(row, (*figures, *found.collectives.values()), strict=True)


def scaling_pairs(folder: Path, every: int = 1) -> Pairs:
    """Every figure of 432 settings, or of one in so many, on 1 to 128 workers, in ms of 6 digits after the point."""
    for key, published in itertools.islice(table(folder, "paleo_head_scaling")["rows"].items(), 0, None, every):
        yield from _row_pairs(published, _scaling(folder, key))


def case_pairs(folder: Path) -> Pairs:
    """Every figure of seven scaling studies."""
    for case in table(folder, "paleo_case_studies").values():
        ours = paleo.scaling(
            net(folder, case["net"]),
            case["device"],
            case["network"],
            workers=[int(row[0]) for row in case["rows"]],
            batch=case["batch"],
            mode=case["scaling"],
            platform=paleo.PaleoPlatform("fitted", *case["ppp"]),
        )
        yield from _row_pairs(case["rows"], ours)


def exchange_pairs(folder: Path, every: int = 1) -> Pairs:
    """What is no computation in the entries of the authors' table that asked cuDNN, or in one in so many: the
    differences between collectives, and with weak scaling, where every worker computes the same, those between numbers
    of workers."""
    for key, row in itertools.islice(_demo(folder, cudnn=True).items(), 0, None, every):
        rows = _scaling(folder, key).rows
        ours = [[found.collectives[name] for found in rows] for name in SENT]
        for (a, b), (x, y) in zip(pairwise(row["times"]), pairwise(ours), strict=True):
            yield from zip(map(sub, a, b), map(sub, x, y), strict=True)
        if ",weak," in key:
            for times, exchanges in zip(row["times"], ours, strict=True):
                yield from ((t - times[0], found - exchanges[0]) for t, found in zip(times, exchanges, strict=True))


def _demo(folder: Path, *, cudnn: bool) -> dict[str, Any]:
    found = table(folder, "paleo_demo_precompute_2016")
    return {key: row for key, row in found.items() if key.endswith(",true" if cudnn else ",false")}


def demo_pairs(folder: Path, framework: str = "", every: int = 1) -> Pairs:
    """Times of a step in the authors' table of 2016, without cuDNN; of one framework or of all, of each row or of one
    in so many."""
    for key, row in itertools.islice(_demo(folder, cudnn=False).items(), 0, None, every):
        if framework in ("", key.split(",")[3]):
            ours = _scaling(folder, key)
            for collective, times in zip(SENT, row["times"], strict=True):
                yield from zip(times, (found.total(collective) for found in ours.rows), strict=True)


def _scaling(folder: Path, key: str) -> paleo.Scaling:
    """Our figures beside a row of a table: the tables have the same settings, and differ in the last part of a key."""
    return _scaled(folder, *key.split(",")[:6])


@cache
def _scaled(folder: Path, name: str, device: str, network: str, framework: str, batch: str, mode: str) -> paleo.Scaling:
    how: Mode = "weak" if mode == "weak" else "strong"
    return paleo.scaling(net(folder, name), device, network, batch=int(batch), mode=how, platform=framework)


def off(published: float, ours: float) -> float:
    """How far ``ours`` is off, relative to ``published``; absolute below 1, where rounded digits say no more."""
    return abs(ours - published) / max(1.0, abs(published))
