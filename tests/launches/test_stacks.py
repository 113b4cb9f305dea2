"""Commands of training stacks are captured unmodified, as rank 0 of a group, on a machine without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tensortide.graph import load
from tensortide.graph.communication import kind_of
from tests.launches.conftest import Passed

pytestmark = pytest.mark.launches
SCRIPTS = Path(__file__).parent / "scripts"
TITAN = (
    "torchtitan/train.py --model.name llama3 --model.flavor debugmodel --model.hf_assets_path ASSETS"
    " --training.dataset c4_test --training.dataset_path ASSETS/text"
)


class Launch(NamedTuple):
    """A command, with the ranks that it is captured for and the collectives that its step must have."""

    stack: str
    ranks: int
    command: str
    collectives: str = ""


LAUNCHES = {
    "torchtitan FSDP2": Launch("torchtitan", 8, TITAN, "all_gather reduce_scatter"),
    "torchtitan tensor parallel": Launch(
        "torchtitan", 8, f"{TITAN} --parallelism.tensor_parallel_degree 2", "all_gather reduce_scatter all_reduce"
    ),
    "torchtitan context parallel": Launch(
        "torchtitan", 8, f"{TITAN} --parallelism.context_parallel_degree 2", "all_gather reduce_scatter"
    ),
    "torchtitan pipeline parallel": Launch(
        "torchtitan", 8, f"{TITAN} --parallelism.pipeline_parallel_degree 2", "send_recv all_gather"
    ),
    "torchtitan pipeline parallel, 1F1B": Launch(
        "torchtitan",
        8,
        f"{TITAN} --parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule 1F1B",
        "send_recv all_gather",
    ),
    "torchtitan deepseek_v3, expert parallel": Launch(
        "torchtitan",
        8,
        f"{TITAN} --parallelism.expert_parallel_degree 2".replace("llama3", "deepseek_v3"),
        "all_to_all all_gather reduce_scatter",
    ),
    "torchtitan qwen3, expert parallel": Launch(
        "torchtitan",
        8,
        f"{TITAN} --parallelism.expert_parallel_degree 4".replace("llama3", "qwen3").replace(
            "debugmodel", "debugmodel_moe"
        ),
        "all_to_all all_gather reduce_scatter",
    ),
    "torchtitan compiled": Launch("torchtitan", 8, f"{TITAN} --compile.enable", "all_gather reduce_scatter"),
    "DeepSpeed ZeRO 0": Launch("deepspeed", 4, "zero.py 0", "all_reduce"),
    "DeepSpeed ZeRO 1": Launch("deepspeed", 4, "zero.py 1", "all_gather"),
    "DeepSpeed ZeRO 2": Launch("deepspeed", 4, "zero.py 2", "all_gather"),
    "DeepSpeed ZeRO 3": Launch("deepspeed", 4, "zero.py 3", "all_gather"),
    "DeepSpeed ZeRO 3, optimizer on the host": Launch("deepspeed", 4, "zero.py 3 cpu", "all_gather"),
    "Lightning DDP": Launch("lightning", 2, "lightning_ddp.py ddp", "all_reduce"),
    "Lightning FSDP": Launch("lightning", 2, "lightning_ddp.py fsdp", "all_gather reduce_scatter"),
    "litgpt LoRA": Launch(
        "litgpt",
        1,
        "bin/litgpt finetune_lora ASSETS/pythia --data JSON --data.json_path ASSETS/pythia/data.json"
        " --data.val_split_fraction 0.1 --out_dir out --precision bf16-true"
        " --train.max_steps 40 --train.micro_batch_size 2 --train.global_batch_size 4",
    ),
    "Megatron-core tensor parallel": Launch("megatron_core", 4, "megatron_gpt.py 2", "all_reduce"),
    "PEFT LoRA": Launch("peft", 1, "lora.py"),
    "PEFT QLoRA": Launch("peft bitsandbytes", 1, "lora.py 4bit"),
    "Accelerate FSDP2": Launch(
        "accelerate", 4, "accelerate launch --config_file fsdp2.yaml accelerate_fsdp.py", "all_gather reduce_scatter"
    ),
    "Trainer FSDP2": Launch("transformers", 4, "trainer_fsdp.py 2", "all_gather reduce_scatter"),
    "TRL SFT": Launch(
        "trl",
        1,
        "trl/scripts/sft.py --model_name_or_path ASSETS/model --dataset_name ASSETS/text --output_dir out"
        " --per_device_train_batch_size 2 --gradient_accumulation_steps 2 --report_to none",
    ),
    "torchtitan HSDP": Launch(
        "torchtitan",
        8,
        f"{TITAN} --parallelism.data_parallel_replicate_degree 2",
        "all_gather reduce_scatter all_reduce",
    ),
}


def text_and_tokenizer(folder: Path) -> None:
    """Write what torchtitan reads: lines of text, and a tokenizer of their words."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    words = ["the", "tide", "rises", "and", "falls", "at", "dawn", "and", "at", "dusk"]
    vocabulary = {word: number for number, word in enumerate(["<s>", "</s>", "<unk>", *dict.fromkeys(words)])}
    tokenizer = Tokenizer(WordLevel(vocabulary, "<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    line = json.dumps({"text": " ".join(words * 200)})
    (folder / "text").mkdir()
    (folder / "text" / "data.json").write_text("\n".join([line] * 200))


def model_and_its_tokenizer(folder: Path, text: Path) -> None:
    """Write a small language model with its weights, and a tokenizer of ``text``, as ``from_pretrained`` reads them."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

    end = "<|endoftext|>"
    pairs = ByteLevelBPETokenizer()
    pairs.train([str(text)], vocab_size=400, special_tokens=[end])
    vocabulary, merges = pairs.save_model(str(text.parent.parent))
    tokens = Qwen2Tokenizer(vocabulary, merges, unk_token=end, eos_token=end, pad_token=end)
    tokens.save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=1000,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_step_is_captured(name: str, site: Path, passed: Passed, tmp_path: Path) -> None:
    launch = LAUNCHES[name]
    paths = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(site)])
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": paths, "PATH": places}
    text_and_tokenizer(tmp_path)
    if "ASSETS/model" in launch.command or "ASSETS/pythia" in launch.command:
        model_and_its_tokenizer(tmp_path / "model", tmp_path / "text" / "data.json")
    if "ASSETS/pythia" in launch.command:
        written = [str(SCRIPTS / "litgpt_checkpoint.py"), str(tmp_path / "pythia"), str(tmp_path / "model")]
        subprocess.run([sys.executable, *written], check=True, env=environment)
    words = launch.command.replace("ASSETS", str(tmp_path)).split()
    files = [next((str(each / word) for each in (SCRIPTS, site) if (each / word).is_file()), word) for word in words]
    launcher = [sys.executable] if words[0].endswith(".py") else []
    own = [sys.executable, "-m", "tensortide", "capture", "-o", "step.tide", "--machine", "h100"]
    ranks = ["--ranks", str(launch.ranks)] if launch.ranks > 1 else []
    started = time.monotonic()
    done = subprocess.run(
        [*own, *ranks, "--", *launcher, *files],
        check=False,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    graph = load(tmp_path / "step.tide")
    assert graph.index.main_device == "cuda:0"
    assert set(launch.collectives.split()) <= {kind_of(op.name) for op in graph}
    options = f"--machine h100 {' '.join(ranks)}".strip()
    passed(
        name,
        launch.stack,
        f"tensortide memory {options} -- {'python ' if launcher else ''}{launch.command}",
        time.monotonic() - started,
    )
