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
    sequences = {data, site.outs(0), *(site.arguments.get(name) for name in ("output", "grad_output"))}
    for ref in (*site.inputs, *site.outputs):
        rank = site.rank(ref)
        if ref in weights or (ref in site.outputs and rank <= 2 and site.tensor(ref).shape in shapes):
            cut = list(range(rank))
        elif rank == 1:  # the workspace: any order in memory, of a size that the batch divides
            parts = site.axes.split([site.dims[ref][0]], size)
            if parts is not None:
                site.axes.tie(parts[1], [site.dims[data][batch]])
            continue
        else:
            of_batch = batch if ref in sequences else rank - 2  # a state: (layers, batch, features)
            site.tie(data, batch, ref, of_batch)
            cut = [dim for dim in range(rank) if dim != of_batch]
        site.cut(ref, *cut)
