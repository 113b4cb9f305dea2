"""Predicted times of collectives, against measured ones: numbers of ranks, devices and networks not seen in the fit.

    python benchmarks/predict_collectives.py [--write] [--smallest]

*Ranks*: NCCL within a node, in half precision, by the newest library of each system. Four constants of each device and
kind are fitted to two and eight ranks, and predict four. Baselines: the bound of the datasheet's link (1 us a hop, ring
or tree), and a sweep of two and eight ranks, interpolated. Intervals come from the other devices. *Devices*: all
collectives of a device by the constants of the other devices with its fabric. *Libraries*: the constants that ship,
which are fitted to the first of these rows, on all of them. *Nodes*: all-reduces over nodes of A100s, by the rate that
send and receive between two of these nodes reach; how many NICs a node has is not known.
"""

from __future__ import annotations

from collections.abc import Sequence

import harness
import numpy as np
from numpy.typing import NDArray

from scripts.training.collectives import Collectives, fit_collectives, held_out, pooled, without_ranks
from tensortide.timing.collectives import COLLECTIVES, Nodes, nodes_of, predict_collective, sweep
from tensortide.timing.collectives.bound import bound
from tensortide.timing.collectives.hierarchy import NIC_SHARE
from tensortide.timing.collectives.nodes import LINK_LATENCY_NS
from tensortide.timing.intervals import Pool, coverage, pool
from tests.timing.tables import between_nodes, nccl, pairs_of_nodes

Floats = NDArray[np.float64]

TESTED = ("A100-SXM-80GB", "H100-SXM-80GB", "H200-SXM-141GB", "B200-SXM-180GB")
PUBLISHED = (
    "Published: a port of the library's own tuner tables 26 %, four constants 9.2 % (both by this protocol); "
    "ASTRA-sim on H100 17 % (geometric mean, by its authors)."
)
ERRORS = ("bound", "sweep", "ours", "worst", "held", "width")


def measure(run: harness.Run) -> None:
    measured = nccl()
    ranks(run, [each for each in measured if each.device in TESTED])
    devices(run, measured)
    libraries(run)
    nodes(run)


def ranks(run: harness.Run, measured: Sequence[Collectives]) -> None:
    table = run.table(
        {
            "collective": "{collective}",
            "sizes": "{count}",
            "bound": "{bound:.1%}",
            "interpolated sweep": "{sweep:.1%}",
            "ours, mean": "{ours:.1%}",
            "worst": "{worst:.0%}",
            "in the interval": "{held:.1%}",
            "log width": "{width:.2f}",
        },
        key=("collective",),
        title="NCCL among four ranks, by constants of two and eight (mean absolute error)",
    )
    for each in measured[: 1 if run.smallest else None]:
        others = [other for other in measured if other.device != each.device]
        known = pool(*held_out(others, lambda some: without_ranks(some, 4)))
        made = without_ranks(each, 4)
        assert made is not None
        constants, four = made
        found = four.predicted(constants)
        held = _held(found, four.ns, known)
        table.add(
            {
                "collective": f"{each.device}, {each.kind}",
                "count": len(four.ns),
                "bound": _error(_bounds(four), four.ns),
                "sweep": _error(_interpolated(each, four), four.ns),
                "ours": _error(found, four.ns),
                "worst": float(np.max(np.abs(found / four.ns - 1))),
                "held": held[0],
                "width": held[1],
            }
        )
    rows = list(table.rows)
    means = {name: sum(row[name] for row in rows) / len(rows) for name in ERRORS}
    table.add({"collective": "mean", "count": sum(row["count"] for row in rows)} | means)
    run.note(PUBLISHED)


def devices(run: harness.Run, measured: Sequence[Collectives]) -> None:
    table = run.table(
        {
            "unseen device": "{device}",
            "collectives": "{count}",
            "bound": "{bound:.1%}",
            "ours, mean": "{ours:.1%}",
            "in the interval": "{held:.1%}",
            "log width": "{width:.2f}",
        },
        key=("device",),
        title="NCCL on a device left out, by constants of the others with its fabric (mean absolute error)",
    )
    fitted = {(each.device, each.kind): fit_collectives(each) for each in measured}

    def without(device: str, some: Sequence[Collectives]) -> list[tuple[Floats, Collectives]]:
        """Predictions of ``device`` by constants of the other devices of ``some`` with its fabric."""
        found = []
        for each in (each for each in measured if each.device == device):
            like = [other for other in some if (other.kind, other.fabric) == (each.kind, each.fabric)]
            rows = [fitted[other.device, other.kind] for other in like if other.device != device]
            found.append((each.predicted(pooled(rows)), each))
        return found

    names = [name for name in dict.fromkeys(each.device for each in measured) if _fabric(name, measured) == "NVLink"]
    for name in names[: 1 if run.smallest else None]:
        others = [each for each in measured if each.device != name]
        seen = [pair for other in names if other != name for pair in without(other, others)]
        residuals = [np.log(each.ns / found) for found, each in seen]
        known = pool(np.concatenate(residuals), np.concatenate([found for found, _ in seen]))
        pairs = without(name, others)
        found, ns = np.concatenate([found for found, _ in pairs]), np.concatenate([each.ns for _, each in pairs])
        held = _held(found, ns, known)
        bounds = np.concatenate([_bounds(each) for _, each in pairs])
        table.add(
            {
                "device": name,
                "count": len(ns),
                "bound": _error(bounds, ns),
                "ours": _error(found, ns),
                "held": held[0],
                "width": held[1],
            }
        )
    rows = list(table.rows)
    means = {name: sum(row[name] for row in rows) / len(rows) for name in ("bound", "ours", "held", "width")}
    table.add({"device": "mean", "count": sum(row["count"] for row in rows)} | means)


def libraries(run: harness.Run) -> None:
    table = run.table(
        {
            "library": "{library}",
            "collectives": "{count:,}",
            "error, mean": "{error:.1%}",
            "in the interval": "{held:.1%}",
            "log width": "{width:.2f}",
        },
        key=("library",),
        title="NCCL of other versions and dtypes on nine devices, by the constants that ship",
    )
    for older, dtype in ((False, "half"), (True, "half"), (False, "int8"), (True, "int8")):
        found, ns = [], []
        for each in nccl(dtype, older=older)[: 1 if run.smallest else None]:
            where = nodes_of(each.device)
            for ranks, nbytes, time in zip(*(column.tolist() for column in each[-3:]), strict=True):
                found.append(predict_collective(each.kind, int(nbytes), int(ranks), where).estimate)
                ns.append(time)
        held = coverage([one.low_ns for one in found], [one.high_ns for one in found], ns)
        row = {"library": f"{'older' if older else 'newest'}, {dtype}", "count": len(ns)}
        error = _error(np.array([one.time_ns for one in found]), np.array(ns))
        table.add(row | {"error": error, "held": held.share, "width": held.log_width})


def nodes(run: harness.Run) -> None:
    table = run.table(
        {
            "all-reduce": "{shape}",
            "NICs of a node": "{nics}",
            "sizes": "{count}",
            "error, mean": "{error:.0%}",
            "ratio, median": "{ratio:.2f}",
            "in the interval": "{held:.0%}",
            "log width": "{width:.2f}",
        },
        key=("shape", "nics"),
        title="All-reduces over nodes of A100s",
    )
    pair = pairs_of_nodes()[TESTED[0]]
    attained = float(pair.nbytes[-1] / pair.ns[-1])
    for (count, per_node), each in sorted(between_nodes().items()):
        for nics in dict.fromkeys((1, per_node)):
            where = nodes_of(
                each.device,
                devices_per_node=per_node,
                nodes=count // per_node,
                nics=nics,
                nic_gbytes_per_s=attained / NIC_SHARE,
            )
            table.add(
                {"shape": f"{count // per_node} nodes of {per_node}", "nics": nics} | _node_row(each, count, where)
            )


def _node_row(each: Collectives, count: int, where: Nodes) -> harness.Row:
    found = [predict_collective("all_reduce", int(size), count, where) for size in each.nbytes]
    ns = np.array([one.ns for one in found])
    low, high = [one.estimate.low_ns for one in found], [one.estimate.high_ns for one in found]
    held = coverage(low, high, each.ns.tolist())
    return {
        "count": len(ns),
        "error": _error(ns, each.ns),
        "ratio": float(np.median(ns / each.ns)),
        "held": held.share,
        "width": held.log_width,
    }


def _bounds(each: Collectives) -> Floats:
    kind = COLLECTIVES[each.kind]
    pairs = zip(each.ranks.tolist(), each.nbytes.tolist(), strict=True)
    return np.array([bound(kind, int(n), size, each.link, LINK_LATENCY_NS).ns for n, size in pairs])


def _interpolated(each: Collectives, four: Collectives) -> Floats:
    columns = (each.ranks.astype(int).tolist(), each.nbytes.astype(int).tolist(), each.ns.tolist())
    table = sweep(row for row in zip(*columns, strict=True) if row[0] != 4)
    found = [table.ns(4, int(size)) for size in four.nbytes]
    assert None not in found
    return np.array(found, dtype=float)


def _held(found: Floats, ns: Floats, known: Pool) -> tuple[float, float]:
    halves = [known.of(float(each)) for each in found]
    low = [each * np.exp(-half.below) for each, half in zip(found, halves, strict=True)]
    high = [each * np.exp(half.above) for each, half in zip(found, halves, strict=True)]
    held = coverage(low, high, ns.tolist())
    return held.share, held.log_width


def _fabric(name: str, measured: Sequence[Collectives]) -> str:
    return next(each.fabric for each in measured if each.device == name)


def _error(predicted: Floats, measured: Floats) -> float:
    return float(np.mean(np.abs(predicted / measured - 1)))


if __name__ == "__main__":
    harness.main(__doc__, measure)
