"""Train a small Llama with Accelerate, by the configuration that the launcher has read."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4, vocab_size=1000
)
model = LlamaForCausalLM(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
accelerator = Accelerator()
data = DataLoader(torch.randint(0, 1000, (256, 128)), batch_size=4)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for ids in data:
    accelerator.backward(model(input_ids=ids, labels=ids).loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
