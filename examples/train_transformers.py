"""A model of Hugging Face transformers under a memory budget: a tiny Llama with random weights, nothing is downloaded.

python examples/train_transformers.py --budget 12MiB              a loop of one's own
python examples/train_transformers.py --budget 24MiB --trainer    transformers.Trainer; needs accelerate
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import tensortide

VOCAB = 256


def model_and_data(rows: int, seq: int) -> tuple[LlamaForCausalLM, list[dict[str, torch.Tensor]]]:
    """Sequences that count upwards, each from another number."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=seq,
    )
    ids = (torch.randint(0, VOCAB, (rows, 1)) + torch.arange(seq)) % VOCAB
    return LlamaForCausalLM(config), [{"input_ids": row, "labels": row} for row in ids]


def loop(model: LlamaForCausalLM, data: list[dict[str, torch.Tensor]], steps: int, batch: int) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    model.train()
    for step in range(steps):
        ids = torch.stack([row["input_ids"] for row in data[step * batch : (step + 1) * batch]])
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def with_trainer(model: LlamaForCausalLM, data: list[dict[str, torch.Tensor]], steps: int, batch: int) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            folder,
            per_device_train_batch_size=batch,
            max_steps=steps,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Trainer(model=model, args=settings, train_dataset=data)
        trainer.train()
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", help="most memory for tensors, such as 12MiB; without it there is no limit")
    parser.add_argument("--trainer", action="store_true", help="let transformers.Trainer do the steps")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq", type=int, default=64)
    options = parser.parse_args(arguments)

    model, data = model_and_data(options.steps * options.batch, options.seq)
    train = with_trainer if options.trainer else loop
    with tensortide.budget(options.budget) if options.budget else contextlib.nullcontext():
        losses = train(model, data, options.steps, options.batch)
    for step, loss in enumerate(losses):
        print(step, loss.hex(), f"{loss:.4f}")


if __name__ == "__main__":
    main()
