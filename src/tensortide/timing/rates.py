"""Rates at which a device computes in a dtype, and the share of its peaks that real ops reach."""

from __future__ import annotations

from typing import NamedTuple

from tensortide.graph.model import Tensor
from tensortide.timing.catalogue import Device

__all__ = ["Efficiency", "compute_dtype", "efficiency", "matrix_tflops", "vector_tflops"]


class Efficiency(NamedTuple):
    """The three constants between a datasheet and an op: shares of peak rate and bandwidth, and the least time."""

    compute: float
    memory: float
    launch_ns: float
    origin: str


_FITTED = {
    "Ampere sm80": Efficiency(0.73, 0.66, 5000.0, "as bf16 matrix products on A100"),
    "Hopper": Efficiency(0.83, 0.81, 3300.0, "as bf16 matrix products on H100"),
    "Ada": Efficiency(0.59, 0.84, 2400.0, "as bf16 matrix products on L40S"),
}
"""By architecture: fitted on public sweeps of bf16 matrix products, and taken for every op."""

_GENERIC = Efficiency(0.71, 0.77, 3400.0, "the mean of A100, H100 and L40S, not of this device")
"""Geometric means of the fitted ones, for what has none."""

_CPU = Efficiency(1.0, 1.0, 1500.0, "rates of a CPU being achieved ones; uncalibrated: expect a factor of 2")


def efficiency(device: Device) -> Efficiency:
    """The constants for ``device``: of its architecture if they were fitted, else generic ones."""
    if device.kind == "cpu":
        return _CPU
    return next((found for arch, found in _FITTED.items() if device.arch.startswith(arch)), _GENERIC)


_NARROW = {
    "float16": "fp16_tflops",
    "bfloat16": "bf16_tflops",
    "int8": "int8_tops",
    "uint8": "int8_tops",
    "qint8": "int8_tops",
    "quint8": "int8_tops",
    "float4_e2m1fn_x2": "fp4_tflops",
}
_WIDE = frozenset({"float64", "complex128"})


def matrix_tflops(device: Device, dtype: str, *, tf32: bool = False) -> float | None:
    """Dense peak of multiply-accumulates of ``dtype`` operands, in 1e12 FLOP per second; None if unknown.

    A float type that the device has no units for, or slower ones than for fp32, is computed in fp32: of bf16 on V100
    and fp16 on P4 that is what libraries do.
    """
    if dtype in _WIDE:
        return device.fp64_tflops
    if dtype in ("float32", "complex64"):
        return device.tf32_tflops if tf32 and device.tf32_tflops is not None else device.fp32_tflops
    if dtype.startswith("float8"):
        return device.fp8_tflops
    known = getattr(device, _NARROW[dtype]) if dtype in _NARROW else None
    if dtype in ("float16", "bfloat16", "complex32"):
        return max((rate for rate in (known, device.fp32_tflops) if rate is not None), default=None)
    return known


def vector_tflops(device: Device, dtype: str) -> float | None:
    """Peak of everything that is no matrix product, in 1e12 per second; None if unknown. Narrow types run as fp32."""
    return device.fp64_tflops if dtype in _WIDE else device.fp32_tflops


def compute_dtype(tensors: tuple[Tensor, ...]) -> str:
    """The dtype an op computes in: that of its largest float operand (scales and biases are small).

    If it has none, of its largest operand.
    """
    floats = [t for t in tensors if t.dtype.startswith(_FLOATS)]
    return max(floats or tensors, key=lambda tensor: tensor.numel).dtype if tensors else "float32"


_FLOATS = ("float", "bfloat", "complex")
