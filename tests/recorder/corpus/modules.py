"""Modules of PyTorch that look at values, or change their own parameters."""

from __future__ import annotations

import torch
from torch import nn

from tests.recorder.steps import Step, trained


def transformer_with_mask() -> Step:
    model, x = nn.Transformer(16, 2, 1, 1, 32, batch_first=True), torch.randn(4, 7, 16)
    mask = nn.Transformer.generate_square_subsequent_mask(7)
    return trained(model, lambda: model(x, x, tgt_mask=mask).sum())


def encoder_with_padding() -> Step:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 2), torch.randn(4, 7, 16)
    padding = torch.arange(7)[None] >= torch.tensor([7, 5, 3, 4])[:, None]
    return trained(model, lambda: model(x, src_key_padding_mask=padding).sum())


def decoder_with_masks() -> Step:
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 32, batch_first=True), 2)
    x, mask = torch.randn(4, 7, 16), nn.Transformer.generate_square_subsequent_mask(7)
    return trained(model, lambda: model(x, x, tgt_mask=mask, tgt_is_causal=True).sum())


def sparse_embedding() -> Step:
    model, tokens = nn.Embedding(1000, 16, sparse=True), torch.randint(0, 1000, (8,))
    return trained(model, lambda: model(tokens).sum(), torch.optim.SparseAdam(model.parameters()))


def adaptive_softmax() -> Step:
    model, x, y = nn.AdaptiveLogSoftmaxWithLoss(16, 100, [10, 50]), torch.randn(8, 16), torch.randint(0, 100, (8,))
    return trained(model, lambda: model(x, y).loss)


def weight_norm() -> Step:
    model, x = nn.utils.parametrizations.weight_norm(nn.Linear(16, 4)), torch.randn(8, 16)
    return trained(model, lambda: model(x).sum())


def spectral_norm() -> Step:
    model, x = nn.utils.parametrizations.spectral_norm(nn.Linear(16, 4)), torch.randn(8, 16)
    return trained(model, lambda: model(x).sum())


def orthogonal() -> Step:
    model, x = nn.utils.parametrizations.orthogonal(nn.Linear(8, 8)), torch.randn(8, 8)
    return trained(model, lambda: model(x).sum())


def pruned() -> Step:
    from torch.nn.utils import prune

    layer, x = nn.Linear(16, 4), torch.randn(8, 16)
    prune.l1_unstructured(layer, "weight", amount=0.3)
    return trained(layer, lambda: layer(x).sum())
