"""Active parameters of mixtures of experts: all but those of the experts that a router does not choose."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tensortide import capture, count, report

WIDTH, INNER, EXPERTS, CHOSEN = 6, 5, 4, 2


class Stacked(nn.Module):
    """A router and experts in parameters of one module, with biases."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Parameter(torch.randn(EXPERTS, WIDTH))
        self.up = nn.Parameter(torch.randn(EXPERTS, WIDTH, INNER))
        self.down = nn.Parameter(torch.randn(EXPERTS, INNER, WIDTH))
        self.bias = nn.Parameter(torch.randn(EXPERTS, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The mean of all, times the weights of the chosen ones."""
        weights, _ = (x @ self.router.T).topk(CHOSEN)
        return (((x @ self.up).relu() @ self.down) + self.bias[:, None]).mean(0) * weights.sum(1, keepdim=True)


class Numbered(nn.Module):
    """A router and numbered modules, one expert each; and one that all tokens use."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.shared = nn.Linear(WIDTH, EXPERTS), nn.Linear(WIDTH, WIDTH)
        self.experts = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The shared one, and the first expert where it is chosen."""
        _, chosen = self.gate(x).topk(CHOSEN)
        result: torch.Tensor = self.shared(x) + self.experts[0](x) * (chosen == 0).sum(1, keepdim=True)
        return result


class Proposals(nn.Module):
    """The best of as many scores as the layer has rows: no experts."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, EXPERTS)
        self.other = nn.Linear(EXPERTS, EXPERTS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the best."""
        result: torch.Tensor = self.other(self.layer(x)).topk(CHOSEN)[0]
        return result


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize(
    ("kind", "idle"),
    [
        (Stacked, (EXPERTS - CHOSEN) * (2 * WIDTH * INNER + WIDTH)),
        (Numbered, (EXPERTS - CHOSEN) * (WIDTH * WIDTH + WIDTH)),
        (Proposals, 0),
    ],
)
def test_experts_that_are_not_chosen_are_idle(kind: type[nn.Module], idle: int, train: bool) -> None:
    def workload() -> Any:
        model, x = nn.Sequential(kind(), nn.Identity()), torch.randn(3, WIDTH)
        return lambda: model(x).sum().backward() if train else model(x)

    sizes = count(capture(workload)).sizes
    assert sizes.parameters == sum(each.numel() for each in kind().parameters())
    assert sizes.idle_parameters == idle
    assert sizes.active_parameters == sizes.parameters - idle


LLAMA: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 50,
    "num_experts_per_tok": 2,
}
LATENT = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8}
FAMILIES: dict[str, tuple[dict[str, Any], int]] = {
    "Mixtral": ({"num_local_experts": 4}, 2 * (4 - 2) * 3 * 32 * 48),
    "Qwen2Moe": ({"num_experts": 4, "moe_intermediate_size": 16, "decoder_sparse_step": 1}, 2 * (4 - 2) * 3 * 32 * 16),
    "DeepseekV3": (  # one of two layers is dense
        {**LATENT, "n_routed_experts": 8, "n_group": 2, "topk_group": 1, "moe_intermediate_size": 16}
        | {"first_k_dense_replace": 1},
        (8 - 2) * 3 * 32 * 16,
    ),
}


@pytest.mark.slow  # transformers is imported
@pytest.mark.parametrize("family", FAMILIES)
def test_mixtures_of_a_library(family: str) -> None:
    transformers = pytest.importorskip("transformers")
    settings, idle = FAMILIES[family]
    config = getattr(transformers, f"{family}Config")(**LLAMA, **settings)

    def workload() -> Any:
        model, ids = getattr(transformers, f"{family}ForCausalLM")(config).eval(), torch.zeros(2, 8).long()
        return lambda: model(ids, use_cache=False).logits

    counted = count(capture(workload))
    assert counted.sizes.idle_parameters == idle
    assert "active for each token" in str(report(counted.graph))
