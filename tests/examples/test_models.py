"""The models compute what their names say, checked against PyTorch's own layers or a property of the architecture."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from tensortide.examples import find
from tensortide.examples.decoders import MixtureOfExperts, rotary_table, rotate
from tensortide.examples.recurrent import GRUCell, HighwayStep, LSTMCell, Unrolled, WordLM
from tensortide.examples.seq2seq import Encoder
from tensortide.examples.speech import BidirectionalLSTM
from tensortide.examples.training import default_dtype
from tensortide.examples.trees import SumCell, SumTree
from tensortide.examples.unrolled_gan import GAN, unrolled_loss
from tensortide.examples.word2vec import SkipGram
from tests.examples.probe import models
from tests.examples.tiny import TINY, Settings


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def model_of(name: str, **settings: int | float | str | bool) -> nn.Module:
    """The model of a tiny workload, ready for inference."""
    (model,) = models(find(name).load()(**TINY[name] | settings, train=False))
    return model


@pytest.mark.parametrize(
    ("name", "settings"), [("gpt2", {}), ("llama", {}), ("mixtral", {"dispatch": "dense"}), ("encoder_lm", {})]
)
def test_a_language_model_sees_no_later_token(name: str, settings: Settings) -> None:
    model = model_of(name, **settings)
    ids = torch.randint(0, 29, (2, 6))
    changed = ids.clone()
    changed[:, 4] = (ids[:, 4] + 1) % 29
    before, after = model(ids), model(changed)
    torch.testing.assert_close(before[:, :4], after[:, :4])
    assert (before[:, 4:] - after[:, 4:]).abs().amin(-1).max() > 0


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "transformer"])
def test_fused_and_spelled_out_attention_give_one_model(name: str) -> None:
    steps = [find(name).load()(**TINY[name], attention=kind, train=False) for kind in ("sdpa", "eager")]
    (fused,), (spelled,) = map(models, steps)
    spelled.load_state_dict(fused.state_dict())
    shapes = {"bert": ((2, 6), (2, 6)), "transformer": ((2, 5), (2, 5), (2, 7))}.get(name, ((2, 6),))
    ids = [torch.randint(0, 2, shape) for shape in shapes]
    if name == "transformer":
        ids[1] = torch.arange(5) < torch.tensor([[3], [5]])
    for mine, other in zip(outputs(fused, ids), outputs(spelled, ids), strict=True):
        torch.testing.assert_close(mine, other)


def outputs(model: nn.Module, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    result = model(*inputs)
    return result if isinstance(result, tuple) else (result,)


def test_a_translation_does_not_depend_on_padding() -> None:
    for name in ("transformer", "nmt"):
        model = model_of(name)
        source, target = torch.randint(0, 29, (5, 5)), torch.randint(0, 29, (5, 4))
        mask = torch.arange(5) < torch.tensor([[2], [3], [4], [5], [5]])
        other = source.where(mask, (source + 1) % 29)
        given = [(ids.t(), mask.t(), target.t()) if name == "nmt" else (ids, mask, target) for ids in (source, other)]
        torch.testing.assert_close(model(*given[0]), model(*given[1]))


def test_rotated_products_depend_on_distance_only() -> None:
    cos, sin = rotary_table(9, 8)
    query, key = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)
    products = rotate(query.expand(1, 1, 9, 8), cos, sin) @ rotate(key.expand(1, 1, 9, 8), cos, sin).transpose(-2, -1)
    for distance in range(-8, 9):
        diagonal = products[0, 0].diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    torch.testing.assert_close(products[0, 0, 0, 0], (query * key).sum())


def mixtures(capacity: float) -> tuple[MixtureOfExperts, MixtureOfExperts]:
    """A routed and a dense mixture with the same weights."""
    routed, dense = (MixtureOfExperts(6, 5, 4, 2, capacity, dispatch) for dispatch in ("capacity", "dense"))
    for parameter in routed.parameters():
        nn.init.normal_(parameter)
    dense.load_state_dict(routed.state_dict())
    return routed, dense


def test_a_mixture_with_room_for_all_equals_the_dense_one() -> None:
    routed, dense = mixtures(capacity=2.0)
    x = torch.randn(3, 7, 6)
    torch.testing.assert_close(routed(x), dense(x))
    for mixture in (routed, dense):
        mixture(x).square().sum().backward()
    for mine, other in zip(routed.parameters(), dense.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)


def test_a_mixture_is_the_weighted_sum_of_each_tokens_two_best_experts() -> None:
    _, dense = mixtures(capacity=2.0)
    x = torch.randn(7, 6)
    for token, result in zip(x, dense(x.unsqueeze(0))[0], strict=True):
        logits = token @ dense.router.weight.t()
        first, second = logits.argsort(descending=True)[:2].tolist()
        share = torch.sigmoid(logits[first] - logits[second])
        outputs = [
            (nn.functional.silu(token @ dense.gate[e]) * (token @ dense.up[e])) @ dense.down[e] for e in (first, second)
        ]
        torch.testing.assert_close(result, share * outputs[0] + (1 - share) * outputs[1])


def test_an_expert_that_is_full_passes_over_the_least_wanted_tokens() -> None:
    routed, dense = mixtures(capacity=0.5)
    x = torch.randn(1, 16, 6)
    weights = routed._route(x[0])
    kept = torch.zeros_like(weights)
    for expert in range(4):
        best = weights[:, expert].argsort(descending=True)[:4]
        kept[best, expert] = weights[best, expert]
    assert int((kept > 0).sum()) < int((weights > 0).sum())
    torch.testing.assert_close(routed(x)[0], dense._dense(x[0], kept))


def test_balance_is_one_where_the_load_is_even_and_more_where_it_is_not() -> None:
    mixture, _ = mixtures(capacity=1.0)
    nn.init.zeros_(mixture.router.weight)
    mixture(torch.randn(1, 8, 6))
    assert float(mixture.take_balance().detach()) == pytest.approx(1.0)
    mixture.router.weight.data[:2] = 9.0
    mixture(torch.ones(1, 8, 6))
    assert float(mixture.take_balance().detach()) == pytest.approx(2.0)
    with pytest.raises(AssertionError, match="no forward pass"):
        mixture.take_balance()


def as_torch_lstm(cells: list[LSTMCell], inputs: int, hidden: int) -> nn.LSTM:
    """PyTorch's LSTM with the weights of ours: gates in another order, the open forget gate in its bias."""
    lstm = nn.LSTM(inputs, hidden, len(cells))
    for layer, cell in enumerate(cells):
        admit, candidate, keep, emit = cell.gates.weight.detach().chunk(4)
        biases = cell.gates.bias.detach().chunk(4)
        weight = torch.cat([admit, keep, candidate, emit])
        width = weight.shape[1] - hidden
        with torch.no_grad():
            getattr(lstm, f"weight_ih_l{layer}").copy_(weight[:, :width])
            getattr(lstm, f"weight_hh_l{layer}").copy_(weight[:, width:])
            getattr(lstm, f"bias_ih_l{layer}").copy_(torch.cat([biases[0], biases[2] + 1, biases[1], biases[3]]))
            getattr(lstm, f"bias_hh_l{layer}").zero_()
    return lstm


def test_the_word_model_is_an_lstm_between_embedding_and_softmax() -> None:
    model = WordLM(29, 4, 2, tied=True)
    ids, cells, hiddens = torch.randint(0, 29, (5, 3)), torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    lstm = as_torch_lstm([cell for cell in model.cells if isinstance(cell, LSTMCell)], 4, 4)
    states, _ = lstm(model.tokens(ids), (hiddens, cells))
    expected = states @ model.tokens.weight.t() + model.head.bias
    torch.testing.assert_close(model(ids, cells, hiddens), expected)


def test_both_bidirectional_encoders_read_each_sequence_to_its_own_end() -> None:
    lengths = torch.tensor([2, 5, 3])
    x = torch.randn(5, 3, 4)
    mask = torch.arange(5).unsqueeze(1) < lengths
    encoder, layer = Encoder(4, 0.0), BidirectionalLSTM(4, 4)
    layer.load_state_dict(encoder.state_dict())
    memory, _, hidden = encoder(x, mask)
    mirrored = layer(x, lengths)
    ahead, back = as_torch_lstm([encoder.ahead], 4, 4), as_torch_lstm([encoder.back], 4, 4)
    for row, length in enumerate(lengths.tolist()):
        own = x[:length, row]
        expected = torch.cat([ahead(own)[0], back(own.flip(0))[0].flip(0)], -1)
        torch.testing.assert_close(memory[row, :length], expected)
        torch.testing.assert_close(mirrored[:length, row], expected)
        torch.testing.assert_close(hidden[row], expected[-1, :4])
        assert not memory[row, length:].any()


def test_a_closed_highway_carries_its_state_and_an_open_one_replaces_it() -> None:
    step = HighwayStep(6, 4)
    x, state = torch.randn(3, 6), torch.randn(3, 4)
    nn.init.zeros_(step.transform.weight)
    nn.init.constant_(step.transform.bias, -math.inf)
    torch.testing.assert_close(step(x, state), state)
    nn.init.constant_(step.transform.bias, math.inf)
    torch.testing.assert_close(step(x, state), torch.tanh(step.candidate(x)))


def test_a_closed_gate_keeps_the_state_and_an_open_one_takes_the_candidate() -> None:
    cell = GRUCell(6, 4)
    x, state = torch.randn(3, 6), torch.randn(3, 4)
    nn.init.zeros_(cell.gates.weight)
    nn.init.constant_(cell.gates.bias, math.inf)
    torch.testing.assert_close(cell(x, state), (state,))
    cell.gates.bias.data[:4] = -math.inf  # the reset gate stays open
    torch.testing.assert_close(cell(x, state)[0], torch.tanh(cell.candidate(torch.cat([x, state], -1))))


def test_cells_looped_over_time_are_an_lstm() -> None:
    cell, x = LSTMCell(3, 4), torch.randn(5, 2, 3)
    _, (_, last) = as_torch_lstm([cell], 3, 4)(x)
    torch.testing.assert_close(Unrolled(cell, 4)(x), last[0])


def test_a_tree_that_sums_its_children_does_not_know_their_order() -> None:
    tree, nodes = SumTree(3, 4), torch.randn(7, 2, 3)
    torch.testing.assert_close(tree(nodes), tree(nodes[[0, 2, 1, 5, 6, 3, 4]]))
    assert not torch.allclose(tree(nodes), tree(nodes[[0, 2, 1, 3, 4, 5, 6]]))


def test_a_node_with_one_child_is_a_step_of_an_lstm() -> None:
    node, x, cell, hidden = SumCell(3, 4), torch.randn(2, 3), torch.randn(2, 4), torch.randn(2, 4)
    lstm = nn.LSTMCell(3, 4)
    admit, emit, candidate, keep = node.input.weight.detach().chunk(4)
    biases = node.input.bias.detach().chunk(4)
    summed = node.summed.weight.detach().chunk(3)
    with torch.no_grad():
        lstm.weight_ih.copy_(torch.cat([admit, keep, candidate, emit]))
        lstm.weight_hh.copy_(torch.cat([summed[0], node.own.weight, summed[2], summed[1]]))
        lstm.bias_ih.copy_(torch.cat([biases[0], biases[3], biases[2], biases[1]]))
        lstm.bias_hh.zero_()
    mine, other = node(x, [(cell, hidden)]), lstm(x, (hidden, cell))
    torch.testing.assert_close(mine, other[::-1])


def test_two_sentences_are_as_alike_in_either_order() -> None:
    model = model_of("similarity_treelstm")
    left, right = torch.randint(0, 29, (2, 7, 2)).unbind()
    torch.testing.assert_close(model(left, right), model(right, left))


def test_the_generators_gradient_passes_through_the_discriminators_updates() -> None:
    with default_dtype("float64"):
        discriminator = GAN(3, 4, 1, 2).discriminator
        real, fake = torch.randn(5, 2), torch.randn(5, 2, requires_grad=True)
        torch.autograd.gradcheck(lambda points: unrolled_loss(discriminator, real, points, 3, 0.5), fake)
        ahead, still = (
            torch.autograd.grad(unrolled_loss(discriminator, real, fake, unroll, 0.5), fake)[0] for unroll in (3, 0)
        )
    assert not torch.allclose(ahead, still)


def test_the_chances_of_all_negative_samples_sum_to_one() -> None:
    model = SkipGram(29, 4, 6)
    assert float(model._log_count(torch.arange(29)).exp().sum()) == pytest.approx(6)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("resnet", {"depth": 20}, "choose one of: 18, 34, 50, 101, 152, or, with variant=cifar, 6n"),
        ("resnet", {"depth": 21, "variant": "cifar"}, r"of depth 21; .* or 6n \+ 2"),
        ("resnet", {"variant": "svhn"}, "unknown variant 'svhn'; choose one of: imagenet, cifar"),
        ("densenet", {"depth": 1}, "no DenseNet of depth 1; choose one of: 100, 121, 161, 169, 201"),
        ("vgg", {"depth": 1}, "no VGG of depth 1; choose one of: 11, 13, 16, 19"),
        ("unet", {"height": 9}, "height=9 and width=12 must be multiples of 4"),
        ("diffusion", {"image": 9}, "image=9 must be a multiple of 8"),
        ("vit", {"image": 13}, "image=13 cannot be divided by patch=4"),
        ("gpt2", {"heads": 3}, "hidden=8 cannot be divided by heads=3"),
        ("gpt2", {"seq": 8}, "seq=8 needs positions=8 or more, got positions=7"),
        ("bert", {"seq": 8}, "seq=8 needs positions=8 or more"),
        ("llama", {"kv_heads": 4}, "heads=6 cannot be divided by kv_heads=4"),
        ("mixtral", {"dispatch": "magic"}, "unknown dispatch 'magic'; choose one of: capacity, dense"),
        ("word2vec", {"window": 5}, "seq=9 must be more than twice the window=5"),
        ("hf_llama", {"kv_heads": 4}, "heads=6 cannot be divided by kv_heads=4"),
    ],
)
def test_settings_that_fit_nothing_are_refused_with_what_would(name: str, settings: Settings, message: str) -> None:
    if not find(name).available:
        pytest.skip(f"needs {', '.join(find(name).missing)}")
    with pytest.raises(ValueError, match=message):
        find(name).load()(**TINY[name] | settings)
