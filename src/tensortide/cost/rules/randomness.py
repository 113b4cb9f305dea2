"""Random numbers and dropout. Counting convention: docs/cost.md, random numbers and dropout."""

from __future__ import annotations

import math

from tensortide.cost.access import interface, writes_only
from tensortide.cost.kinds import rows_work
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule


@rule(
    "aten::rand", "aten::rand_like", "aten::randn", "aten::randn_like", "aten::randint", "aten::randint_like",
    "aten::normal_", "aten::uniform", "aten::random", "aten::exponential", "aten::geometric", "aten::cauchy",
    "aten::log_normal", "aten::normal_functional", "aten::bernoulli_", "aten::_philox_normal",
    "aten::_philox_uniform", "aten::_fill_mem_eff_dropout_mask_", "aten::_philox_key_split",
    "aten::_philox_key_fold_in", "aten::normal.float_float",
    formula="E random draws, written", bytes=writes_only,
)  # fmt: skip
@rule(
    "aten::bernoulli", "aten::normal", "aten::poisson", "aten::binomial", "aten::_standard_gamma",
    "aten::_sample_dirichlet",
    formula="E random draws, parameters read", bytes=interface,
)  # fmt: skip
def draws(op: OpCall) -> Cost:
    """One draw per element."""
    op.let(E=op.out.numel)
    return Cost(random_draws=op.out.numel)


@rule("aten::_standard_gamma_grad", "aten::_dirichlet_grad", formula="10 per element (bound)")
def gamma_gradient(op: OpCall) -> Cost:
    """Implicit gradient of a gamma sample."""
    return Cost(elementwise_flops=10 * op.out.numel, exact=False, reason="series of unknown length")


@rule("aten::multinomial", formula="2 n per row, one random draw and log2 n comparisons per sample")
def multinomial(op: OpCall) -> Cost:
    """Samples from rows of weights: normalized running sums, searched."""
    shape = op.shape("self")
    count, samples = math.prod(shape), op.out.numel
    searched = samples * (shape[-1].bit_length() if shape else 0)
    return Cost(elementwise_flops=2 * count + searched, comparisons=searched, random_draws=samples)


@rule("aten::randperm", formula="n integer ops and draws", bytes=writes_only)
def permutation(op: OpCall) -> Cost:
    """A shuffle."""
    n = op.out.numel
    return Cost(int_ops=n, random_draws=n)


@rule("aten::native_dropout", "aten::_fused_dropout", "aten::dropout", formula="E draws, 2 E: mask and scale")
def dropout(op: OpCall) -> Cost:
    """Elements kept with a probability, and scaled up; nothing to do in evaluation."""
    count = op.out.numel
    op.let(E=count)
    if not op.arg("train", True) or op.arg("p", 0.5) == 0:
        return Cost()
    return Cost(elementwise_flops=2 * count, random_draws=count)


@rule("aten::native_dropout_backward", formula="2 E: mask and scale")
def dropout_backward(op: OpCall) -> Cost:
    """The same mask and scale on the gradient."""
    return rows_work(op, 2 * op.out.numel)
