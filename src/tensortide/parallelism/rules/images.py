"""Rules of ops that move elements between channels and space, sample a grid, or look up bags of rows."""

from __future__ import annotations

from collections.abc import Sequence

from tensortide.parallelism.axes import Axis
from tensortide.parallelism.layout import cut_all
from tensortide.parallelism.rules.table import lettered, rule
from tensortide.parallelism.sites import Ref, Site


@rule("_trilinear")
def trilinear(site: Site) -> None:
    """Three factors, aligned after dimensions of size 1 have been inserted at ``expand``; summed over ``sumdim``."""
    factors = [site.arguments[f"i{number}"] for number in (1, 2, 3)]
    inserted = [site.arguments[f"expand{number}"] for number in (1, 2, 3)]
    letters = "abcdefghijklmnopqrstuvwxyz"[: site.rank(factors[0]) + len(inserted[0])]
    operands = {
        factor: "".join(letter for dim, letter in enumerate(letters) if dim not in where)
        for factor, where in zip(factors, inserted, strict=True)
    }
    summed = site.arguments["sumdim"]
    kept = "".join(letter for dim, letter in enumerate(letters) if dim not in summed)
    lettered(site, operands, {site.outputs[0]: kept})


@rule("pixel_shuffle", "pixel_unshuffle")
def shuffled(site: Site) -> None:
    """Channels are (channels, rows, columns) of a finer image, whose height and width are (old, finer)."""
    up = site.name == "pixel_shuffle"
    factor = site.arguments["upscale_factor" if up else "downscale_factor"]
    coarse, fine = (site.inputs[0], site.outputs[0]) if up else (site.outputs[0], site.inputs[0])
    for dim in range(site.rank(coarse) - 3):
        site.tie(coarse, dim, fine, dim)
    _tie_outer(site, [site.dims[coarse][-3]], [site.dims[fine][-3]], factor * factor)
    for dim in (-1, -2):
        _tie_outer(site, [site.dims[fine][dim]], [site.dims[coarse][dim]], factor)


def _tie_outer(site: Site, longer: Sequence[Axis], shorter: Sequence[Axis], inner: int) -> None:
    """Tie ``shorter`` to the outer part of ``longer``, whose ``inner`` elements are needed together."""
    parts = site.axes.split(longer, inner)
    if parts is None:
        cut_all(site.axes, [*longer, *shorter], f"{site.where} does not work on equal shares of it")
        return
    site.axes.tie(parts[0], shorter)
    cut_all(site.axes, parts[1], f"{site.where} needs it in one place")


@rule("channel_shuffle", "native_channel_shuffle")
def regrouped(site: Site) -> None:
    """Channels (groups, channels) become (channels, groups); the number of groups is an argument."""
    data, out, groups = site.inputs[0], site.outputs[0], site.arguments["groups"]
    site.tie_all(data, out, [1])
    before = site.axes.split([site.dims[data][1]], site.size(data, 1) // groups)
    after = site.axes.split([site.dims[out][1]], groups)
    if before is None or after is None:
        site.cut(data, 1)
        site.cut(out, 1)
        return
    site.axes.tie(before[1], after[0])
    site.axes.tie(before[0], after[1])
    cut_all(site.axes, before[0], f"{site.where} needs all groups")


@rule("grid_sampler_2d", "grid_sampler_3d", "grid_sampler_2d_backward", "grid_sampler_3d_backward")
def sampled(site: Site) -> None:
    """Images are independent, and channels but in a gradient of the grid; space is cut."""
    data, grid = site.arguments["input"], site.arguments["grid"]
    backward = site.name.endswith("backward")
    images = [data, site.arguments["grad_output"], site.outs(0)] if backward else [data, site.outs(0)]
    for ref in (*site.inputs, *site.outputs):
        site.tie(data, 0, ref, 0)
        site.cut(ref, *(dim for dim in range(1, site.rank(ref)) if ref not in images or dim > 1))
    for ref in images[1:]:
        if ref is not None:
            site.tie(data, 1, ref, 1)
    of_grid = site.outs(1) if backward else None
    if of_grid is not None:
        site.tie(grid, 0, of_grid, 0)
        site.partial(of_grid, data, [1])


@rule("affine_grid_generator")
def affine_grid(site: Site) -> None:
    """A grid for each matrix."""
    theta, out = site.inputs[0], site.outputs[0]
    site.tie(theta, 0, out, 0)
    for ref in (theta, out):
        site.cut(ref, *range(1, site.rank(ref)))


@rule("_embedding_bag", "_embedding_bag_forward_only")
def bags(site: Site) -> None:
    """Bags of as many rows each are independent, and columns of the table; rows of the table are needed whole."""
    weight, indices, offsets = (site.arguments[name] for name in ("weight", "indices", "offsets"))
    out = site.outputs[0]
    site.tie(weight, 1, out, 1)
    site.tie(offsets, 0, out, 0)
    site.whole(weight, 0)
    _tie_bags(site, indices, offsets, [site.outs(1), site.outs(2), site.outs(3)])
    if site.has("per_sample_weights"):
        site.tie(indices, 0, site.arguments["per_sample_weights"], 0)


@rule("_embedding_bag_dense_backward", "_embedding_bag_backward")
def bags_backward(site: Site) -> None:
    """The gradient of a table: a sum over all bags."""
    grad, indices, out = site.arguments["grad"], site.arguments["indices"], site.outputs[0]
    site.tie(grad, 1, out, 1)
    site.whole(out, 0)
    others = [site.arguments[name] for name in ("offset2bag", "bag_size", "maximum_indices")]
    _tie_bags(site, indices, grad, others)
    if site.has("offsets"):
        site.tie(grad, 0, site.arguments["offsets"], 0)
    site.partial(out, grad, [0])


def _tie_bags(site: Site, indices: Ref, per_bag: Ref, others: Sequence[Ref | None]) -> None:
    """Tie rows that are looked up to (bags, rows of a bag), and what an op has of each row or bag to these."""
    bags = site.size(per_bag, 0)
    rows = site.size(indices, 0)
    parts = site.axes.split([site.dims[indices][0]], rows // bags) if bags and rows % bags == 0 else None
    if parts is None:
        site.cut(indices, 0)
        site.cut(per_bag, 0)
    else:
        site.axes.tie(parts[0], [site.dims[per_bag][0]])
        cut_all(site.axes, parts[1], f"{site.where} needs all rows of a bag")
    for ref in others:
        if ref is not None and site.rank(ref) == 1 and site.size(ref, 0) in (rows, bags):
            site.tie(indices if site.size(ref, 0) == rows else per_bag, 0, ref, 0)
        elif ref is not None and site.rank(ref) == 2 and site.size(ref, 0) == bags:
            site.tie(per_bag, 0, ref, 0)


@rule("_ctc_loss", "_ctc_loss_backward")
def ctc(site: Site) -> None:
    """Sequences, dimension 1 of the data, are independent where their lengths are tensors."""
    data = site.arguments["log_probs"]
    lengths = site.arguments["input_lengths"]
    if not isinstance(lengths, Ref) or site.rank(site.arguments["targets"]) != 2:
        site.cut_everything("has the length of every sequence among its arguments")
        return
    for ref in (*site.inputs, *site.outputs):
        batch = 1 if site.tensor(ref).shape == site.tensor(data).shape else 0
        site.tie(data, 1, ref, batch)
        site.cut(ref, *(dim for dim in range(site.rank(ref)) if dim != batch))
