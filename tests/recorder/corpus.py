# ruff: noqa: C408
# mypy: disable-error-code="no-any-return, arg-type, unused-ignore"
"""Ordinary workloads as people write them: what a capture should take without a word from the user.

``python -m tests.recorder.corpus`` captures each on fake tensors and says how that went.
"""

from __future__ import annotations

import copy
import itertools
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tensortide import capture
from tensortide.errors import TensortideError

Step = Callable[[], Any]
Workload = Callable[[], Step]
CORPUS: dict[str, Workload] = {}


def workload(make: Workload) -> Workload:
    """Enter ``make`` into the corpus."""
    CORPUS[make.__name__] = make
    return make


def trained(model: nn.Module, loss: Callable[[], torch.Tensor], optimizer: Any = None) -> Step:
    """A training step of ``model``, as in a tutorial."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return value.detach()

    return step


def mlp(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inner, outer in itertools.pairwise(sizes):
        layers += [nn.Linear(inner, outer), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


# -- losses, logging, control flow ---------------------------------------------------------------


@workload
def logged_loss() -> Step:
    model, x, history = mlp(16, 32, 4), torch.randn(8, 16), list[float]()
    step = trained(model, lambda: model(x).pow(2).mean())
    return lambda: history.append(step().item())


@workload
def nan_guard() -> Step:
    model, x = mlp(16, 32, 4), torch.randn(8, 16)

    def loss() -> torch.Tensor:
        value: torch.Tensor = model(x).pow(2).mean()
        if not torch.isfinite(value):
            raise FloatingPointError(value)
        return value

    return trained(model, loss)


@workload
def clipped_gradients() -> Step:
    model, x = mlp(16, 32, 4), torch.randn(8, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step() -> float:
        model(x).sum().backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        optimizer.step()
        optimizer.zero_grad()
        return float(norm)

    return step


@workload
def scaled_gradients() -> Step:
    model, x = mlp(16, 32, 4), torch.randn(8, 16)
    optimizer, scaler = torch.optim.Adam(model.parameters()), torch.amp.GradScaler("cpu")

    def step() -> float:
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return scaler.get_scale()

    return step


@workload
def best_so_far() -> Step:
    model, x = mlp(16, 4), torch.randn(8, 16)
    best: dict[str, Any] = {"loss": float("inf")}
    step = trained(model, lambda: model(x).pow(2).mean())

    def watched() -> None:
        loss = step().item()
        if loss < best["loss"]:
            best.update(loss=loss, state=copy.deepcopy(model.state_dict()))

    return watched


@workload
def plateau_scheduler() -> Step:
    model, x = mlp(16, 4), torch.randn(8, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    step = trained(model, lambda: model(x).pow(2).mean(), optimizer)
    return lambda: scheduler.step(step().item())


@workload
def quasi_newton() -> Step:
    model, x = mlp(16, 4), torch.randn(8, 16)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss

    return lambda: optimizer.step(closure)


@workload
def line_search() -> Step:
    model, x = mlp(16, 4), torch.randn(8, 16)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3, line_search_fn="strong_wolfe")

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss

    return lambda: optimizer.step(closure)


@workload
def accuracy_in_numpy() -> Step:
    model, x, y = mlp(16, 4), torch.randn(8, 16), torch.randint(0, 4, (8,))

    def loss() -> torch.Tensor:
        scores = model(x)
        predicted = scores.argmax(-1).cpu().numpy()
        sys.stderr.write(f"{(predicted == y.numpy()).mean():.2f}"[:0])
        return F.cross_entropy(scores, y)

    return trained(model, loss)


@workload
def stochastic_depth() -> Step:
    layers, x = nn.ModuleList([nn.Linear(16, 16) for _ in range(4)]), torch.randn(8, 16)

    def loss() -> torch.Tensor:
        h = x
        for layer in layers:
            if torch.rand(1).item() > 0.2:
                h = h + layer(h)
        return h.sum()

    return trained(layers, loss)


@workload
def ignored_labels() -> Step:
    model, x, y = mlp(16, 4), torch.randn(8, 16), torch.randint(0, 4, (8,))

    def loss() -> torch.Tensor:
        return F.cross_entropy(model(x), y, ignore_index=-100, reduction="sum") / (y != -100).sum().item()

    return trained(model, loss)


@workload
def curriculum_by_loss() -> Step:
    model, x = mlp(16, 4), torch.randn(8, 16)

    def loss() -> torch.Tensor:
        value: torch.Tensor = model(x).pow(2).mean()
        return value * 2 if value > 0.5 else value

    return trained(model, loss)


# -- values that decide shapes -------------------------------------------------------------------


@workload
def boolean_mask() -> Step:
    model, x = mlp(16, 4), torch.randn(8, 16)

    def loss() -> torch.Tensor:
        y = model(x)
        return y[y > 0].sum()

    return trained(model, loss)


@workload
def masked_select() -> Step:
    model, x = mlp(16, 4), torch.randn(8, 16)
    return trained(model, lambda: torch.masked_select(model(x), torch.rand(8, 4) > 0.5).sum())


@workload
def known_mask() -> Step:
    model, x, mask = mlp(16, 4), torch.randn(8, 16), torch.arange(8) % 2 == 0
    return trained(model, lambda: model(x)[mask].pow(2).mean())


@workload
def routed_experts() -> Step:
    router, experts, x = nn.Linear(16, 4), nn.ModuleList([mlp(16, 32, 16) for _ in range(4)]), torch.randn(64, 16)

    def loss() -> torch.Tensor:
        weights, chosen = router(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for index, expert in enumerate(experts):
            rows, slot = (chosen == index).nonzero(as_tuple=True)
            if rows.numel() > 0:
                out.index_add_(0, rows, expert(x[rows]) * weights[rows, slot, None])
        return out.sum()

    return trained(nn.ModuleList([router, *experts]), loss)


@workload
def longest_in_batch() -> Step:
    model, x, lengths = nn.GRU(16, 8, batch_first=True), torch.randn(4, 20, 16), torch.randint(1, 20, (4,))
    return trained(model, lambda: model(x[:, : int(lengths.max())])[0].pow(2).mean())


@workload
def packed_literal_lengths() -> Step:
    model, x = nn.LSTM(16, 8, batch_first=True), torch.randn(4, 20, 16)

    def loss() -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([20, 15, 9, 3]), batch_first=True)
        out, _ = nn.utils.rnn.pad_packed_sequence(model(packed)[0], batch_first=True)
        return out.sum()

    return trained(model, loss)


@workload
def packed_list_of_lengths() -> Step:
    model, x = nn.GRU(16, 8, batch_first=True), torch.randn(4, 20, 16)

    def loss() -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, [20, 3, 9, 15], batch_first=True, enforce_sorted=False)
        return model(packed)[0].data.sum()

    return trained(model, loss)


@workload
def detection_boxes() -> Step:
    model, x = nn.Conv2d(3, 5, 3, stride=4), torch.randn(2, 3, 64, 64)

    def loss() -> torch.Tensor:
        out = model(x).flatten(2).transpose(1, 2)
        kept = out[..., 4].sigmoid() > 0.5
        return sum((boxes[keep][:, :4].abs().sum() for boxes, keep in zip(out, kept, strict=True)), start=out.sum() * 0)

    return trained(model, loss)


@workload
def unique_tokens() -> Step:
    table, tokens = nn.Embedding(50, 16), torch.randint(0, 50, (4, 10))

    def loss() -> torch.Tensor:
        rows, where = tokens.unique(return_inverse=True)
        return table(rows)[where].sum()

    return trained(table, loss)


@workload
def ctc_with_tensors() -> Step:
    model, x, y = nn.Linear(16, 20), torch.randn(50, 4, 16), torch.randint(1, 20, (4, 10))
    sizes = torch.full((4,), 50), torch.full((4,), 10)
    return trained(model, lambda: F.ctc_loss(model(x).log_softmax(-1), y, *sizes))


@workload
def ctc_with_lists() -> Step:
    model, x, y = nn.Linear(16, 20), torch.randn(50, 4, 16), torch.randint(1, 20, (4, 10))
    return trained(model, lambda: F.ctc_loss(model(x).log_softmax(-1), y, (50,) * 4, (10,) * 4))


# -- distributions and reinforcement learning ----------------------------------------------------


@workload
def policy_gradient() -> Step:
    model, x, reward = mlp(16, 32, 4), torch.randn(8, 16), torch.randn(8)

    def loss() -> torch.Tensor:
        policy = torch.distributions.Categorical(model(x).softmax(-1))
        return -(policy.log_prob(policy.sample()) * reward).mean()

    return trained(model, loss)


@workload
def gaussian_policy() -> Step:
    model, x = mlp(16, 32, 4), torch.randn(8, 16)

    def loss() -> torch.Tensor:
        policy = torch.distributions.Normal(model(x), F.softplus(model(x)))
        return -policy.log_prob(policy.rsample()).mean() - policy.entropy().mean()

    return trained(model, loss)


@workload
def variational_autoencoder() -> Step:
    encoder, decoder, x = mlp(16, 8), mlp(4, 16), torch.rand(8, 16)

    def loss() -> torch.Tensor:
        mean, spread = encoder(x).chunk(2, -1)
        posterior = torch.distributions.Normal(mean, spread.exp())
        prior = torch.distributions.Normal(torch.zeros(4), torch.ones(4))
        kl = torch.distributions.kl_divergence(posterior, prior).sum()
        return F.binary_cross_entropy_with_logits(decoder(posterior.rsample()), x) + kl

    return trained(nn.ModuleList([encoder, decoder]), loss)


@workload
def multivariate_normal() -> Step:
    model, x = mlp(16, 3), torch.randn(8, 16)

    def loss() -> torch.Tensor:
        return -torch.distributions.MultivariateNormal(model(x), torch.eye(3)).log_prob(torch.zeros(8, 3)).sum()

    return trained(model, loss)


@workload
def actor_critic() -> Step:
    actor, critic, x = mlp(16, 4), mlp(16, 1), torch.randn(8, 16)

    def loss() -> torch.Tensor:
        policy = torch.distributions.Categorical(logits=actor(x))
        action = policy.sample()
        advantage = torch.tensor([float(a) for a in action.tolist()]) - critic(x)[:, 0]
        return advantage.pow(2).mean() - (policy.log_prob(action) * advantage.detach()).mean()

    return trained(nn.ModuleList([actor, critic]), loss)


@workload
def deep_q_learning() -> Step:
    online, x = mlp(16, 32, 4), torch.randn(8, 16)
    target = copy.deepcopy(online)
    action, done = torch.randint(0, 4, (8, 1)), torch.rand(8) > 0.9

    def loss() -> torch.Tensor:
        with torch.no_grad():
            value = target(x).max(1).values
            value[done] = 0.0
        return F.smooth_l1_loss(online(x).gather(1, action)[:, 0], 1 + 0.9 * value)

    return trained(online, loss)


@workload
def diffusion() -> Step:
    model, x = nn.Conv2d(3, 3, 3, padding=1), torch.randn(2, 3, 16, 16)
    alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)

    def loss() -> torch.Tensor:
        t, noise = torch.randint(0, 1000, (2,)), torch.randn_like(x)
        a = alphas[t][:, None, None, None]
        return F.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise), noise)

    return trained(model, loss)


@workload
def gan() -> Step:
    g, d, z, x = mlp(8, 16), mlp(16, 1), torch.randn(4, 8), torch.randn(4, 16)
    og, od = torch.optim.Adam(g.parameters()), torch.optim.Adam(d.parameters())

    def step() -> tuple[float, float]:
        od.zero_grad()
        real = F.binary_cross_entropy_with_logits(d(x), torch.ones(4, 1))
        fake = F.binary_cross_entropy_with_logits(d(g(z).detach()), torch.zeros(4, 1))
        (real + fake).backward()
        od.step()
        og.zero_grad()
        fooled = F.binary_cross_entropy_with_logits(d(g(z)), torch.ones(4, 1))
        fooled.backward()
        og.step()
        return (real + fake).item(), fooled.item()

    return step


# -- modules -------------------------------------------------------------------------------------


@workload
def transformer_with_mask() -> Step:
    model, x = nn.Transformer(16, 2, 1, 1, 32, batch_first=True), torch.randn(4, 7, 16)
    mask = nn.Transformer.generate_square_subsequent_mask(7)
    return trained(model, lambda: model(x, x, tgt_mask=mask).sum())


@workload
def encoder_with_padding() -> Step:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 2), torch.randn(4, 7, 16)
    padding = torch.arange(7)[None] >= torch.tensor([7, 5, 3, 4])[:, None]
    return trained(model, lambda: model(x, src_key_padding_mask=padding).sum())


@workload
def encoder_in_evaluation() -> Step:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 2).eval(), torch.randn(4, 7, 16)
    padding = torch.arange(7)[None] >= torch.tensor([7, 5, 3, 4])[:, None]

    def step() -> Any:
        with torch.no_grad():
            return model(x, src_key_padding_mask=padding)

    return step


@workload
def decoder_with_masks() -> Step:
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 32, batch_first=True), 2)
    x, mask = torch.randn(4, 7, 16), nn.Transformer.generate_square_subsequent_mask(7)
    return trained(model, lambda: model(x, x, tgt_mask=mask, tgt_is_causal=True).sum())


@workload
def drop_path_rates() -> Step:
    rates = [rate.item() for rate in torch.linspace(0, 0.1, 6)]
    model, x = (
        nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.Dropout(rate)) for rate in rates]),
        torch.randn(8, 16),
    )
    return trained(model, lambda: model(x).sum())


@workload
def sparse_embedding() -> Step:
    model, tokens = nn.Embedding(1000, 16, sparse=True), torch.randint(0, 1000, (8,))
    return trained(model, lambda: model(tokens).sum(), torch.optim.SparseAdam(model.parameters()))


@workload
def embedding_bag() -> Step:
    model, tokens, starts = nn.EmbeddingBag(1000, 16), torch.randint(0, 1000, (20,)), torch.tensor([0, 4, 9, 15])
    return trained(model, lambda: model(tokens, starts).sum())


@workload
def adaptive_softmax() -> Step:
    model, x, y = nn.AdaptiveLogSoftmaxWithLoss(16, 100, [10, 50]), torch.randn(8, 16), torch.randint(0, 100, (8,))
    return trained(model, lambda: model(x, y).loss)


@workload
def weight_norm() -> Step:
    model, x = nn.utils.parametrizations.weight_norm(nn.Linear(16, 4)), torch.randn(8, 16)
    return trained(model, lambda: model(x).sum())


@workload
def spectral_norm() -> Step:
    model, x = nn.utils.parametrizations.spectral_norm(nn.Linear(16, 4)), torch.randn(8, 16)
    return trained(model, lambda: model(x).sum())


@workload
def orthogonal() -> Step:
    model, x = nn.utils.parametrizations.orthogonal(nn.Linear(8, 8)), torch.randn(8, 8)
    return trained(model, lambda: model(x).sum())


@workload
def averaged_weights() -> Step:
    model, x = mlp(16, 4), torch.randn(8, 16)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    step = trained(model, lambda: model(x).sum())

    def both() -> None:
        step()
        averaged.update_parameters(model)

    return both


@workload
def pruned() -> Step:
    from torch.nn.utils import prune

    layer, x = nn.Linear(16, 4), torch.randn(8, 16)
    prune.l1_unstructured(layer, "weight", amount=0.3)  # type: ignore[no-untyped-call]
    return trained(layer, lambda: layer(x).sum())


@workload
def gradient_penalty() -> Step:
    model, x = mlp(16, 1), torch.randn(8, 16, requires_grad=True)

    def loss() -> torch.Tensor:
        (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return (gradient.norm(dim=1) - 1).pow(2).mean()

    return trained(model, loss)


@workload
def per_sample_gradients() -> Step:
    model, x = mlp(16, 4), torch.randn(8, 16)
    parameters = dict(model.named_parameters())

    def one(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, parameters, (x,)).sum()

    return lambda: torch.func.vmap(torch.func.grad(one), (None, 0))(parameters, x)


@workload
def beam_of_tokens() -> Step:
    model, table, tokens = nn.GRUCell(16, 16), nn.Embedding(20, 16), [1]

    def step() -> list[int]:
        h, out = torch.zeros(1, 16), list(tokens)
        with torch.no_grad():
            for _ in range(5):
                h = model(table(torch.tensor([out[-1]])), h)
                out.append(int((h @ table.weight.T).argmax()))
                if out[-1] == 3:
                    break
        return out

    return step


@workload
def triplets() -> Step:
    model, x, y = mlp(16, 8), torch.randn(12, 16), torch.arange(12) % 3

    def loss() -> torch.Tensor:
        e = F.normalize(model(x))
        same = y[:, None] == y[None]
        distance = torch.cdist(e, e)
        hardest = distance.masked_fill(~same, 0).max(1).values - distance.masked_fill(same, 9).min(1).values
        return F.relu(hardest + 0.2).mean()

    return trained(model, loss)


@workload
def hard_negatives() -> Step:
    model, x = mlp(16, 1), torch.randn(64, 16)

    def loss() -> torch.Tensor:
        losses = model(x)[:, 0].pow(2)
        return losses.topk(max(1, int(0.25 * losses.numel()))).values.mean()

    return trained(model, loss)


@workload
def shuffled_batches() -> Step:
    model, data = mlp(16, 4), torch.randn(64, 16)

    def step() -> None:
        for rows in torch.randperm(64).split(32):
            model(data[rows]).sum().backward()

    return step


@workload
def mixup() -> Step:
    model, x, y = mlp(16, 4), torch.randn(8, 16), torch.randint(0, 4, (8,))

    def loss() -> torch.Tensor:
        share = torch.distributions.Beta(0.2, 0.2).sample().item()
        order = torch.randperm(8)
        out = model(share * x + (1 - share) * x[order])
        return share * F.cross_entropy(out, y) + (1 - share) * F.cross_entropy(out, y[order])

    return trained(model, loss)


# -- transformers --------------------------------------------------------------------------------

SMALL: dict[str, Any] = {
    **dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, vocab_size=50),
    **dict(max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2),
}


def _hugging(name: str, kind: str, inputs: Callable[[], dict[str, Any]], **settings: Any) -> None:
    def make() -> Step:
        import transformers

        config = getattr(transformers, f"{name}Config")(**settings)
        model = getattr(transformers, f"{name}{kind}")(config)
        given = inputs()

        def loss() -> torch.Tensor:
            out = model(**given)
            return out.loss if getattr(out, "loss", None) is not None else out[0].sum()

        return trained(model.train(), loss)

    make.__name__ = name.lower()
    CORPUS[make.__name__] = make


def _text(*, labels: bool = True, length: int = 12, mask: bool = False) -> Callable[[], dict[str, Any]]:
    def make() -> dict[str, Any]:
        tokens = torch.randint(3, 50, (2, length))
        given = {"input_ids": tokens}
        if mask:
            given["attention_mask"] = (torch.arange(length)[None] < torch.tensor([[length], [length - 3]])).long()
        return given | ({"labels": tokens} if labels else {})

    return make


def _image(classes: int = 3, size: int = 32) -> Callable[[], dict[str, Any]]:
    return lambda: {"pixel_values": torch.randn(2, 3, size, size), "labels": torch.randint(0, classes, (2,))}


_hugging("Bert", "ForMaskedLM", _text(mask=True), **SMALL)
_hugging("Roberta", "ForMaskedLM", _text(), **SMALL)
_hugging("Albert", "ForMaskedLM", _text(), **SMALL, embedding_size=16)
_hugging("Electra", "ForMaskedLM", _text(), **SMALL, embedding_size=16)
_hugging("DebertaV2", "ForMaskedLM", _text(mask=True), **SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"])
_hugging("Deberta", "ForMaskedLM", _text(mask=True), **SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"])
_hugging("Longformer", "ForMaskedLM", _text(length=16, mask=True), **SMALL, attention_window=[8, 8])
_hugging("BigBird", "ForMaskedLM", _text(length=16), **SMALL, attention_type="original_full")
_hugging("GPT2", "LMHeadModel", _text(mask=True), n_embd=16, n_layer=2, n_head=2, vocab_size=50, n_positions=64)
_hugging("Llama", "ForCausalLM", _text(mask=True), **SMALL)
_hugging("Mistral", "ForCausalLM", _text(), **SMALL, num_key_value_heads=1, head_dim=8)
_hugging("Gemma2", "ForCausalLM", _text(), **SMALL, num_key_value_heads=1, head_dim=8)
_hugging("Qwen2", "ForCausalLM", _text(mask=True), **SMALL, num_key_value_heads=1)
_hugging("Mixtral", "ForCausalLM", _text(), **SMALL, num_key_value_heads=1, num_local_experts=4)
_hugging("Qwen2Moe", "ForCausalLM", _text(), **SMALL, num_key_value_heads=1, num_experts=4, moe_intermediate_size=16)
_hugging("Mamba", "ForCausalLM", _text(), hidden_size=16, num_hidden_layers=2, vocab_size=50, state_size=4)
_hugging(
    "T5",
    "ForConditionalGeneration",
    _text(mask=True),
    d_model=16,
    d_kv=8,
    d_ff=32,
    num_layers=2,
    num_heads=2,
    vocab_size=50,
    decoder_start_token_id=0,
)
_hugging(
    "Bart",
    "ForConditionalGeneration",
    _text(),
    d_model=16,
    encoder_layers=2,
    decoder_layers=2,
    vocab_size=50,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    encoder_ffn_dim=32,
    decoder_ffn_dim=32,
)
_hugging(
    "ViT",
    "ForImageClassification",
    _image(),
    image_size=32,
    patch_size=8,
    num_labels=3,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
)
_hugging(
    "Swin",
    "ForImageClassification",
    _image(),
    image_size=32,
    patch_size=4,
    num_labels=3,
    embed_dim=16,
    depths=[1, 2],
    num_heads=[2, 2],
    window_size=4,
)
_hugging(
    "ConvNext",
    "ForImageClassification",
    _image(),
    image_size=32,
    num_labels=3,
    hidden_sizes=[8, 16, 16, 16],
    depths=[1, 1, 2, 1],
    drop_path_rate=0.1,
)
_hugging(
    "Beit",
    "ForImageClassification",
    _image(),
    image_size=32,
    patch_size=8,
    num_labels=3,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    drop_path_rate=0.1,
)
_hugging(
    "Segformer",
    "ForImageClassification",
    _image(),
    num_labels=3,
    hidden_sizes=[8, 8, 16, 16],
    depths=[1, 1, 1, 1],
    num_attention_heads=[1, 1, 2, 2],
    decoder_hidden_size=16,
)
_hugging(
    "CLIP",
    "Model",
    lambda: {"input_ids": torch.randint(3, 50, (2, 8)), "pixel_values": torch.randn(2, 3, 32, 32), "return_loss": True},
    text_config=dict(SMALL),
    projection_dim=8,
    vision_config=dict(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=32, patch_size=8
    ),
)
_SPEECH = dict(
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    conv_dim=[8, 8],
    conv_stride=[5, 2],
    conv_kernel=[10, 3],
    num_conv_pos_embeddings=4,
    num_conv_pos_embedding_groups=2,
    vocab_size=32,
    num_feat_extract_layers=2,
    mask_time_length=2,
    ctc_loss_reduction="mean",
)
_hugging(
    "Wav2Vec2",
    "ForCTC",
    lambda: {"input_values": torch.randn(2, 800), "labels": torch.randint(1, 32, (2, 6))},
    **_SPEECH,
)
_hugging(
    "Hubert", "ForCTC", lambda: {"input_values": torch.randn(2, 800), "labels": torch.randint(1, 32, (2, 6))}, **_SPEECH
)
_hugging(
    "Whisper",
    "ForConditionalGeneration",
    lambda: {"input_features": torch.randn(2, 16, 40), "labels": torch.randint(3, 50, (2, 6))},
    d_model=16,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    encoder_ffn_dim=32,
    decoder_ffn_dim=32,
    vocab_size=50,
    num_mel_bins=16,
    max_source_positions=20,
    max_target_positions=20,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=1,
    suppress_tokens=None,
    begin_suppress_tokens=None,
)
_hugging(
    "Detr",
    "ForObjectDetection",
    lambda: {
        "pixel_values": torch.randn(1, 3, 64, 64),
        "labels": [{"class_labels": torch.tensor([1, 2]), "boxes": torch.rand(2, 4)}],
    },
    d_model=16,
    encoder_layers=1,
    decoder_layers=1,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    encoder_ffn_dim=32,
    decoder_ffn_dim=32,
    num_queries=5,
    num_labels=3,
    use_timm_backbone=False,
    use_pretrained_backbone=False,
    backbone=None,
    backbone_config=dict(
        model_type="resnet", embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], out_features=["stage4"]
    ),
)


@workload
def generation() -> Step:
    from transformers import LlamaConfig, LlamaForCausalLM

    model, tokens = LlamaForCausalLM(LlamaConfig(**SMALL)).eval(), torch.randint(3, 50, (2, 6))
    return lambda: model.generate(tokens, max_new_tokens=4, do_sample=False)


@workload
def sampled_generation() -> Step:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=50, n_positions=64, eos_token_id=2, bos_token_id=1)
    model, tokens = GPT2LMHeadModel(config).eval(), torch.randint(3, 50, (2, 6))
    return lambda: model.generate(tokens, max_new_tokens=4, do_sample=True, top_k=5)


def outcome(make: Workload) -> tuple[str, str]:
    """How the capture went (``fake``, ``real``, ``error``), and what it says."""
    try:
        graph = capture(make)
    except TensortideError as error:
        return "error", str(error).partition("\n")[0]
    return graph.meta.captured_on, "; ".join(graph.meta.assumptions)


def main(*names: str) -> None:
    counts: dict[str, int] = {}
    for name in names or CORPUS:
        began = time.process_time()
        with warnings.catch_warnings(action="ignore"):
            how, said = outcome(CORPUS[name])
        counts[how] = counts.get(how, 0) + 1
        sys.stdout.write(f"{how:5} {name:24} {time.process_time() - began:5.1f} s  {said}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{sum(counts.values())} workloads: {counts}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
