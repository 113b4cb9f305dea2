# mypy: disable-error-code="no-any-return"
"""Distributions and reinforcement learning."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

from tests.recorder.steps import Step, mlp, trained


def policy_gradient() -> Step:
    model, x, reward = mlp(16, 32, 4), torch.randn(8, 16), torch.randn(8)

    def loss() -> torch.Tensor:
        policy = torch.distributions.Categorical(model(x).softmax(-1))
        return -(policy.log_prob(policy.sample()) * reward).mean()

    return trained(model, loss)


def variational_autoencoder() -> Step:
    encoder, decoder, x = mlp(16, 8), mlp(4, 16), torch.rand(8, 16)

    def loss() -> torch.Tensor:
        mean, spread = encoder(x).chunk(2, -1)
        posterior = torch.distributions.Normal(mean, spread.exp())
        prior = torch.distributions.Normal(torch.zeros(4), torch.ones(4))
        kl = torch.distributions.kl_divergence(posterior, prior).sum()
        return F.binary_cross_entropy_with_logits(decoder(posterior.rsample()), x) + kl

    return trained(nn.ModuleList([encoder, decoder]), loss)


def multivariate_normal() -> Step:
    model, x = mlp(16, 3), torch.randn(8, 16)

    def loss() -> torch.Tensor:
        return -torch.distributions.MultivariateNormal(model(x), torch.eye(3)).log_prob(torch.zeros(8, 3)).sum()

    return trained(model, loss)


def actor_critic() -> Step:
    actor, critic, x = mlp(16, 4), mlp(16, 1), torch.randn(8, 16)

    def loss() -> torch.Tensor:
        policy = torch.distributions.Categorical(logits=actor(x))
        action = policy.sample()
        advantage = torch.tensor([float(a) for a in action.tolist()]) - critic(x)[:, 0]
        return advantage.pow(2).mean() - (policy.log_prob(action) * advantage.detach()).mean()

    return trained(nn.ModuleList([actor, critic]), loss)


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
