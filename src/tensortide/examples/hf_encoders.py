"""Encoders of the ``transformers`` library, with random weights: nothing is ever downloaded."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModel, AutoModelForImageClassification, AutoModelForMaskedLM, BertConfig, ViTConfig

from tensortide.examples.attention import check_attention
from tensortide.examples.hf_text import library_step
from tensortide.examples.training import Step, as_dtype, choose, divide, tokens, training_step
from tensortide.workload import legal

__all__ = ["hf_bert", "hf_vit"]


@legal("hidden % heads == 0", "seq <= positions")
def hf_bert(
    batch: int = 32,
    seq: int = 128,
    hidden: int = 768,
    layers: int = 12,
    heads: int = 12,
    intermediate: int = 3072,
    vocab: int = 30522,
    positions: int = 512,
    dropout: float = 0.1,
    objective: str = "pooled",
    attention: str = "sdpa",
    dtype: str = "float32",
    optimizer: str = "adamw",
    train: bool = True,
) -> Step:
    """BERT of transformers; base by default, 109 M parameters.

    ``objective="pooled"`` is the encoder with pooler, whose pooled vector is regressed to a random one;
    ``"masked"`` is the encoder with the library's head for masked tokens instead (and its parameters).
    """
    divide("hidden", hidden, "heads", heads)
    choose("objective", objective, ("pooled", "masked"))
    check_attention(attention)
    if seq > positions:
        raise ValueError(f"seq={seq} needs positions={seq} or more, got positions={positions}")
    config = BertConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=intermediate,
        max_position_embeddings=positions,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    kind = as_dtype(dtype)
    family = AutoModel if objective == "pooled" else AutoModelForMaskedLM
    model = family.from_config(config, attn_implementation=attention, dtype=kind)
    ids = tokens(vocab, batch, seq)
    if objective == "masked":
        return library_step(model, {"input_ids": ids}, ids, optimizer, 1e-4, train)
    wanted = torch.randn(batch, hidden, dtype=kind)

    def loss_fn(output: Any) -> Tensor:
        return F.mse_loss(output.pooler_output, wanted)

    return training_step(model, {"input_ids": ids}, loss_fn, optimizer, lr=1e-4, clip=1.0, train=train)


@legal("hidden % heads == 0", "image % patch == 0")
def hf_vit(
    batch: int = 32,
    image: int = 224,
    patch: int = 16,
    hidden: int = 768,
    layers: int = 12,
    heads: int = 12,
    intermediate: int = 3072,
    classes: int = 1000,
    attention: str = "sdpa",
    dtype: str = "float32",
    optimizer: str = "adamw",
    train: bool = True,
) -> Step:
    """Vision transformer of transformers; B/16 by default, 86.6 M parameters."""
    divide("image", image, "patch", patch)
    divide("hidden", hidden, "heads", heads)
    config = ViTConfig(
        image_size=image,
        patch_size=patch,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=intermediate,
    )
    config.num_labels = classes
    check_attention(attention)
    model = AutoModelForImageClassification.from_config(config, attn_implementation=attention, dtype=as_dtype(dtype))
    images = torch.randn(batch, 3, image, image, dtype=as_dtype(dtype))
    labels = torch.randint(0, classes, (batch,))
    return library_step(model, {"pixel_values": images}, labels, optimizer, 1e-3, train)
