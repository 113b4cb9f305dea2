"""Which elements of a storage have been written, against a mask of all of them."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from tensortide.graph.written_parts import WrittenParts


@st.composite
def views(draw: st.DrawFn, base: torch.Tensor) -> torch.Tensor:
    """A view of ``base``, a slice along its dimensions or not."""
    view = base
    for kind in draw(st.lists(st.sampled_from(["slice", "slice", "select", "diagonal", "turn", "flat", "repeat"]))):
        if view.dim() == 0 or 0 in view.shape:
            break
        at = draw(st.integers(0, view.dim() - 1))
        if kind == "slice":
            start, step = draw(st.integers(0, view.shape[at])), draw(st.integers(1, 3))
            end = draw(st.integers(start, view.shape[at]))
            view = view[(slice(None),) * at + (slice(start, end, step),)]
        elif kind == "select":
            view = view.select(at, draw(st.integers(0, view.shape[at] - 1)))
        elif kind == "diagonal" and view.dim() > 1:
            view = view.diagonal()
        elif kind == "turn":
            view = view.movedim(at, 0)
        elif kind == "flat" and view.is_contiguous():
            view = view.view(-1)
        elif kind == "repeat":
            view = view.expand(2, *view.shape)
    return view


@given(st.data())
def test_what_is_noted_is_written_once(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), max_size=4))
    base = torch.zeros(sizes, dtype=torch.int64)
    base = base.permute(data.draw(st.permutations(range(base.dim()))))
    parts = WrittenParts(base.shape, base.stride(), 8, 8 * base.numel())
    for _ in range(data.draw(st.integers(1, 5))):
        view = data.draw(views(base))
        if parts.add(view.shape, view.stride(), int(view.storage_offset()), 8):
            places = torch.arange(base.numel()).as_strided(view.shape, view.stride(), view.storage_offset())
            assert places.unique().numel() == view.numel()
            assert not view.any()
            view.fill_(1)
        assert parts.missing == int((base == 0).sum())


def test_slices_of_every_kind_fill_a_tensor() -> None:
    base = torch.zeros(4, 6, 5).transpose(0, 1)
    parts = WrittenParts(base.shape, base.stride(), 4, 4 * base.numel())
    for view in (base[::2], base[1::2, :, 3:], base[1::2, 2, :3], base[1::2, :2, :3], base[1::2, 3:, :3].movedim(2, 0)):
        assert parts.missing
        assert parts.add(view.shape, view.stride(), int(view.storage_offset()), 4)
    assert not parts.missing


def test_a_part_of_another_size_or_of_a_storage_with_gaps_is_none() -> None:
    assert not WrittenParts((4,), (1,), 4, 16).add((2,), (1,), 0, 2)
    assert not WrittenParts((4,), (2,), 4, 28).add((4,), (2,), 0, 4)
    assert not WrittenParts((4,), (1,), 4, 20).add((4,), (1,), 0, 4)
    assert not WrittenParts((2, 2, 2), (5, 1, 1), 4, 32).add((2, 2, 2), (5, 1, 1), 0, 4)
