"""Copies of operands that kernels need dense, against what PyTorch's CPU allocator hands out in the same call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tensortide.timelines import timeline
from tests.memory.test_workspace import needs_torch, real_peak

if TYPE_CHECKING:
    import torch


def laid(shape: tuple[int, ...], layout: str) -> torch.Tensor:
    """Ones of a shape in a layout."""
    import torch

    if layout == "repeated":
        return torch.ones(1).expand(shape)
    if layout == "gaps":
        return torch.ones(*shape[:-1], 2 * shape[-1])[..., ::2]
    if layout == "turned":
        return torch.ones(*shape[:-2], shape[-1], shape[-2]).transpose(-1, -2)
    return torch.ones(shape).to(memory_format=torch.channels_last if layout == "last" else torch.contiguous_format)


WIDE, IMAGE, HALVED, DOUBLED = (256, 256), (4, 16, 32, 32), (4, 16, 16, 16), (4, 16, 64, 64)
VOLUMES, HALVES = (2, 8, 16, 16, 16), (2, 8, 8, 8, 8)
KERNELS: dict[str, tuple[tuple[int, ...], Callable[..., Any]]] = {
    "mm": (WIDE, lambda ops, g: ops.mm(g, g.new_ones(WIDE))),
    "right": (WIDE, lambda ops, g: ops.mm(g.new_ones(WIDE), g)),
    "both": (WIDE, lambda ops, g: ops.mm(g, g)),
    "addmm": (WIDE, lambda ops, g: ops.addmm(g.new_ones(256), g, g.new_ones(WIDE))),
    "bmm": ((4, *WIDE), lambda ops, g: ops.bmm(g, g.new_ones(4, *WIDE))),
    "baddbmm": ((4, *WIDE), lambda ops, g: ops.baddbmm(g.new_ones(4, *WIDE), g.new_ones(4, *WIDE), g)),
    "softmax": (WIDE, lambda ops, g: ops._softmax(g, -1, False)),
    "log softmax": (WIDE, lambda ops, g: ops._log_softmax(g, 0, False)),
    "log of a sum": (WIDE, lambda ops, g: ops.logsumexp(g, [0])),
    "layer norm": (WIDE, lambda ops, g: ops.native_layer_norm(g, [256], None, None, 1e-5)),
    "gelu": (WIDE, lambda ops, g: ops.gelu_backward(g, g.new_ones(WIDE))),
    "gelu of a turned one": (WIDE, lambda ops, g: ops.gelu_backward(g, g.new_ones(WIDE).t())),
    "gelu of tanh": (WIDE, lambda ops, g: ops.gelu_backward(g, g.new_ones(WIDE), approximate="tanh")),
    "gelu of doubles": (WIDE, lambda ops, g: ops.gelu_backward(g.double().expand(WIDE), g.double())),
    "batch norm": (
        IMAGE,
        lambda ops, g: ops.native_batch_norm_backward(
            g, g.new_ones(IMAGE), *([g.new_ones(16)] * 5), True, 1e-5, [True, True, True]
        ),
    ),
    "mean pool": (HALVED, lambda ops, g: ops.avg_pool2d_backward(g, g.new_ones(IMAGE), 2, 2, 0, False, True, None)),
    "adaptive pool": (HALVED, lambda ops, g: ops._adaptive_avg_pool2d_backward(g, g.new_ones(IMAGE))),
    "mean pool of volumes": (
        HALVES,
        lambda ops, g: ops.avg_pool3d_backward(g, g.new_ones(VOLUMES), 2, 2, 0, False, True, None),
    ),
    "adaptive pool of volumes": (HALVES, lambda ops, g: ops._adaptive_avg_pool3d_backward(g, g.new_ones(VOLUMES))),
    "bilinear": (DOUBLED, lambda ops, g: ops.upsample_bilinear2d_backward(g, [64, 64], IMAGE, False)),
    "cubic": (DOUBLED, lambda ops, g: ops.upsample_bicubic2d_backward(g, [64, 64], IMAGE, False)),
    "unshuffled": (IMAGE, lambda ops, g: ops.pixel_unshuffle(g, 2)),
    "columns": ((4, 144, 900), lambda ops, g: ops.col2im(g, [32, 32], [3, 3], [1, 1], [0, 0], [1, 1])),
}


def over(kind: str, axes: int, size: int, *given: Any) -> tuple[tuple[int, ...], Callable[..., Any]]:
    """The gradient of 2 x 8 images of ``axes`` axes of 16, resized or padded to ``size``."""
    sizes, image = [size] * axes, [2, 8] + [16] * axes
    if kind.endswith("pad"):
        return (2, 8, *sizes), lambda ops, g: getattr(ops, f"{kind}{axes}d_backward")(g, g.new_ones(image), *given)
    return (2, 8, *sizes), lambda ops, g: getattr(ops, f"{kind}{axes}d_backward")(g, sizes, image, *given)


for dims in (1, 2, 3):
    for padding in ("reflection_pad", "replication_pad"):
        KERNELS[f"{padding} {dims}"] = over(padding, dims, 18, [1] * (2 * dims))
    for resizing in ("upsample_nearest", "_upsample_nearest_exact"):
        KERNELS[f"{resizing} {dims}"] = over(resizing, dims, 32)
KERNELS["linear"] = over("upsample_linear", 1, 32, False)
KERNELS["trilinear"] = over("upsample_trilinear", 3, 32, False)


@needs_torch
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_copy_what_is_neither_dense_nor_as_they_take_it(name: str) -> None:
    import torch

    from tensortide.recorder import capture

    shape, kernel = KERNELS[name]
    kept: list[Any] = []  # results, so that they are not released in the record
    for layout in ("dense", "repeated", "gaps", "turned", "last")[: 5 if len(shape) == 4 else 4]:
        given = laid(shape, layout)
        peak, _ = real_peak(lambda given=given: kept.append(kernel(torch.ops.aten, given)))  # type: ignore[misc]
        line = timeline(capture(lambda given=given: lambda: kernel(torch.ops.aten, given)))
        assert line.peak_bytes - line.persistent_bytes == pytest.approx(peak, abs=16 << 10), layout
