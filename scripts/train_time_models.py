"""Train the time models that ship with the package, from the reference tables, and the pools of their intervals.

    python scripts/train_time_models.py

writes ``src/tensortide/timing/shipped``. Every run gives the same files. Tables, with sources and licences:
``sources.txt`` there.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from tensortide.timing.collectives.constants import Constants as CollectiveConstants
from tensortide.timing.collectives.constants import Shipped
from tensortide.timing.fit.samples import Samples
from tensortide.timing.intervals import Pool, pool
from tensortide.timing.models.constants import ANY, Constants
from tensortide.timing.models.learned import Learned
from tensortide.timing.models.vectors import FAMILIES
from tensortide.write import write_file

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from scripts.training.boosted import fit_learned, save_learned  # noqa: E402
from scripts.training.collectives import (  # noqa: E402
    fit_collectives,
    joined,
    swept,
    without_device,
    without_ranks,
    without_sizes,
)
from scripts.training.collectives import held_out as held_out_collectives  # noqa: E402
from scripts.training.collectives import pooled as pooled_collectives  # noqa: E402
from scripts.training.constants import fit_constants  # noqa: E402
from scripts.training.held_out import halves, held_out  # noqa: E402
from tests.timing.tables import (  # noqa: E402
    attention,
    convolutions,
    fp32_products,
    fp32_vectors,
    half_precision_products,
    nccl,
    send_recv,
)

SHIPPED = ROOT / "src/tensortide/timing/shipped"


def train(kind: str, measured: Sequence[Samples], *, weigh_time: bool = False) -> dict[str, Pool]:
    """Train and write one correction; return its pools by provenance."""

    def fit(samples: Sequence[Samples]) -> Learned:
        return fit_learned(kind, samples, weigh_time=weigh_time)

    save_learned(fit(measured), SHIPPED / f"{kind}.npz")
    pools = {"extrapolated": pool(*held_out(measured, fit)), "interpolated": pool(*halves(measured, fit))}
    print(kind, {name: found.all for name, found in pools.items()}, flush=True)
    return pools


REST = Constants(0.5, 0.6, 4000.0, note="of no family: between those of products and of pointwise ops")


def constants(tables: Mapping[str, Sequence[Samples]]) -> dict[str, dict[str, Constants]]:
    """Fit the constants of each family of ``tables``: pooled, and by architecture."""
    found: dict[str, dict[str, Constants]] = {ANY: {ANY: REST}}
    for family, measured in tables.items():
        pooled = _fitted(measured)
        found[ANY][family] = pooled
        for arch in dict.fromkeys(each.device.arch for each in measured):
            own = [each for each in measured if each.device.arch == arch]
            found.setdefault(arch, {})[family] = _fitted(own, pooled)
    return found


def _fitted(measured: Sequence[Samples], pooled: Constants | None = None) -> Constants:
    fitted = fit_constants(measured, pooled)
    assert fitted is not None
    return fitted


def held_out_constants(measured: Sequence[Samples], floor: float) -> dict[str, Pool]:
    """Pools of a family's constants: of other architectures, and of the own one (in sample: three constants)."""
    pools = {}
    for name, same in (("extrapolated", False), ("interpolated", True)):
        residuals, predicted = [], []
        for each in measured:
            others = [other for other in measured if (other.device.arch == each.device.arch) == same]
            if others:
                found = _fitted(others).ns(each.columns)
                residuals.append(np.log(each.ns / found))
                predicted.append(found)
        if residuals:
            pools[name] = pool(np.concatenate(residuals), np.concatenate(predicted), floor)
    return pools


def of_family(measured: Sequence[Samples], family: str) -> list[Samples]:
    """The samples of ``family`` alone."""
    marked = [(each, np.array([name == family for name in each.columns.families])) for each in measured]
    return [each.where(mark) for each, mark in marked if mark.any()]


def collectives() -> None:
    """Fit and write the constants of collectives, by device and pooled by fabric, and the pools of their residuals.

    Held out: the collectives of four ranks, and every second size (interpolated); all of a device (extrapolated);
    every second size of a sweep (swept).
    """
    measured = [*nccl(), *send_recv()]
    fitted = {(each.device, each.kind): fit_collectives(each) for each in measured}
    by_fabric: dict[tuple[str, str], list[CollectiveConstants]] = {}
    for each in measured:
        by_fabric.setdefault((each.fabric, each.kind), []).append(fitted[each.device, each.kind])
    rows = fitted | {key: pooled_collectives(some) for key, some in by_fabric.items()}
    found: dict[str, dict[str, CollectiveConstants]] = {}
    for (name, kind), row in rows.items():
        found.setdefault(name, {})[kind] = row
    pools: dict[str, Pool] = {}
    for fabric in dict.fromkeys(each.fabric for each in measured):
        some = [each for each in measured if each.fabric == fabric]
        ranks = held_out_collectives(some, lambda each: without_ranks(each, 4))
        sizes = held_out_collectives(some, without_sizes)
        pools |= {
            f"interpolated {fabric}": pool(*joined(ranks, sizes)),
            f"extrapolated {fabric}": pool(*held_out_collectives(some, without_device(fitted, some))),
            f"swept {fabric}": pool(*swept(some)),
        }
    print("collectives", {name: each.all for name, each in pools.items()}, flush=True)
    made = msgspec.json.encode(Shipped(found, pools))
    write_file(SHIPPED / "collectives.json", msgspec.json.format(made) + b"\n")


def main() -> None:
    """Train everything and write it."""
    SHIPPED.mkdir(exist_ok=True)
    collectives()
    halves_ = list(half_precision_products().values())
    fp32 = list(fp32_products("train", "test").values())
    vectors = list(fp32_vectors("train", "test").values())
    kernels = [each for by_device in convolutions().values() for each in by_device.values()]
    pools = {
        "matrix_16bit": train("matrix_16bit", halves_),
        "matrix_fp32": train("matrix_fp32", fp32, weigh_time=True),
        "vector": train("vector", vectors, weigh_time=True),
        "convolution": train("convolution", kernels, weigh_time=True),
    }
    tables: dict[str, list[Samples]] = {"mm": halves_, "attention": list(attention().values())}
    tables |= {family: of_family([each.of_device() for each in vectors], family) for family in FAMILIES}
    pools |= {family: held_out_constants(measured, 0.06) for family, measured in tables.items()}
    found = constants(tables)
    write_file(SHIPPED / "constants.json", msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    write_file(SHIPPED / "intervals.json", msgspec.json.format(msgspec.json.encode(pools)) + b"\n")
    print(found[ANY])


if __name__ == "__main__":
    main()
