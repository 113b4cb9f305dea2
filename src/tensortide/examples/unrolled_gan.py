"""Unrolled GAN: Metz et al., "Unrolled Generative Adversarial Networks", 2016."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from tensortide.examples.training import Step, make_optimizer

__all__ = ["unrolled_gan", "unrolled_loss"]


def _mlp(inputs: int, hidden: int, layers: int, outputs: int) -> nn.Sequential:
    mlp = nn.Sequential()
    for _ in range(layers):
        mlp.extend([nn.Linear(inputs, hidden), nn.Tanh()])
        inputs = hidden
    return mlp.append(nn.Linear(inputs, outputs))


class GAN(nn.Sequential):
    """Noise (B, latent) -> the discriminator's logits (B, 1) for the generator's points (B, points)."""

    def __init__(self, latent: int, hidden: int, layers: int, points: int) -> None:
        super().__init__()
        self.generator = _mlp(latent, hidden, layers, points)
        self.discriminator = _mlp(points, hidden, layers, 1)


def _adversarial_loss(real: Tensor, fake: Tensor) -> Tensor:
    """The discriminator's loss from its logits."""
    judged_real = F.binary_cross_entropy_with_logits(real, torch.ones_like(real))
    return judged_real + F.binary_cross_entropy_with_logits(fake, torch.zeros_like(fake))


def unrolled_loss(discriminator: nn.Module, real: Tensor, fake: Tensor, unroll: int, rate: float) -> Tensor:
    """The generator's loss against a discriminator that is ``unroll`` gradient steps ahead.

    The steps are functions of ``fake`` (B, points), so gradients of the loss pass through them.
    """
    weights: dict[str, Tensor] = dict(discriminator.named_parameters())
    for _ in range(unroll):
        loss = _adversarial_loss(
            functional_call(discriminator, weights, real), functional_call(discriminator, weights, fake)
        )
        gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        weights = {
            name: weight - rate * gradient for (name, weight), gradient in zip(weights.items(), gradients, strict=True)
        }
    judged = functional_call(discriminator, weights, fake)
    return F.binary_cross_entropy_with_logits(judged, torch.ones_like(judged))


def unrolled_gan(
    batch: int = 512,
    latent: int = 256,
    hidden: int = 128,
    layers: int = 2,
    points: int = 2,
    unroll: int = 5,
    inner_lr: float = 0.1,
    optimizer: str = "adam",
    train: bool = True,
) -> Step:
    """Unrolled GAN: differentiates through updates of the discriminator.

    A step updates the discriminator once, then the generator. The loss of the generator is taken after ``unroll``
    gradient steps (rate ``inner_lr``) of a copy of the discriminator, each differentiable: second derivatives.
    """
    model = GAN(latent, hidden, layers, points)
    model.train(train)
    generator, discriminator = model.generator, model.discriminator
    generator_optimizer = make_optimizer(optimizer, generator.parameters(), 1e-3)
    discriminator_optimizer = make_optimizer(optimizer, discriminator.parameters(), 1e-4)
    noise = torch.randn(batch, latent)
    real = torch.randn(batch, points) * 0.02 + torch.randint(0, 2, (batch, points)) * math.sqrt(2)

    @torch.no_grad()
    def inference_step() -> Tensor:
        return model(noise)

    def step() -> Tensor:
        loss = _adversarial_loss(discriminator(real), discriminator(generator(noise).detach()))
        loss.backward()
        discriminator_optimizer.step()
        discriminator_optimizer.zero_grad()

        loss = unrolled_loss(discriminator, real, generator(noise), unroll, inner_lr)
        loss.backward(inputs=list(generator.parameters()))
        generator_optimizer.step()
        generator_optimizer.zero_grad()
        return loss

    return step if train else inference_step
