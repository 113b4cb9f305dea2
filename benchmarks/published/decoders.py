"""Decoders as litgpt, torchtitan and torchtune train them: what each keeps for backward differs in the norms, the
rotation and the adapters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.published.images import Step


class Sizes(NamedTuple):
    """Sizes of a decoder; ``plain`` has layer norms, biases and an MLP without gate, beside attention (Phi)."""

    width: int
    layers: int
    heads: int
    shared: int
    inner: int
    vocab: int
    head: int = 0
    tied: bool = False
    plain: bool = False

    @property
    def size(self) -> int:
        return self.head or self.width // self.heads


LLAMA_2_7B = Sizes(4096, 32, 32, 32, 11008, 32000)
LLAMA_2_13B = Sizes(5120, 40, 40, 40, 13824, 32000)
LLAMA_3_8B = Sizes(4096, 32, 32, 8, 14336, 128256)
LLAMA_32_1B = Sizes(2048, 16, 32, 8, 8192, 128256, tied=True)
LLAMA_32_3B = Sizes(3072, 28, 24, 8, 8192, 128256, tied=True)
TINY_LLAMA = Sizes(2048, 22, 32, 4, 5632, 32000)
GEMMA_2B = Sizes(2048, 18, 8, 1, 16384, 256000, head=256, tied=True)
PHI_15 = Sizes(2048, 24, 32, 32, 8192, 51200, plain=True)
PHI_2 = Sizes(2560, 32, 32, 32, 10240, 51200, plain=True)


class Kind(NamedTuple):
    """A trainer's ways: ``one_qkv`` product; ``fused_norm`` of PyTorch; the rank of adapters and where they are."""

    one_qkv: bool = False
    fused_norm: bool = False
    rank: int = 0
    adapted: frozenset[str] = frozenset()
    dropout: float = 0.0
    quantized: int = 0


class Norm(nn.Module):
    """RMS norm in fp32, of the type of its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return (normed * self.weight.float()).type_as(x)


class Frozen(nn.Module):
    """A linear layer of 4-bit codes with a scale in fp32 for every 64 of them, or 8 bits where they are quantized once
    more; decoded for each product, as bitsandbytes' own kernel decodes it."""

    def __init__(self, inputs: int, outputs: int, *, twice: bool) -> None:
        super().__init__()
        count, blocks = inputs * outputs, inputs * outputs // 64
        self.shape = (outputs, inputs)
        self.register_buffer("codes", torch.empty(count // 2, dtype=torch.uint8))
        self.register_buffer("scales", torch.empty(blocks, dtype=torch.uint8 if twice else torch.float32))
        if twice:
            self.register_buffer("outer", torch.empty(-(-blocks // 256), dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        return Decoded.apply(x, self.codes, self.shape)


class Decoded(torch.autograd.Function):
    """A product with a matrix that is decoded when it is needed, forward and backward. The input is kept, as by
    bitsandbytes in 2023 and 2024, though nothing needs it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, codes: Tensor, shape: tuple[int, int]) -> Tensor:
        ctx.x, ctx.codes, ctx.shape = x, codes, shape
        return F.linear(x, codes.new_empty(shape, dtype=x.dtype))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient @ ctx.codes.new_empty(ctx.shape, dtype=gradient.dtype), None, None


class Linear(nn.Module):
    """A linear layer, frozen and with an adapter of low rank where ``kind`` says so."""

    def __init__(self, inputs: int, outputs: int, kind: Kind, place: str, bias: bool = False, padded: int = 0) -> None:
        super().__init__()
        self.scale, self.padded, self.rank = 2.0, padded, kind.rank if place[0] in kind.adapted else 0
        if kind.quantized and place != "head":
            self.base: nn.Module = Frozen(inputs, outputs, twice=kind.quantized == 2)
        else:
            self.base = nn.Linear(inputs, outputs, bias=bias).requires_grad_(not kind.rank)
        self.dropout = nn.Dropout(kind.dropout) if kind.dropout else nn.Identity()
        if self.rank:
            parts = 2 if padded else 1
            self.down = nn.Parameter(torch.empty(self.rank * parts, inputs))
            self.up = nn.Parameter(torch.empty(padded or outputs, self.rank))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x)
        if not self.rank:
            return out
        if not self.padded:
            return out + (self.dropout(x) @ self.down.transpose(0, 1) @ self.up.transpose(0, 1)) * self.scale
        # queries and values of one product: a grouped convolution, spread over all three parts of the output
        low = F.linear(self.dropout(x), self.down)
        both = torch.cat([F.linear(part, up) for part, up in zip(low.chunk(2, -1), self._parts(), strict=True)], -1)
        wide = x.new_zeros(*x.shape[:-1], out.shape[-1])
        wide = wide.index_copy(-1, self._places(out), both)
        return out + wide * self.scale

    def _parts(self) -> tuple[Tensor, Tensor]:
        values = (self.base_outputs - self.padded) or self.padded // 2
        return self.up[:-values], self.up[-values:]

    @property
    def base_outputs(self) -> int:
        shape = self.base.shape if isinstance(self.base, Frozen) else self.base.weight.shape
        return int(shape[0])

    def _places(self, out: Tensor) -> Tensor:
        return torch.arange(self.padded, device=out.device)


class Attention(nn.Module):
    """Causal attention with rotated queries and keys."""

    def __init__(self, sizes: Sizes, kind: Kind) -> None:
        super().__init__()
        self.sizes, self.kind = sizes, kind
        own, shared = sizes.heads * sizes.size, sizes.shared * sizes.size
        if kind.one_qkv:
            both = own + shared if kind.adapted & {"q"} and not kind.adapted & {"k"} else 0
            self.qkv = Linear(sizes.width, own + 2 * shared, kind, "qkv", sizes.plain, padded=both)
        else:
            self.q = Linear(sizes.width, own, kind, "q")
            self.k = Linear(sizes.width, shared, kind, "k")
            self.v = Linear(sizes.width, shared, kind, "v")
        self.out = Linear(own, sizes.width, kind, "out", sizes.plain)

    def forward(self, x: Tensor, turn: Tensor, mask: Tensor | None) -> Tensor:
        batch, length, _ = x.shape
        heads, shared, size = self.sizes.heads, self.sizes.shared, self.sizes.size
        if self.kind.one_qkv:
            each = heads // shared
            whole = self.qkv(x).view(batch, length, shared, each + 2, size).permute(0, 2, 3, 1, 4)
            q, k, v = whole.split((each, 1, 1), dim=2)
            q, k, v = (part.reshape(batch, -1, length, size) for part in (q, k, v))
            q, k = _turned_halves(q, turn), _turned_halves(k, turn)
        else:
            q, k, v = (part(x).view(batch, length, -1, size) for part in (self.q, self.k, self.v))
            q, k = _turned_pairs(q, turn), _turned_pairs(k, turn)
            if each := heads // shared if heads != shared else 0:
                k, v = (_repeated(part, each) for part in (k, v))
            q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        if k.shape[1] != heads:
            k, v = (part.repeat_interleave(heads // k.shape[1], 1) for part in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, heads * size))


def _turned_halves(x: Tensor, turn: Tensor) -> Tensor:
    """Rotated as two halves, in the type of ``x``."""
    cos, sin = turn.real.to(x.dtype).repeat(1, 2), turn.imag.to(x.dtype).repeat(1, 2)
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def _turned_pairs(x: Tensor, turn: Tensor) -> Tensor:
    """Rotated as complex numbers in fp32."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turn[None, :, None]).flatten(3).type_as(x)


def _repeated(x: Tensor, each: int) -> Tensor:
    batch, length, heads, size = x.shape
    return x[:, :, :, None].expand(batch, length, heads, each, size).reshape(batch, length, heads * each, size)


class Block(nn.Module):
    """Attention and feed-forward."""

    def __init__(self, sizes: Sizes, kind: Kind) -> None:
        super().__init__()
        norm = nn.LayerNorm if sizes.plain else nn.RMSNorm if kind.fused_norm else Norm
        self.plain, self.norm1 = sizes.plain, norm(sizes.width)
        self.norm2 = None if sizes.plain else norm(sizes.width)
        self.attention = Attention(sizes, kind)
        self.up = Linear(sizes.width, sizes.inner, kind, "mlp", sizes.plain)
        self.gate = None if sizes.plain else Linear(sizes.width, sizes.inner, kind, "mlp")
        self.down = Linear(sizes.inner, sizes.width, kind, "mlp", sizes.plain)

    def forward(self, x: Tensor, turn: Tensor, mask: Tensor | None = None) -> Tensor:
        normed = self.norm1(x)
        mixed = self.attention(normed, turn, mask)
        if self.norm2 is None or self.gate is None:
            return self.down(F.gelu(self.up(normed), approximate="tanh")) + mixed + x
        x = x + mixed
        normed = self.norm2(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Decoder(nn.Module):
    """Token ids -> logits; with ``chunk``, a list of logits of so many tokens each."""

    def __init__(self, sizes: Sizes, kind: Kind, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocab, sizes.width).requires_grad_(not kind.rank)
        self.blocks = nn.ModuleList(Block(sizes, kind) for _ in range(sizes.layers))
        last = nn.LayerNorm if sizes.plain else nn.RMSNorm if kind.fused_norm else Norm
        self.norm = last(sizes.width)
        self.head = Linear(sizes.width, sizes.vocab, kind, "head", sizes.plain)
        if sizes.tied and isinstance(self.head.base, nn.Linear):
            self.head.base.weight = self.tokens.weight
        angle = torch.outer(torch.arange(length).float(), 1e4 ** (-torch.arange(0, sizes.size, 2).float() / sizes.size))
        self.turn: Tensor
        self.register_buffer("turn", torch.polar(torch.ones_like(angle), angle), persistent=False)
        if kind.rank:
            for module in self.modules():
                if isinstance(module, Norm | nn.RMSNorm | nn.LayerNorm):
                    module.requires_grad_(False)

    def hidden(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x, self.turn[: ids.shape[1]], mask)
        return self.norm(x)  # type: ignore[no-any-return]

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.head(self.hidden(ids, mask))  # type: ignore[no-any-return]


def titan(sizes: Sizes, batch: int, length: int, *, some: bool, early: bool = False) -> Step:
    """torchtitan's training: FSDP2 with shards of fp32, computing in bf16, sums in fp32. Blocks are recomputed, or
    ``some`` of their ops: all but attention and every other product. ``early`` versions kept the logits, in fp32."""
    import torch.distributed as dist
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    dist.init_process_group("nccl")
    with torch.device("cuda"):
        model: nn.Module = Decoder(sizes, Kind(), length)
    blocks = model.blocks
    for index, block in enumerate(blocks):
        context = {"context_fn": _every_other_product} if some else {}
        blocks[index] = checkpoint_wrapper(block, preserve_rng_state=False, **context)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    for index, block in enumerate(blocks):
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=index < len(blocks) - 1)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    update = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    ids = torch.randint(sizes.vocab, (batch, length + 1))

    def step() -> None:
        moved = ids.cuda()
        update.zero_grad()
        logits = model(moved[:, :-1])
        logits = logits.float() if early else logits
        loss = F.cross_entropy(logits.flatten(0, 1).float(), moved[:, 1:].flatten())
        if not early:
            del logits
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        update.step()

    return step


def _every_other_product() -> Any:
    """The context of checkpoints that keep attention, sums over ranks and every other product."""
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    aten: Any = torch.ops.aten
    kept = {aten._scaled_dot_product_flash_attention.default, aten._scaled_dot_product_efficient_attention.default}
    seen = {False: 0, True: 0}

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        del args, kwargs
        if op is aten.mm.default:
            seen[context.is_recompute] += 1
            keep = seen[context.is_recompute] % 2 == 1
        else:
            keep = op in kept
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def _parameters(model: nn.Module) -> Iterator[nn.Parameter]:
    return (parameter for parameter in model.parameters() if parameter.requires_grad)


def half(sizes: Sizes, kind: Kind, length: int) -> Decoder:
    """A decoder of bf16 on the GPU."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            return Decoder(sizes, kind, length)
    finally:
        torch.set_default_dtype(before)


def litgpt(sizes: Sizes, batch: int, length: int, *, rank: int = 0, adapted: str = "", quantized: int = 0) -> Step:
    """litgpt's fine-tuning, with logits of 128 tokens at a time; ``adapted`` names places by their first letters, and
    without any the whole model is trained. A step of many micro batches: gradients are there from the one before."""
    sizes = sizes._replace(tied=False)
    kind = Kind(True, False, rank, frozenset(adapted), 0.05 if rank else 0.0, quantized)
    model = half(sizes, kind, length)
    update = torch.optim.AdamW(_parameters(model), lr=3e-4)
    ids = torch.randint(sizes.vocab, (batch, length))

    def loss() -> Tensor:
        moved = ids.cuda()
        logits = [model.head(part).float() for part in model.hidden(moved).split(128, dim=1)]  # Fabric casts outputs
        logits[-1] = logits[-1][..., :-1, :]
        targets = moved[..., 1:].split(128, dim=1)
        parts = [
            F.cross_entropy(out.reshape(-1, out.size(-1)), want.reshape(-1), ignore_index=-1, reduction="none")
            for out, want in zip(logits, targets, strict=False)
        ]
        return torch.cat(parts).mean()

    def step() -> None:
        for _ in range(2):
            loss().backward()
        update.step()
        update.zero_grad()

    return step


_QV, _ALL = {"rank": 8, "adapted": "qv"}, "qkvomh"
LITGPT: dict[str, tuple[Sizes, int, int, dict[str, Any]]] = {
    "lgrt-phi15-b1": (PHI_15, 1, 1044, _QV),
    "lgrt-phi15-b1-nf4": (PHI_15, 1, 1044, {**_QV, "quantized": 1}),
    "lgrt-phi15-b1-nf4dq": (PHI_15, 1, 1044, {**_QV, "quantized": 2}),
    "lgrt-phi15-b2": (PHI_15, 2, 1044, _QV),
    "lgrt-phi15-b4": (PHI_15, 4, 1044, _QV),
    "lgrt-l2_7-b1": (LLAMA_2_7B, 1, 1304, _QV),
    "lgrt-l2_7-b1-nf4": (LLAMA_2_7B, 1, 1304, {**_QV, "quantized": 1}),
    "lgrt-l2_7-b1-nf4dq": (LLAMA_2_7B, 1, 1304, {**_QV, "quantized": 2}),
    "lgrt-l2_7-b2": (LLAMA_2_7B, 2, 1304, _QV),
    "lgrt-l2_13-b1": (LLAMA_2_13B, 1, 1304, _QV),
    "lgrt-l2_13-b1-nf4": (LLAMA_2_13B, 1, 1304, {**_QV, "quantized": 1}),
    "lgrt-l2_13-b1-nf4dq": (LLAMA_2_13B, 1, 1304, {**_QV, "quantized": 2}),
    "lgch-tiny-llama-full": (TINY_LLAMA, 4, 512, {}),
    "lgch-tiny-llama-lora": (TINY_LLAMA, 8, 512, {"rank": 32, "adapted": _ALL}),
    "lgch-gemma-2b-lora": (GEMMA_2B, 2, 512, {"rank": 8, "adapted": _ALL}),
    "lgch-llama-2-7b-lora": (LLAMA_2_7B, 2, 512, {"rank": 32, "adapted": "qv"}),
    "lgch-llama-2-7b-qlora": (LLAMA_2_7B, 2, 512, {"rank": 32, "adapted": "qv", "quantized": 1}),
    "lgch-phi-2-lora": (PHI_2, 4, 512, {"rank": 8, "adapted": _ALL}),
    "lgch-llama-3.2-1B-lora": (LLAMA_32_1B, 1, 512, {"rank": 32, "adapted": "qv"}),
    "lgch-llama-3.2-3B-lora": (LLAMA_32_3B, 1, 512, {"rank": 32, "adapted": "qv"}),
}
"""litgpt's tables of one GPU, by row: sizes, batch, length, adapters. The head is a layer of its own, also where
the model has the embedding for it."""

TITAN: dict[str, tuple[Sizes, int, int, bool, bool, int]] = {
    "tt-1d8-eager": (LLAMA_3_8B, 2, 8192, True, False, 8),
    "tt-1d128-eager": (LLAMA_3_8B, 2, 8192, True, False, 128),
    "tt-pr165-fsdp2-ac-active": (LLAMA_2_7B, 8, 2048, False, True, 8),
    "tt-pr165-fsdp2-ac-reserved": (LLAMA_2_7B, 8, 2048, False, True, 8),
    "tt-pr165-fsdp2-sac-active": (LLAMA_2_7B, 8, 2048, True, True, 8),
    "tt-pr165-fsdp2-sac-reserved": (LLAMA_2_7B, 8, 2048, True, True, 8),
}
"""torchtitan's rows that are not compiled, by row: sizes, batch, length, ``some`` and ``early``, ranks."""
