"""Rules of ops that choose and group the rows of a mixture of experts."""

from __future__ import annotations

from tensortide.parallelism.rules.table import lettered, rule
from tensortide.parallelism.sites import Site


@rule("topk", "sort")
def ranked(site: Site) -> None:
    """All other dimensions are independent. Of a share of the ranked one, the same share is taken."""
    data = site.inputs[0]
    if not site.rank(data):
        return
    dim = site.arguments.get("dim", -1) % site.rank(data)
    for out in site.outputs:
        site.tie_all(data, out, [dim])
        if site.size(out, dim) == site.size(data, dim):
            site.tie(data, dim, out, dim)
        else:
            site.axes.follow(site.dims[out][dim], site.dims[data][dim])
    for other, out in zip(site.outputs, site.outputs[1:], strict=False):
        site.tie(other, dim, out, dim)
    site.whole(data, dim)


@rule("histc", "bincount", "aminmax")
def histogram(site: Site) -> None:
    """Counts of all elements, or the least and the greatest of them."""
    for ref in (site.inputs[0], site.outputs[0]):
        site.whole(ref, *range(site.rank(ref)))


@rule("_grouped_mm")
def grouped(site: Site) -> None:
    """Rows in groups times a matrix for each; or with both in rows, a product for each group."""
    left, right, out = site.arguments["self"], site.arguments["mat2"], site.outputs[0]
    forms = {(2, 3): ("Mk", "Gkn", "Mn"), (2, 2): ("aM", "Mb", "Gab"), (3, 2): ("Gmk", "kN", "mN")}
    letters = forms.get((site.rank(left), site.rank(right)), ("gmk", "gkn", "gmn"))
    offsets = {site.arguments["offs"]: "G"} if site.has("offs") else {}
    lettered(site, {left: letters[0], right: letters[1], **offsets}, {out: letters[2]})
