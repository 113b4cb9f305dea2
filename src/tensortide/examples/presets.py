"""Presets: names for sizes of the workloads beside this file. Importing this imports no framework.

Sizes of networks are those of their papers; batches and inputs are those of the experiments on dynamic tensor
rematerialization (Kirisame et al., 2020), from the configurations published with its prototype
(``uwsampl/dtr-prototype``, ``dtr_configs/full-run-config.json``; 32 samples where these name none). Where a name of
that prototype belongs to another workload here, ``dtr_`` stands before it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

__all__ = ["DTR", "SIZES", "Preset", "Setting", "preset"]

Setting: TypeAlias = int | float | str | bool


class Preset(NamedTuple):
    """A name for the workload ``of`` with some settings ``fixed``, and other ``defaults``.

    ``where``: conditions on legal settings, if those of the workload are for other sizes.
    """

    name: str
    of: str
    summary: str
    fixed: Mapping[str, Setting]
    defaults: Mapping[str, Setting]
    where: tuple[str, ...] = ()


def preset(
    workload: Callable[..., Any],
    fixed: Mapping[str, Setting],
    defaults: Mapping[str, Setting],
    where: tuple[str, ...],
) -> Callable[..., Any]:
    """``workload`` with the ``fixed`` settings given, and the rest as its hyperparameters, by these ``defaults``."""
    signature = inspect.signature(workload)
    kept = [
        parameter.replace(default=defaults.get(name, parameter.default))
        for name, parameter in signature.parameters.items()
        if name not in fixed
    ]
    signature = signature.replace(parameters=kept)

    @functools.wraps(workload)
    def built(*args: Any, **settings: Any) -> Any:
        given = signature.bind(*args, **settings)
        given.apply_defaults()
        return workload(**fixed, **given.arguments)

    vars(built).update(
        __signature__=signature,
        where=where or getattr(workload, "where", ()),
        values={name: among for name, among in getattr(workload, "values", {}).items() if name not in fixed},
    )
    return built


def _row(name: str, of: str, summary: str, fixed: Mapping[str, Setting], *where: str, **defaults: Setting) -> Preset:
    return Preset(name, of, summary, fixed, defaults, where)


def _imagenet(prefix: str, depth: int, parameters: str) -> Preset:
    blocks = "basic" if depth < 50 else "bottleneck"
    name = f"ResNet-{depth}" if prefix == "resnet" else f"The same as resnet{depth}, ResNet-{depth}"
    summary = f"{name} for ImageNet: {blocks} blocks, {parameters} M parameters."
    return _row(f"{prefix}{depth}", "resnet", summary, {"depth": depth, "variant": "imagenet", "channels": 3})


def _cifar(name: str, depth: int, summary: str, shrunk: int = 4, **defaults: Setting) -> Preset:
    """A ResNet on small images; batch norm wants more than one value of each channel, also after its last group."""
    fixed: Mapping[str, Setting] = {"depth": depth, "variant": "cifar", "channels": 3}
    sizes = {**_SMALL, "width": 16, **defaults}
    enough = f"batch * ceil(image / {shrunk}) >= 2"
    return _row(name, "resnet", f"ResNet-{depth} for {summary} parameters.", fixed, enough, **sizes)


def _dense(depth: int, parameters: str, growth: int = 32, stem: int = 64, batch: int = 32) -> Preset:
    summary = f"DenseNet-{depth} for ImageNet: {parameters} M parameters."
    fixed = {"depth": depth, "growth": growth, "stem": stem}
    return _row(f"tv_densenet{depth}", "densenet", summary, fixed, batch=batch)


_SMALL: Mapping[str, Setting] = {"image": 32, "classes": 10}
_DEPTHS = ((18, "11.7"), (34, "21.8"), (50, "25.6"), (101, "44.5"), (152, "60.2"))
_CIFAR_DEPTHS = ((20, "0.27"), (44, "0.66"), (56, "0.85"), (110, "1.7"))
_LOOPED: Mapping[str, Setting] = {"batch": 512, "seq": 256, "inputs": 512, "hidden": 1700}
_WORDS: Mapping[str, Setting] = {"batch": 32, "seq": 35, "hidden": 200, "layers": 2, "vocab": 33278, "dropout": 0.2}
"""Sizes of the word language model among PyTorch's examples, on WikiText-2."""
_LSTM, _GRU = {"cell": "lstm"}, {"cell": "gru"}
_BC, _QUARTER = {"depth": 100, "growth": 12, "stem": 24}, "batch * floor(image / 4) >= 2"

SIZES: tuple[Preset, ...] = (
    *(_imagenet("resnet", *row) for row in _DEPTHS),
    _cifar("resnet18_cifar", 18, "32x32 images: 3x3 stem, no max pool, 11.2 M", 8, batch=128, classes=100, width=64),
    _cifar("resnet32_cifar", 32, "32x32 images: three groups of five blocks, 0.5 M", batch=56),
    _row("gru", "rnn_lm", "Language model on PyTorch's gated recurrent layers.", _GRU),
)
"""Sizes of workloads under names of their own."""
DTR: tuple[Preset, ...] = (
    *(_imagenet("tv_resnet", *row) for row in _DEPTHS),
    *(_cifar(f"resnet{depth}", depth, f"CIFAR: three groups of blocks, {count} M") for depth, count in _CIFAR_DEPTHS),
    _cifar("resnet32", 32, "CIFAR, on images of ImageNet's size: 0.46 M", batch=56, image=224),
    _cifar("resnet1202", 1202, "CIFAR: three groups of 200 blocks, 19.4 M", batch=64),
    _dense(121, "8.0", batch=84),
    _dense(161, "28.7", 48, 96),
    _dense(169, "14.1"),
    _dense(201, "20.0"),
    _row("densenet100", "densenet", "DenseNet-BC for CIFAR, growing by 12: 0.8 M parameters.", _BC, _QUARTER, **_SMALL),
    _row(
        "inceptionv3",
        "inception_v3",
        "Inception v3 (inception_v3), its auxiliary head too: 27.2 M parameters.",
        {"aux": True},
    ),
    _row("inceptionv4", "inception_v4", "Inception v4 (inception_v4) at batch 64: 42.7 M parameters.", {}, batch=64),
    _row("dtr_lstm", "unrolled_rnn", "LSTM cells looped over time: 15.0 M parameters.", _LSTM, **_LOOPED),
    _row("dtr_gru", "unrolled_rnn", "Gated cells looped over time: 11.3 M parameters.", _GRU, **_LOOPED),
    _row("lstm_encoder", "rnn_lm", "Word language model on LSTM layers: 14.0 M parameters.", _LSTM, **_WORDS),
    _row("gru_encoder", "rnn_lm", "Word language model on GRU layers: 13.8 M parameters.", _GRU, **_WORDS),
    _row("dtr_treelstm", "sum_treelstm", "Tree LSTM that sums its children, over 1,023 nodes: 0.5 M parameters.", {}),
    _row("treelstm_old", "similarity_treelstm", "Tree LSTM that compares two sentences: 1.0 M parameters.", {}),
    _row("dtr_transformer", "vector_transformer", "12 layers to encode vectors, 6 to decode: 63.1 M parameters.", {}),
    _row(
        "transformer_encoder",
        "encoder_lm",
        "Word language model on two encoder layers: 13.8 M parameters.",
        {},
        **_WORDS,
    ),
    _row(
        "unroll_gan",
        "unrolled_gan",
        "Unrolled GAN of 60 steps: 16.8 M parameters.",
        {},
        latent=4096,
        hidden=2048,
        unroll=60,
    ),
)
"""Models of DTR's experiments, under its names and in its sizes."""
