"""Packed sequences on fake tensors, of known lengths.

The number of sequences of each time step decides the ops of recurrent layers. Their kernels read it from memory, which
fake tensors do not have: under ``readable_sizes`` they are given the known values instead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from tensortide.recorder.pretended import CPU
from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import (
    DispatchKey,
    DynamicOutputShapeException,
    FakeTensor,
    disable_current_modes,
)

_aten: Any = torch.ops.aten
_WHOLE = DispatchKey.CompositeImplicitAutograd


def known(tensor: Tensor) -> Tensor | None:
    """Return the values of ``tensor`` in real memory, None if they are unknown."""
    return tensor.constant if isinstance(tensor, FakeTensor) else tensor


def pack(padded: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """Return the elements of ``padded`` sequences, and the number of sequences of each time step.

    Where lengths are unknown and the user has given their sum, they are about equal.
    """
    given = known(lengths)
    batch, longest = padded.shape[:2] if batch_first else (padded.shape[1], padded.shape[0])
    mode: Any = getattr(lengths, "fake_mode", None)
    total = mode.values.size() if given is None else None
    if total is not None and not batch <= total <= batch * longest:
        raise RuntimeError(f"{batch} sequences of 1 to {longest} elements have no {total} elements together")
    with disable_current_modes():
        if total is not None:
            given = torch.tensor([total // batch + (place < total % batch) for place in range(batch)], device="cpu")
        shape = torch.empty(1, dtype=torch.bool, device="cpu").expand(padded.shape[:2])
        rows, sizes = _aten._pack_padded_sequence(shape, _checked(given), batch_first)
    elements = padded.new_empty((len(rows), *padded.shape[2:]))
    return elements, _written(elements, sizes)


def _checked(values: Tensor | None) -> Tensor:
    if values is None:
        raise DynamicOutputShapeException(_aten._pack_padded_sequence.default)
    return values


def _written(beside: Tensor, values: Tensor) -> Tensor:
    """Allocate a tensor that gets ``values``: a fake one if ``beside`` is."""
    mode = beside.fake_mode if isinstance(beside, FakeTensor) else None
    with contextlib.nullcontext() if mode is None else replaced(mode, "promised", values):
        made: Tensor = _aten.empty(values.shape, dtype=values.dtype, layout=values.layout, device=CPU)
    return made if isinstance(made, FakeTensor) else made.copy_(values)


def _pad(data: Tensor, sizes: Tensor, batch_first: bool, padding: float, total_length: int) -> tuple[Tensor, Tensor]:
    """Return the padded sequences of packed ``data``, and their lengths, by the ops of PyTorch's function."""
    with disable_current_modes():
        counts: list[int] = _checked(known(sizes)).tolist()
        ended = torch.tensor([sum(count > place for count in counts) for place in range(counts[0])], device="cpu")
    size = (max(len(counts), total_length), counts[0], *data.shape[1:])
    padded = _aten.full(size, padding, dtype=data.dtype, layout=data.layout, device=data.device)
    lengths = _written(data, ended)
    begun = offset = 0
    for step, (count, following) in enumerate(zip(counts, [*counts[1:], 0], strict=True), 1):
        if count == following:
            continue
        end = offset + count * (step - begun)
        elements = _aten.slice(data, 0, offset, end)
        place = _aten.slice(_aten.slice(padded, 0, begun, step), 1, 0, count)
        place.copy_(elements.view((step - begun, count, *data.shape[1:])))
        begun, offset = step, end
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def _reading(operator: Any, place: int) -> Callable[..., Any]:
    """Wrap ``operator``, which reads the memory of its argument at ``place``, to be given known values."""

    def run(*args: Any) -> Any:
        given = (*args[:place], _checked(known(args[place])), *args[place + 1 :])
        return operator._op_dk(_WHOLE, *given)

    return run


def _readers() -> dict[Any, Callable[..., Any]]:
    recurrent = (_aten.lstm.data, _aten.gru.data, _aten.rnn_tanh.data, _aten.rnn_relu.data)
    backward = _aten._pack_padded_sequence_backward.default
    return {
        **{operator: _reading(operator, 1) for operator in recurrent},
        backward: _reading(backward, 2),
        _aten._pad_packed_sequence.default: _pad,
    }


READERS = _readers()
"""Ops that read numbers of sequences from memory, with what runs in their place."""


@contextlib.contextmanager
def readable_sizes() -> Iterator[None]:
    """Give known numbers of sequences to ops on the CPU while active."""
    if any(operator.py_kernels.get(_WHOLE) is run for operator, run in READERS.items()):  # of a capture around this one
        yield
        return
    library = torch.library.Library("aten", "IMPL")
    try:
        for operator, run in READERS.items():
            library.impl(operator.name(), run, "AutogradCPU")
            operator.py_kernels[_WHOLE] = run  # without autograd a mode takes the op apart itself
        yield
    finally:
        library._destroy()
        for operator in READERS:
            del operator.py_kernels[_WHOLE]
