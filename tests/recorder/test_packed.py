"""Packed sequences on fake tensors and on a pretended GPU: the step of real ones, for all recurrent layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence
from torch.utils.data import DataLoader

from tensortide import capture
from tensortide.errors import DataDependent
from tests.marks import some_slow
from tests.recorder.steps import assert_same_but_views
from tests.recorder.test_fake_mode import difference

LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm": ("LSTM", {}),
    "stacked": ("LSTM", {"num_layers": 2, "dropout": 0.2, "bidirectional": True, "batch_first": True}),
    "projected": ("LSTM", {"proj_size": 4, "bidirectional": True, "num_layers": 2}),
    "plain": ("LSTM", {"bias": False}),
    "gru": ("GRU", {"bidirectional": True, "batch_first": True}),
    "stacked_gru": ("GRU", {"num_layers": 2, "dropout": 0.2}),
    "rnn": ("RNN", {"nonlinearity": "relu"}),
    "tanh": ("RNN", {"num_layers": 2}),
}
CASES = [(layer, ordered, not ordered) for layer in LAYERS for ordered in (True, False)]
FAST = [("lstm", False, True), ("gru", True, False)]


def training(layer: str, ordered: bool, padded: bool) -> Callable[[], None]:
    """A step of a recurrent layer on packed sequences: in order of length and with lengths in a list, or neither."""
    kind, options = LAYERS[layer]
    net: Any = getattr(nn, kind)(6, 8, **options)
    first = options.get("batch_first", False)
    x = torch.rand((3, 5, 6) if first else (5, 3, 6)).requires_grad_()
    optimizer = torch.optim.SGD(net.parameters())

    def step() -> None:
        lengths: Any = [5, 3, 2] if ordered else torch.tensor([3, 5, 2])
        packed = pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=ordered)
        out, state = net(packed)
        loss = out.data.sum()
        if padded:
            whole, lengths = pad_packed_sequence(out, batch_first=first, total_length=7)
            loss = loss + whole[:, : lengths.view(3, 1)[1].item()].sum()
        (loss + (state[0] if isinstance(state, tuple) else state).sum()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@pytest.mark.parametrize(("layer", "ordered", "padded"), some_slow(CASES, [case for case in CASES if case not in FAST]))
def test_fake_equals_real_down_to_storages(layer: str, ordered: bool, padded: bool) -> None:
    settings: dict[str, str | bool] = {"layer": layer, "ordered": ordered, "padded": padded}
    fake, real = (capture(training, hyperparameters=settings, real=real) for real in (False, True))
    assert not fake.meta.assumptions
    if padded:
        assert_same_but_views(fake, real)
    else:
        assert difference(fake, real) == ""


def test_sequences_packed_outside_of_the_step() -> None:
    def workload() -> Any:
        net = nn.GRU(6, 8)
        loader: Any = DataLoader([torch.rand(n, 6) for n in (3, 2)], 2, collate_fn=packed)  # type: ignore[arg-type]
        kept = packed([torch.rand(n, 6) for n in (1, 2)])

        def step() -> None:
            for batch in (*loader, kept):
                net(batch)[1].sum().backward()

        return step

    def packed(batch: Any) -> Any:
        return pack_sequence(batch, enforce_sorted=False)

    fake, real = (capture(workload, real=real) for real in (False, True))
    assert difference(fake, real) == ""


def test_inference_mode() -> None:
    def workload() -> Any:
        net, x = nn.LSTM(6, 8), torch.rand(5, 3, 6)

        def step() -> Any:
            with torch.inference_mode():
                return pad_packed_sequence(net(pack_padded_sequence(x, [5, 3, 2]))[0])

        return step

    fake, real = (capture(workload, real=real) for real in (False, True))
    assert difference(fake, real) == ""


def drawn() -> Any:
    """A step whose lengths nobody knows."""
    net = nn.LSTM(6, 8, batch_first=True)

    def step() -> None:
        x, lengths = torch.rand(4, 9, 6), torch.randint(1, 10, (4,))
        net(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))[0].data.sum().backward()

    return step


def test_unknown_lengths_are_asked_for_or_real() -> None:
    assert capture(drawn).meta.captured_on == "real"
    with pytest.raises(DataDependent, match=r"--assume '.*test_packed\.py:") as refused:
        capture(drawn, device="cuda")
    place = str(refused.value).split("--assume '")[1].split("=")[0]
    graph = capture(drawn, assume={place: 22}, real=False)
    (rows,) = (op.outputs[0].shape[0] for op in graph if op.name == "aten._pack_padded_sequence.default")
    assert rows == 22
    assert any("taken as 22" in text for text in graph.meta.assumptions)


def test_on_a_gpu_cudnn_reserves_for_the_longest_sequence_of_the_batch() -> None:
    def workload(lengths: str) -> Any:
        net, x = nn.LSTM(6, 8, 2, bidirectional=True).cuda(), torch.rand(5, 3, 6, device="cuda")
        known = [int(digit) for digit in lengths]

        def step() -> None:
            net(pack_padded_sequence(x, known) if known else x)[1][0].sum().backward()

        return step

    graphs = [capture(workload, hyperparameters={"lengths": lengths}, device="cuda") for lengths in ("532", "432", "")]
    calls = [next(op for op in graph if op.name == "aten._cudnn_rnn.default") for graph in graphs]
    reserved = [call.outputs[3].numel for call in calls]
    assert reserved[0] == reserved[2] > reserved[1]
    assert [call.outputs[0].shape for call in calls] == [(10, 16), (9, 16), (5, 3, 16)]
    assert "aten._cudnn_rnn_backward.default" in {op.name for op in graphs[0]}
