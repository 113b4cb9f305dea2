"""Random numbers and dropout. Counting convention: docs/cost.md, random numbers and dropout."""

from __future__ import annotations

from tensortide.cost.access import interface, writes_only
from tensortide.cost.families import elementwise, random, sampled
from tensortide.cost.kinds import Kind
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary

aten = Vocabulary("aten", "random")
aten.rows({
    "rand rand_like randn randn_like randint randint_like normal_ uniform random exponential geometric cauchy "
    "log_normal normal_functional bernoulli_ _philox_normal _philox_uniform _fill_mem_eff_dropout_mask_ "
    "_philox_key_split _philox_key_fold_in normal.float_float": random(),
    "bernoulli normal poisson binomial _standard_gamma _sample_dirichlet": random(bytes=interface),
    "multinomial": sampled("self"),
    "_standard_gamma_grad _dirichlet_grad": elementwise(
        10, of="grad_output out", kind=Kind.REAL, bound="series of unknown length"
    ),
    "native_dropout_backward": elementwise((2, 0, 0, 4), family="random"),  # mask and scale
    "_masked_scale": elementwise(2, kind=Kind.REAL),
})  # fmt: skip


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
