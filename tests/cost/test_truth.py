"""Published models, to the last digit: forward products, forward and backward products, parameters."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tensortide.cost import count
from tensortide.examples import find
from tests.cost.probe import capture
from tests.marks import since, some_slow

Build = Callable[..., Any]


def step_of(model: nn.Module, x: torch.Tensor, call: Callable[[nn.Module, torch.Tensor], list[torch.Tensor]]) -> Any:
    def forward() -> Any:
        with torch.no_grad():
            return call(model, x)

    def both() -> None:
        torch.stack([out.sum() for out in call(model, x)]).sum().backward()
        model.zero_grad()

    return both if model.training else forward


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(256, 512, 2, batch_first=True)
        self.head = nn.Linear(512, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.lstm(x)[0][:, -1])
        return result


def lstm(train: bool) -> Any:
    return step_of(Recurrent().train(train), torch.randn(1, 100, 256), lambda model, x: [model(x)])


def transformer(name: str, sequence: int) -> Build:
    def build(train: bool) -> Any:
        transformers = pytest.importorskip("transformers")
        if name == "bert":
            model = transformers.BertModel(transformers.BertConfig())
        elif name == "gpt2":
            model = transformers.GPT2LMHeadModel(transformers.GPT2Config())
        else:
            sizes = {"hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 2}
            config = transformers.LlamaConfig(**sizes, intermediate_size=1376, vocab_size=32000)
            model = transformers.LlamaForCausalLM(config)
        options = {} if name == "bert" else {"use_cache": False}
        return step_of(
            model.train(train),
            torch.zeros(1, sequence, dtype=torch.int64),
            lambda model, x: list(model(x, **options).to_tuple()),
        )

    return build


def example(name: str, **options: Any) -> Build:
    return lambda train: find(name).load()(batch=1, train=train, **options)


MODELS: dict[str, Build] = {
    "resnet18_cifar": example("resnet18_cifar"),
    "resnet18": example("resnet18"),
    "resnet50": example("resnet50"),
    "tv_vit_b16": example("vit"),
    "bert_base": transformer("bert", 128),
    "gpt2_s128": transformer("gpt2", 128),
    "llama_gqa": transformer("llama", 512),
    "lstm": lstm,
}


@pytest.fixture(scope="module")
def truth(reference: Path) -> dict[str, Any]:
    models: dict[str, Any] = json.loads((reference / "counters" / "truth.json").read_text())["models"]
    return models


@pytest.mark.parametrize(
    "name", some_slow(MODELS, {"resnet18", "gpt2_s128", "resnet50", "tv_vit_b16", "llama_gqa", "bert_base"})
)
def test_model(name: str, truth: dict[str, Any]) -> None:
    published = truth[name]
    forward = count(capture(MODELS[name], train=False), strict=True)
    assert forward.total.macs == published["fwd_macs"]
    assert forward.sizes.parameters == published["params"]
    if "fwd_bwd_flops" not in published:
        return
    phases = count(capture(MODELS[name], train=True), strict=True).by_phase
    assert phases["forward"].macs == published["fwd_macs"]
    assert 2 * (phases["forward"].macs + phases["backward"].macs) == published["fwd_bwd_flops"]


@pytest.mark.parametrize(
    ("name", "options"),
    [("gpt2", {"seq": 1024}), pytest.param("llama", {"seq": 512}, marks=since(2, 8, "no fused kernel shares heads"))],
    ids=["gpt2", "llama"],
)
def test_causal_models_know_their_active_part(name: str, options: dict[str, Any], truth: dict[str, Any]) -> None:
    published = truth["llama_gqa" if name == "llama" else name]
    forward = count(capture(find(name).load(), batch=1, train=False, **options)).total.cost
    assert (forward.macs, forward.active_macs) == (published["fwd_macs"], published["fwd_macs_causal"])
