"""Optimizers of other libraries, by the bytes of their states; and BERT and ViT as they were trained with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from benchmarks.published.images import Step


class LowBit(Optimizer):
    """Adam with states of ``bits`` bits and a scale in fp32 for each ``block``; small parameters have states in fp32.
    The update stands for one kernel per parameter, without temporaries."""

    def __init__(self, params: Iterable[nn.Parameter], bits: int, block: int) -> None:
        super().__init__(params, {})
        self.bits, self.block = bits, block

    def _made(self, parameter: Tensor) -> list[Tensor]:
        if parameter.numel() < 4096:
            return [torch.zeros_like(parameter) for _ in range(2)]
        codes, scales = parameter.numel() * self.bits // 8, -(-parameter.numel() // self.block)
        return [
            torch.zeros(count, dtype=dtype, device=parameter.device)
            for count, dtype in ((codes, torch.uint8), (scales, torch.float32))
            for _ in range(2)
        ]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        del closure
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            if not state:
                state.update(enumerate(self._made(parameter)))
            parameter.sub_(parameter.grad, alpha=1e-3)
            for part in state.values():
                part.add_(1)


class OneByOne(Optimizer):
    """AdamW of transformers in 2022: a loop over parameters, with one temporary of each."""

    def __init__(self, params: Iterable[nn.Parameter]) -> None:
        super().__init__(params, {})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        del closure
        for parameter in self.param_groups[0]["params"]:
            gradient, state = parameter.grad, self.state[parameter]
            if not state:
                state.update(mean=torch.zeros_like(parameter), square=torch.zeros_like(parameter))
            state["mean"].mul_(0.9).add_(gradient, alpha=0.1)
            state["square"].mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            parameter.addcdiv_(state["mean"], state["square"].sqrt().add_(1e-6), value=-1e-3)


def adafactor(params: Iterable[nn.Parameter]) -> Optimizer:
    """Adafactor of transformers."""
    from transformers.optimization import Adafactor

    return Adafactor(params, lr=1e-3, scale_parameter=False, relative_step=False)  # type: ignore[no-any-return]


class Softmax(torch.autograd.Function):
    """Softmax as PyTorch had it to 1.10: its backward pass is given the input, which is therefore kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = torch.softmax(x, -1)
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        x, out = ctx.saved_tensors
        return torch.ops.aten._softmax_backward_data(gradient, out, -1, x.dtype)  # type: ignore[no-any-return]


def _attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float = 0.0, **ignored: Any
) -> tuple[Tensor, Tensor]:
    """BERT's attention of 2022."""
    del ignored
    scores = torch.matmul(query, key.transpose(2, 3)) / query.shape[-1] ** 0.5
    scores = scores if mask is None else scores + mask
    if torch.is_autocast_enabled("cuda"):
        scores = scores.float()
    probabilities = F.dropout(Softmax.apply(scores), dropout, module.training)
    return torch.matmul(probabilities, value).transpose(1, 2).contiguous(), probabilities


def bert_large(
    batch: int, micro: int = 1, *, checkpoint: bool = False, half: bool = False, update: Callable[..., Any] = OneByOne
) -> Step:
    """BERT-large by the Trainer of 2022: eager attention, 512 tokens, ``micro`` batches, gradients zeroed in place."""
    from transformers import BertConfig, BertForSequenceClassification
    from transformers.models.bert import modeling_bert

    modeling_bert.eager_attention_forward = _attention
    sizes = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
    model = BertForSequenceClassification(BertConfig(**sizes, attn_implementation="eager")).cuda()
    if checkpoint:
        model.gradient_checkpointing_enable({"use_reentrant": True})
    optimizer, scaler = update(model.parameters()), torch.amp.GradScaler("cuda", enabled=half)
    ids, labels = torch.randint(30522, (batch, 512)), torch.randint(2, (batch,))

    def step() -> None:
        for _ in range(micro):
            given = {"input_ids": ids.cuda(), "labels": labels.cuda()}
            with torch.autocast("cuda", torch.float16, enabled=half):
                loss = model(**given).loss
            scaler.scale(loss / micro).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
        scaler.step(optimizer)
        scaler.update()
        model.zero_grad(set_to_none=False)

    return step


def vit_huge(update: Callable[..., Any]) -> Step:
    """ViT-H/14 with 45 labels under bf16 autocast, eager where the published step is compiled."""
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 1280, "num_hidden_layers": 32, "num_attention_heads": 16, "intermediate_size": 5120}
    model = ViTForImageClassification(ViTConfig(**sizes, patch_size=14, num_labels=45)).cuda()
    optimizer = update(model.parameters())
    images, labels = torch.randn(8, 3, 224, 224), torch.randint(45, (8,))

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(pixel_values=images.cuda(), labels=labels.cuda()).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


BERT: dict[str, Callable[[], Step]] = {
    "hfbert-b4": lambda: bert_large(4),
    "hfbert-b1ga4": lambda: bert_large(1, 4),
    "hfbert-b1ga4gc": lambda: bert_large(1, 4, checkpoint=True),
    "hfbert-b4fp16": lambda: bert_large(4, half=True),
    "hfbert-b1ga4gcfp16": lambda: bert_large(1, 4, checkpoint=True, half=True),
    "hfbert-b4adafactor": lambda: bert_large(4, update=adafactor),
    "hfbert-b1ga4gcfp16adafactor": lambda: bert_large(1, 4, checkpoint=True, half=True, update=adafactor),
    "hfbert-b4adam8": lambda: bert_large(4, update=lambda p: LowBit(p, 8, 2048)),
    "hfbert-b1ga4gcfp16adam8": lambda: bert_large(
        1, 4, checkpoint=True, half=True, update=lambda p: LowBit(p, 8, 2048)
    ),
}
"""The Trainer's guide, by row."""


def _eight() -> Step:
    return vit_huge(lambda params: LowBit(params, 8, 256))


VIT: dict[str, Callable[[], Step]] = {
    "ao-vith-fused": lambda: vit_huge(lambda params: torch.optim.AdamW(params, fused=True)),
    "ao-vith-bnb8": _eight,
    "ao-vith-ao8": _eight,
    "ao-vith-aofp8": _eight,
    "ao-vith-ao4": lambda: vit_huge(lambda params: LowBit(params, 4, 128)),
}
"""torchao's table of optimizers, by row."""
