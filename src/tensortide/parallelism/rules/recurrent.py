"""Rules of recurrent layers in one op. Sequences of a batch are independent; time and gates are needed whole."""

from __future__ import annotations

from tensortide.parallelism.rules.table import rule
from tensortide.parallelism.sites import Ref, Site


@rule("mkldnn_rnn_layer", "mkldnn_rnn_layer_backward")
def one_layer(site: Site) -> None:
    """Data are (time, batch, features), states (batch, features); the workspace grows with the batch."""
    data = site.arguments["input"]
    weights = [ref for name, ref in site.arguments.items() if name.startswith("weight") and isinstance(ref, Ref)]
    _recurrent(site, data, 1, weights)


@rule("_cudnn_rnn", "_cudnn_rnn_backward", "miopen_rnn", "miopen_rnn_backward")
def layers(site: Site) -> None:
    """Data are (time, batch, features) or (batch, time, features), states (layers, batch, features)."""
    weights = [ref for ref in site.arguments["weight"] if isinstance(ref, Ref)]
    if site.has("weight_buf"):
        weights.append(site.arguments["weight_buf"])
    _recurrent(site, site.arguments["input"], 0 if site.arguments["batch_first"] else 1, weights)


def _recurrent(site: Site, data: Ref, batch: int, weights: list[Ref]) -> None:
    """Tie the batch, dimension ``batch`` of the data, in all tensors but ``weights`` and their gradients."""
    size, shapes = site.size(data, batch), {site.tensor(ref).shape for ref in weights}
    for ref in (*site.inputs, *site.outputs):
        rank = site.rank(ref)
        parameter = ref in weights or (ref in site.outputs and site.tensor(ref).shape in shapes and rank <= 2)
        of_batch = {3: batch if _sequence(site, data, ref, batch) else 1, 2: 0}.get(rank)
        if not parameter and of_batch is not None and site.size(ref, of_batch) == size:
            site.tie(data, batch, ref, of_batch)
        elif not parameter and rank == 1:  # the workspace: any order in memory, of a size that the batch divides
            parts = site.axes.split([site.dims[ref][0]], size)
            if parts is not None:
                site.axes.tie(parts[1], [site.dims[data][batch]])
            continue
        for dim in range(rank):
            if parameter or dim != of_batch:
                site.cut(ref, dim)


def _sequence(site: Site, data: Ref, ref: Ref, batch: int) -> bool:
    """True for a tensor with the time of the data; of equal sizes the first dimension decides."""
    return site.size(ref, 1 - batch) == site.size(data, 1 - batch)
