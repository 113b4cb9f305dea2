"""Random numbers and dropout. Counting convention: docs/cost.md, random numbers and dropout."""

from __future__ import annotations

import math

from tensortide.cost.access import writes_only
from tensortide.cost.forms import aten, each, each_real
from tensortide.cost.kinds import Weights
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost


@aten(
    "rand rand_like randn randn_like randint randint_like normal_ uniform random exponential geometric cauchy "
    "log_normal normal_functional bernoulli_ _philox_normal _philox_uniform _fill_mem_eff_dropout_mask_ "
    "_philox_key_split _philox_key_fold_in normal.float_float",
    "E random draws, written",
    bytes=writes_only,
)
@aten("bernoulli normal poisson binomial _standard_gamma _sample_dirichlet", "E random draws, parameters read")
def draws(op: OpCall) -> Cost:
    """One draw per element."""
    op.let(E=op.out.numel)
    return Cost(random_draws=op.out.numel)


@each_real("_standard_gamma_grad _dirichlet_grad", "10 per element (bound)", bound="series of unknown length")
def gamma_gradient(_: OpCall) -> Weights:
    """Implicit gradient of a gamma sample."""
    return Weights(10)


@aten("multinomial", "2 n per row, one random draw and log2 n comparisons per sample")
def multinomial(op: OpCall) -> Cost:
    """Samples from rows of weights: normalized running sums, searched."""
    shape = op.shape("self")
    count, samples = math.prod(shape), op.out.numel
    searched = samples * (shape[-1].bit_length() if shape else 0)
    return Cost(elementwise_flops=2 * count + searched, comparisons=searched, random_draws=samples)


@aten("randperm", "n integer ops and draws", bytes=writes_only)
def permutation(op: OpCall) -> Cost:
    """A shuffle."""
    return Cost(int_ops=op.out.numel, random_draws=op.out.numel)


@aten("native_dropout _fused_dropout dropout", "E draws, 2 E: mask and scale")
def dropout(op: OpCall) -> Cost:
    """Elements kept with a probability, and scaled up; nothing to do in evaluation."""
    count = op.out.numel
    op.let(E=count)
    if not op.arg("train", True) or op.arg("p", 0.5) == 0:
        return Cost()
    return Cost(elementwise_flops=2 * count, random_draws=count)


@each("native_dropout_backward", "2 E: mask and scale")
def dropout_backward(_: OpCall) -> Weights:
    """The same mask and scale on the gradient."""
    return Weights(2, 0, 0, 4)


@each_real("_masked_scale", "2 per element")
def masked_scale(_: OpCall) -> Weights:
    """A mask and a scale."""
    return Weights(2)
