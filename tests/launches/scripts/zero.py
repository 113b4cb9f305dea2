"""Train a small transformer with DeepSpeed: ``python zero.py STAGE [cpu]``, the latter with its optimizer offloaded."""

import sys

import deepspeed
import torch
from torch import nn

stage, offload = int(sys.argv[1]), sys.argv[2:] == ["cpu"]
zero = {"stage": stage} | ({"offload_optimizer": {"device": "cpu"}} if offload else {})
config = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "bf16": {"enabled": True},
    "zero_optimization": zero,
}
deepspeed.init_distributed()
layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True)
model = nn.Sequential(nn.Embedding(1000, 256), nn.TransformerEncoder(layer, 4), nn.Linear(256, 1000))
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for _ in range(4):
    ids = torch.randint(0, 1000, (4, 128), device=engine.device)
    loss = nn.functional.cross_entropy(engine(ids).flatten(0, 1).float(), ids.flatten())
    engine.backward(loss)
    engine.step()
