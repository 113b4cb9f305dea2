"""Models of transformers, trained as its Trainer does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, ViTConfig, ViTForImageClassification

from benchmarks.published.images import Step


def _trainer(model: Any, batch: dict[str, Any]) -> Step:
    model, batch = model.cuda(), {name: value.cuda() for name, value in batch.items()}
    groups = [[p for p in model.parameters() if (p.dim() > 1) is decays] for decays in (True, False)]
    update = torch.optim.AdamW([{"params": group} for group in groups], lr=5e-5)

    def step() -> Any:
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update.step()
        model.zero_grad()
        return loss.detach()

    return step


def gpt2() -> Step:
    """GPT-2 small, with the mask that its attention kept as a buffer in 2024."""
    model, ids = GPT2LMHeadModel(GPT2Config()), torch.randint(50257, (2, 16))
    for block in model.transformer.h:
        block.attn.register_buffer("bias", torch.ones(1, 1, 1024, 1024, dtype=torch.bool), persistent=False)
    return _trainer(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids})


def bert() -> Step:
    """BERT base with its masked-language head."""
    ids = torch.randint(30522, (2, 16))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
    return _trainer(BertForMaskedLM(BertConfig()), {**batch, "labels": ids})


def vit() -> Step:
    """ViT-B/16 with 1000 labels."""
    batch = {"pixel_values": torch.randn(2, 3, 224, 224), "labels": torch.randint(1000, (2,))}
    return _trainer(ViTForImageClassification(ViTConfig(num_labels=1000)), batch)


AMD = "MI250 (1 GCD of 2)"
EXACT: dict[str, tuple[Callable[[], Step], str]] = {
    "ob-gpt2-rocm": (gpt2, AMD),
    "ob-bert-rocm": (bert, AMD),
    "ob-vit-rocm": (vit, AMD),
}
"""Byte-exact reports. PyTorch of 2024 gave no workspace to AMD's BLAS: that of today is left out."""
