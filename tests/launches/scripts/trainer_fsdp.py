"""Train a small Llama with the Trainer of transformers and FSDP: ``python trainer_fsdp.py [VERSION]`` (1, 2)."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

config = LlamaConfig(
    hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4, vocab_size=1000
)
data = [{"input_ids": ids, "labels": ids} for ids in torch.randint(0, 1000, (256, 128))]
arguments = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=4,
    max_steps=4,
    bf16=True,
    report_to=[],
    fsdp="full_shard auto_wrap",
    fsdp_config={"version": int(sys.argv[1]), "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]},
)
Trainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=data).train()
