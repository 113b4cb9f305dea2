"""Rules of ops that join, take, place and resample parts of tensors."""

from __future__ import annotations

from tensortide.parallelism.layout import cut_all
from tensortide.parallelism.rules.table import rule
from tensortide.parallelism.sites import Ref, Site, refs_in

_RESAMPLED = (
    *(f"{form}{rank}d" for form in ("upsample_nearest", "_upsample_nearest_exact") for rank in (1, 2, 3)),
    *(f"{how}_pad{rank}d" for how in ("reflection", "replication") for rank in (1, 2, 3)),
)
"""Copies that make an image of another size, each with one named ``_backward``."""


@rule("cat", "concatenate")
def cat(site: Site) -> None:
    """The joined dimension is made of equal parts, or of one that is not empty; else it is cut."""
    out = site.outputs[0]
    dim = site.arguments.get("dim", 0) % max(site.rank(out), 1)
    joined = refs_in(site.arguments["tensors"])
    parts = [ref for ref in joined if site.rank(ref) == site.rank(out) and site.size(ref, dim)]
    sizes = {site.size(ref, dim) for ref in parts}
    inner = site.axes.split([site.dims[out][dim]], min(sizes)) if len(sizes) == 1 else None
    for ref in parts:
        site.tie_all(out, ref, [dim])
        if inner is not None:
            site.axes.tie(inner[1], [site.dims[ref][dim]])
            cut_all(site.axes, inner[0], f"{site.where} joins along it")
        else:
            site.cut(ref, dim)
    if inner is None:
        site.cut(out, dim)


@rule("stack")
def stack(site: Site) -> None:
    """All dimensions but the new one are those of the parts."""
    out = site.outputs[0]
    new = site.arguments.get("dim", 0) % site.rank(out)
    others = [dim for dim in range(site.rank(out)) if dim != new]
    for ref in refs_in(site.arguments["tensors"]):
        for dim, target in enumerate(others):
            site.tie(ref, dim, out, target)
    site.cut(out, new)


@rule("repeat")
def repeat(site: Site) -> None:
    """A dimension of the output is (repetitions, dimension of the input); a repetition is like any other."""
    data, out = site.inputs[0], site.outputs[0]
    for back in range(1, site.rank(data) + 1):
        parts = site.axes.split([site.dims[out][-back]], site.size(data, -back))
        if parts is None:
            site.cut(out, -back)
            site.cut(data, -back)
        else:
            site.axes.tie(parts[1], [site.dims[data][-back]])


@rule("constant_pad_nd", "slice_scatter", "select_scatter", "diagonal_backward", "tril", "triu")
def padded(site: Site) -> None:
    """Dimensions whose size stays are tied; those that change, and the last two of a triangle, are cut."""
    data, out = site.inputs[0], site.outputs[0]
    if site.rank(data) == site.rank(out):
        site.tie_all(data, out)
    else:
        site.cut_everything("takes another number of dimensions")
    if site.name in ("tril", "triu"):
        site.whole(data, -1, -2)


@rule("unfold_backward")
def unfold_backward(site: Site) -> None:
    """Patches along a dimension are placed in it: where they do not overlap, it is (patches, patch)."""
    grad, out, size = site.inputs[0], site.outputs[0], site.arguments["size"]
    dim = site.arguments["dim"] % site.rank(out)
    for other in range(site.rank(out)):
        if other != dim:
            site.tie(grad, other, out, other)
    covered = site.arguments["step"] == size and site.size(grad, dim) * size == site.size(out, dim)
    parts = site.axes.split([site.dims[out][dim]], size) if covered else None
    if parts is None:
        site.cut(out, dim)
        site.cut(grad, dim, -1)
    else:
        site.axes.tie(parts[0], [site.dims[grad][dim]])
        site.axes.tie(parts[1], [site.dims[grad][-1]])


@rule("slice_backward")
def slice_backward(site: Site) -> None:
    """Placed in zeros: an aligned share of a dimension is its inner part, any other cuts it."""
    grad, out = site.inputs[0], site.outputs[0]
    dim = site.arguments["dim"] % site.rank(out)
    site.tie_all(grad, out, [dim])
    size, start = site.size(grad, dim), site.arguments.get("start", 0)
    aligned = site.arguments.get("step", 1) == 1 and size and site.size(out, dim) % size == 0 and start % size == 0
    parts = site.axes.split([site.dims[out][dim]], size) if aligned else None
    if parts is None:
        site.cut(grad, dim)
        site.cut(out, dim)
    else:
        site.axes.tie(parts[1], [site.dims[grad][dim]])
        cut_all(site.axes, parts[0], f"{site.where} fills one share of it")


@rule("select_backward")
def select_backward(site: Site) -> None:
    """Placed in zeros at one index of a dimension."""
    grad, out = site.inputs[0], site.outputs[0]
    chosen = site.arguments["dim"] % site.rank(out)
    for dim, target in enumerate(d for d in range(site.rank(out)) if d != chosen):
        site.tie(grad, dim, out, target)
    site.cut(out, chosen)


@rule("gather", "scatter", "scatter_add", "scatter_reduce", "index_select", "index_add", "index_copy")
def along_index(site: Site) -> None:
    """Elements along one dimension are taken or placed; the other dimensions are independent."""
    data, out = site.inputs[0], site.outputs[0] if site.outputs else site.inputs[0]
    dim = site.arguments.get("dim", 0) % max(site.rank(data), 1)
    placed = site.arguments.get("source") if site.name in ("index_add", "index_copy") else None
    rows = placed if isinstance(placed, Ref) else out
    for ref in (*site.inputs[1:], out):
        if site.rank(ref) == site.rank(data):
            site.tie_all(data, ref, [dim])
        elif site.rank(ref) == 1 and site.rank(rows) > dim and site.size(ref, 0) == site.size(rows, dim):
            site.tie(rows, dim, ref, 0)
    if site.outputs and site.name not in ("gather", "index_select"):
        site.tie_all(data, out)
    index = site.arguments.get("index")
    if site.name == "gather" and isinstance(index, Ref):
        site.tie(index, dim, out, dim)
    if site.rank(data):
        site.whole(data, dim)


@rule("index", "index_put", "_unsafe_index", "_index_put_impl", "_unsafe_index_put")
def indexed(site: Site) -> None:
    """Dimensions that are indexed by tensors are needed whole; the indices' own and the other dimensions are kept."""
    data = site.arguments["self"]
    indices = site.arguments["indices"]
    places = [dim for dim, ref in enumerate(indices) if isinstance(ref, Ref)]
    found = [indices[dim] for dim in places]
    site.whole(data, *places)
    if any("bool" in site.tensor(ref).dtype for ref in found):
        return selected(site, data, found, places)
    taken = site.arguments["values"] if "put" in site.name else site.outputs[0]
    rank = max(map(site.rank, found), default=0)
    together = places == list(range(places[0], places[0] + len(places)))
    first = places[0] if together else 0
    rest = [dim for dim in range(site.rank(data)) if dim not in places]
    targets = [*range(first), *range(first + rank, rank + len(rest))]
    if site.rank(taken) == rank + len(rest):
        for dim, target in zip(rest, targets, strict=True):
            site.tie(data, dim, taken, target)
        for ref in found:
            for back in range(1, site.rank(ref) + 1):
                if site.size(ref, -back) == site.size(taken, first + rank - back):
                    site.tie(ref, -back % site.rank(ref), taken, first + rank - back)
    if "put" in site.name and site.outputs:
        site.tie_all(data, site.outputs[0])
    return None


def selected(site: Site, data: Ref, found: list[Ref], places: list[int]) -> None:
    """Elements at which a mask over some dimensions is true: in each share of them, a share of those elements."""
    (mask, *others), first = found, places[0]
    many = site.rank(mask)
    taken = site.arguments["values"] if "put" in site.name else site.outputs[0]
    if others or site.rank(taken) not in (0, site.rank(data) - many + 1):
        return site.cut_everything("takes as many elements as values say")
    for dim in range(many):
        site.tie(data, first + dim, mask, dim)
        site.whole(data, first + dim)
    if site.rank(taken):
        rest = [dim for dim in range(site.rank(data)) if not first <= dim < first + many]
        for dim, target in zip(rest, [*range(first), *range(first + 1, site.rank(taken))], strict=True):
            site.tie(data, dim, taken, target)
        for dim in range(many):
            site.axes.follow(site.dims[taken][first], site.dims[data][first + dim])
    if "put" in site.name and site.outputs:
        site.tie_all(data, site.outputs[0])
    return None


@rule("nonzero")
def nonzero(site: Site) -> None:
    """Places of the elements that are not zero: in each share of them, a share of those places."""
    data, out = site.inputs[0], site.outputs[0]
    for dim in range(site.rank(data)):
        site.whole(data, dim)
        site.axes.follow(site.dims[out][0], site.dims[data][dim])
    site.cut(out, 1)


@rule("im2col", *_RESAMPLED, *(f"{name}_backward" for name in _RESAMPLED))
def spatial(site: Site) -> None:
    """Images, if there are several, and channels are independent; space, the last dimensions, is cut."""
    data = site.inputs[0]
    space = next((rank for rank in (1, 3) if f"{rank}d" in site.name), 2)
    independent = range(site.rank(data) - space)
    for ref in (*site.inputs, *site.outputs):
        for dim in range(site.rank(ref)):
            if dim not in independent:
                site.cut(ref, dim)
            elif ref != data:
                site.tie(data, dim, ref, dim)


@rule(
    *("_thnn_fused_lstm_cell", "_thnn_fused_lstm_cell_backward_impl"),
    *("_thnn_fused_gru_cell", "_thnn_fused_gru_cell_backward"),
)
def cell(site: Site) -> None:
    """Rows are independent; gates are cut."""
    data = site.inputs[0]
    for ref in (*site.inputs[1:], *site.outputs):
        if site.rank(ref) == 2 and site.size(ref, 0) == site.size(data, 0):
            site.tie(data, 0, ref, 0)
    for ref in (*site.inputs, *site.outputs):
        site.cut(ref, *range(1 if site.rank(ref) > 1 else 0, site.rank(ref)))
