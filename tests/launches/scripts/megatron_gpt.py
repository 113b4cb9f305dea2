"""Train a small GPT with Megatron-core's local layers on mock data: ``python megatron_gpt.py TENSOR``."""

import sys

import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_config import TransformerConfig

torch.distributed.init_process_group("nccl")
torch.cuda.set_device(0)
tensor = int(sys.argv[1])
parallel_state.initialize_model_parallel(tensor, 1)
tensor_parallel.model_parallel_cuda_manual_seed(1)
config = TransformerConfig(
    num_layers=4,
    hidden_size=256,
    num_attention_heads=8,
    tensor_model_parallel_size=tensor,
    pipeline_dtype=torch.bfloat16,
    params_dtype=torch.bfloat16,
    bf16=True,
    gradient_accumulation_fusion=False,
)
model = GPTModel(config, get_gpt_layer_local_spec(), vocab_size=1024, max_sequence_length=128).cuda().bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(4):
    ids = torch.randint(0, 1024, (4, 128), device="cuda")
    positions = torch.arange(128, device="cuda").expand(4, 128)
    mask = torch.ones(1, 1, 128, 128, device="cuda").triu(1).bool()
    model(ids, positions, mask, labels=ids).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
