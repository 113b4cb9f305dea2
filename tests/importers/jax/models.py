"""JAX twins of the built-in PyTorch workloads: the same layers, written with Flax Linen or with plain arrays.

Each function returns ``(value_and_grad of the loss, arguments)``; the arguments are shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import lax

Target = tuple[Callable[..., Any], tuple[Any, ...]]


def shaped(*shape: int, dtype: Any = jnp.float32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def _trained(model: Any, x: Any, labels: Any) -> Target:
    """The step of a Flax model with cross entropy; other collections than parameters are updated and returned."""
    variables = jax.eval_shape(model.init, jax.random.key(0), x)
    params = variables.pop("params")

    def loss(params: Any, others: Any, x: Any, labels: Any) -> Any:
        logits, others = model.apply({"params": params, **others}, x, mutable=list(others))
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), others

    return jax.value_and_grad(loss, has_aux=True), (params, variables, x, labels)


class MLP(nn.Module):  # type: ignore[misc]
    sizes: tuple[int, ...]

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for size in self.sizes[:-1]:
            x = nn.relu(nn.Dense(size)(x))
        return nn.Dense(self.sizes[-1])(x)


def mlp(batch: int, inputs: int, sizes: tuple[int, ...]) -> Target:
    return _trained(MLP(sizes), shaped(batch, inputs), shaped(batch, dtype=jnp.int32))


class Block(nn.Module):  # type: ignore[misc]
    hidden: int
    heads: int
    wide: int
    causal: bool

    @nn.compact
    def __call__(self, x: Any) -> Any:
        y = nn.LayerNorm()(x)
        query, key, value = jnp.split(nn.Dense(3 * self.hidden, name="qkv")(y), 3, -1)
        parts = [t.reshape(*t.shape[:2], self.heads, -1) for t in (query, key, value)]
        mask = jnp.tril(jnp.ones((x.shape[1],) * 2, bool)) if self.causal else None
        scores = jnp.einsum("bqhd,bkhd->bhqk", parts[0], parts[1]) / math.sqrt(self.hidden // self.heads)
        if mask is not None:
            scores = jnp.where(mask, scores, -1e9)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", nn.softmax(scores), parts[2]).reshape(x.shape)
        x = x + nn.Dense(self.hidden, name="out")(mixed)
        y = nn.gelu(nn.Dense(self.wide, name="up")(nn.LayerNorm()(x)))
        return x + nn.Dense(self.hidden, name="down")(y)


class GPT2(nn.Module):  # type: ignore[misc]
    vocab: int
    positions: int
    hidden: int
    layers: int
    heads: int

    @nn.compact
    def __call__(self, ids: Any) -> Any:
        tokens = nn.Embed(self.vocab, self.hidden, name="tokens")
        where = nn.Embed(self.positions, self.hidden, name="positions")(jnp.arange(ids.shape[1]))
        x = tokens(ids) + where
        for _ in range(self.layers):
            x = Block(self.hidden, self.heads, 4 * self.hidden, causal=True)(x)
        return tokens.attend(nn.LayerNorm()(x))


def gpt2(batch: int, seq: int, hidden: int, layers: int, heads: int, vocab: int, positions: int) -> Target:
    ids = shaped(batch, seq, dtype=jnp.int32)
    return _trained(GPT2(vocab, positions, hidden, layers, heads), ids, ids)


class ViT(nn.Module):  # type: ignore[misc]
    patch: int
    hidden: int
    layers: int
    heads: int
    wide: int
    classes: int

    @nn.compact
    def __call__(self, images: Any) -> Any:
        size = (self.patch, self.patch)
        x = nn.Conv(self.hidden, size, size, padding="VALID", name="patches")(images)
        x = x.reshape(x.shape[0], -1, self.hidden)
        token = self.param("class_token", nn.initializers.zeros, (1, 1, self.hidden))
        x = jnp.concatenate([jnp.broadcast_to(token, (x.shape[0], 1, self.hidden)), x], 1)
        x = x + self.param("positions", nn.initializers.normal(), (1, *x.shape[1:]))
        for _ in range(self.layers):
            x = Block(self.hidden, self.heads, self.wide, causal=False)(x)
        return nn.Dense(self.classes, name="head")(nn.LayerNorm()(x)[:, 0])


def vit(batch: int, image: int, patch: int, hidden: int, layers: int, heads: int, wide: int, classes: int) -> Target:
    images = shaped(batch, image, image, 3)
    return _trained(ViT(patch, hidden, layers, heads, wide, classes), images, shaped(batch, dtype=jnp.int32))


class Bottleneck(nn.Module):  # type: ignore[misc]
    width: int
    stride: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        y = x
        for width, kernel, stride in ((self.width, 1, 1), (self.width, 3, self.stride), (4 * self.width, 1, 1)):
            y = nn.Conv(width, (kernel, kernel), stride, padding=kernel // 2, use_bias=False)(y)
            y = nn.BatchNorm(use_running_average=False)(y)
            y = nn.relu(y) if width == self.width else y
        if x.shape != y.shape:
            x = nn.Conv(4 * self.width, (1, 1), self.stride, use_bias=False, name="shortcut")(x)
            x = nn.BatchNorm(use_running_average=False)(x)
        return nn.relu(x + y)


class ResNet(nn.Module):  # type: ignore[misc]
    groups: tuple[int, ...]
    width: int
    classes: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(self.width, (7, 7), 2, padding=3, use_bias=False, name="stem")(x)
        x = nn.relu(nn.BatchNorm(use_running_average=False)(x))
        x = nn.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))
        for index, count in enumerate(self.groups):
            for position in range(count):
                x = Bottleneck(self.width << index, 2 if index and not position else 1)(x)
        return nn.Dense(self.classes)(x.mean((1, 2)))


def resnet50(batch: int, image: int, classes: int, width: int) -> Target:
    images = shaped(batch, image, image, 3)
    return _trained(ResNet((3, 4, 6, 3), width, classes), images, shaped(batch, dtype=jnp.int32))


def lstm(batch: int, seq: int, inputs: int, hidden: int, layers: int, classes: int) -> Target:
    """Layers of LSTM cells under lax.scan, weights as PyTorch has them, and a classifier on the last state."""
    sizes = [inputs] + [hidden] * (layers - 1)
    params: dict[str, Any] = {
        f"layer{i}": {
            "wx": shaped(size, 4 * hidden), "wh": shaped(hidden, 4 * hidden),
            "bx": shaped(4 * hidden), "bh": shaped(4 * hidden),
        }
        for i, size in enumerate(sizes)
    }  # fmt: skip
    params["head"] = {"w": shaped(hidden, classes), "b": shaped(classes)}

    def loss(params: Any, x: Any, labels: Any) -> Any:
        x = x.swapaxes(0, 1)
        for i in range(layers):
            p = params[f"layer{i}"]

            def cell(carry: Any, x: Any, p: Any = p) -> Any:
                h, c = carry
                i, f, g, o = jnp.split(x @ p["wx"] + p["bx"] + (h @ p["wh"] + p["bh"]), 4, -1)
                c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
                h = nn.sigmoid(o) * jnp.tanh(c)
                return (h, c), h

            zeros = jnp.zeros((batch, hidden))
            _, x = lax.scan(cell, (zeros, zeros), x)
        logits = x[-1] @ params["head"]["w"] + params["head"]["b"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    return jax.value_and_grad(loss), (params, shaped(batch, seq, inputs), shaped(batch, dtype=jnp.int32))


def experts(tokens: int, hidden: int, wide: int, count: int, top: int, capacity: float) -> Target:
    """Experts with a capacity: each takes the tokens routed to it with the largest weights."""
    params = {
        "router": shaped(hidden, count), "gate": shaped(count, hidden, wide), "up": shaped(count, hidden, wide),
        "down": shaped(count, wide, hidden),
    }  # fmt: skip
    slots = min(tokens, math.ceil(capacity * tokens * top / count))

    def loss(params: Any, x: Any) -> Any:
        best, index = lax.top_k(x @ params["router"], top)
        rows = jnp.arange(tokens)[:, None]
        weights = jnp.zeros((tokens, count)).at[rows, index].set(nn.softmax(best))
        share, chosen = lax.top_k(weights.T, slots)
        taken = x[chosen]
        done = (nn.silu(taken @ params["gate"]) * (taken @ params["up"])) @ params["down"]
        mixed = jnp.zeros_like(x).at[chosen].add(done * share[..., None])
        return (mixed**2).sum()

    return jax.value_and_grad(loss), (params, shaped(tokens, hidden))
