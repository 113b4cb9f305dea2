"""The shared training step and its optimizers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from tensortide.examples.attention import attend, check_attention
from tensortide.examples.training import (
    as_dtype,
    choose,
    default_dtype,
    divide,
    make_optimizer,
    next_token_loss,
    training_step,
)


@pytest.mark.parametrize(("name", "kind"), [("sgd", SGD), ("adam", Adam), ("adamw", AdamW)])
def test_an_optimizer_by_name(name: str, kind: type[Optimizer]) -> None:
    optimizer = make_optimizer(name, nn.Linear(2, 2).parameters(), 0.5)
    assert type(optimizer) is kind
    assert optimizer.defaults["lr"] == 0.5
    assert optimizer.defaults.get("momentum", 0.9) == 0.9


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown optimizer 'lion'; choose one of: sgd, adam, adamw"):
        make_optimizer("lion", nn.Linear(2, 2).parameters(), 0.1)
    with pytest.raises(ValueError, match="unknown dtype 'int8'; choose one of: float32, bfloat16"):
        as_dtype("int8")
    with pytest.raises(ValueError, match="unknown attention 'flash'; choose one of: sdpa, eager"):
        check_attention("flash")
    with pytest.raises(ValueError, match="unknown letter 'c'; choose one of: a, b"):
        choose("letter", "c", "ab")


def test_a_size_that_does_not_divide_is_named() -> None:
    assert divide("hidden", 12, "heads", 4) == 3
    with pytest.raises(ValueError, match="hidden=10 cannot be divided by heads=4"):
        divide("hidden", 10, "heads", 4)


def test_the_default_dtype_is_put_back() -> None:
    with default_dtype("bfloat16"):
        assert torch.empty(1).dtype is torch.bfloat16
    with pytest.raises(ZeroDivisionError), default_dtype("float64"):
        _ = 1 // 0
    assert torch.empty(1).dtype is torch.float32


def test_a_step_descends_along_the_gradient_and_drops_it() -> None:
    model = nn.Linear(3, 1, bias=False)
    x, before = torch.randn(4, 3), model.weight.detach().clone()
    loss = training_step(model, [x], lambda y: y.sum(), "sgd", lr=0.25)()
    assert torch.equal(loss, (x @ before.t()).sum())
    torch.testing.assert_close(model.weight.detach(), before - 0.25 * x.sum(0, keepdim=True))
    assert model.weight.grad is None


def test_clipping_bounds_the_update() -> None:
    model = nn.Linear(3, 1, bias=False)
    before = model.weight.detach().clone()
    training_step(model, [torch.ones(4, 3)], lambda y: y.sum(), "sgd", lr=1.0, clip=0.5)()
    assert float((model.weight.detach() - before).norm()) == pytest.approx(0.5, rel=1e-3)


def test_without_training_only_the_forward_pass_runs() -> None:
    linear = nn.Linear(3, 2)
    model = nn.Sequential(linear, nn.Dropout(0.5))
    before = linear.weight.detach().clone()
    x = torch.randn(4, 3)

    def no_loss(output: Tensor) -> Tensor:
        raise AssertionError("a forward pass has no loss")

    output = training_step(model, {"input": x}, no_loss, "adamw", train=False)()
    assert torch.equal(output, linear(x))
    assert not output.requires_grad
    assert torch.equal(linear.weight, before)


def test_padding_has_no_loss() -> None:
    logits, targets = torch.randn(2, 3, 5), torch.tensor([[1, 2, 0], [4, 0, 0]])
    alone = next_token_loss(logits.flatten(0, 1)[[0, 1, 3]], torch.tensor([1, 2, 4]))
    torch.testing.assert_close(next_token_loss(logits, targets, padding=0), alone)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [6, 3, 1])
def test_fused_and_spelled_out_attention_agree(causal: bool, kv_heads: int) -> None:
    query, key, value = torch.randn(2, 6, 5, 4), torch.randn(2, kv_heads, 5, 4), torch.randn(2, kv_heads, 5, 4)
    fused, spelled = (attend(query, key, value, attention=name, causal=causal) for name in ("sdpa", "eager"))
    torch.testing.assert_close(fused, spelled)


def test_a_mask_hides_keys_from_both_kinds_of_attention() -> None:
    query, key, value = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4), torch.randn(2, 3, 7, 4)
    mask = torch.arange(7) < torch.tensor([4, 6])[:, None, None, None]
    fused, spelled = (attend(query, key, value, attention=name, mask=mask) for name in ("sdpa", "eager"))
    torch.testing.assert_close(fused, spelled)
    torch.testing.assert_close(fused[:1], attend(query[:1], key[:1, :, :4], value[:1, :, :4]))
