"""The worked example of the liveness rules as a trace: five kernels of 10 to 50 us, W global (8), A (4), B (2), a
workspace S (1) and G (3)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

SIZES = {"W": 8, "A": 4, "B": 2, "S": 1, "G": 3}
NAMES = tuple(SIZES)
KERNELS: tuple[tuple[str, str], ...] = (("W", "A"), ("A", "BS"), ("B", "B"), ("AB", "G"), ("GW", "W"))


def tensor(name: str) -> str:
    index, size = NAMES.index(name), SIZES[name]
    low = 0 if name == "W" else sum(SIZES[other] for other in NAMES[1:index])
    weight = int(name == "W")
    return f"tensor{index} Is weight (global)?: {weight}, Size in byte: {size}, Range:{low}--{low + size}"


def kernels_config(kernels: Sequence[tuple[str, str]] = KERNELS) -> str:
    lines: list[str] = []
    for index, (inputs, outputs) in enumerate(kernels):
        lines += [
            f"Kernel ID: {index}, Name: Some_{'Forward' if index < 3 else 'Backward'}",
            f"Parent OP ID:{index % 3}; Name:Op{index % 3}",
            f"Execution Time: {(index + 1) * 12_000}",
            "Input Tensors:",
            *map(tensor, inputs),
            "Output Tensors:",
            *map(tensor, outputs),
            "_" * 68,
        ]
    return "".join(f"{line}\n" for line in lines)


def tensors_config() -> str:
    return "".join(f"{tensor(name)}\n" for name in NAMES)


def write_trace(folder: Path, kernels: Sequence[tuple[str, str]] = KERNELS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernels.config").write_text(kernels_config(kernels))
    (folder / "tensors.config").write_text(tensors_config())
    return folder


INTERVALS = f"""\
{tensor("W")}
Global!
{"_" * 60}
{tensor("W")}
Hidding Intervals:
interval 0: 1--------4
Estimated Time:90
{"_" * 63}
{tensor("A")}
Liveness: Birth: 0, Death: 4.
{"_" * 60}
{tensor("A")}
Hidding Intervals:
interval 0: 2--------3
Estimated Time:3e+01
{"_" * 63}
{tensor("B")}
Liveness: Birth: 1, Death: 4.
{"_" * 60}
{tensor("B")}
Hidding Intervals:
{"_" * 63}
"""
"""The first three tensors of an ``interval.config``."""
