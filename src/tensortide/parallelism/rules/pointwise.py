"""Rules of ops that work element by element, of copies, and of factories."""

from __future__ import annotations

from tensortide.parallelism.rules.table import rule
from tensortide.parallelism.sites import Ref, Site, refs_in


@rule(
    *("copy", "clone", "detach", "_to_copy", "alias", "lift_fresh", "contiguous", "zero", "fill"),
    *("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "bernoulli"),
    *("normal", "uniform", "exponential", "native_dropout", "_fused_dropout", "dropout"),
    *("view_as_real_copy", "prelu"),
    *("add", "sub", "mul", "div", "eq", "clamp", "exp", "log", "pow", "sqrt"),  # of any namespace
)
def pointwise(site: Site) -> None:
    """Tie every dimension of all tensors, aligned from the last one on; those of size 1 repeat."""
    outs = site.outputs or site.inputs[:1]
    for out in outs:
        for operand in (*site.inputs, *outs):
            if operand != out:
                site.broadcast(out, operand)


@rule("_fused_adam", "_fused_adamw", "_fused_sgd", "_fused_adagrad")
def listed(site: Site) -> None:
    """Tie the tensors at one position of every list of an op over lists of tensors; each item is pointwise."""
    lists = [refs_in(value) for value in (*site.arguments.values(), site.result) if isinstance(value, tuple)]
    single = [value for value in site.arguments.values() if isinstance(value, Ref)]
    length = max(map(len, lists), default=0)
    for position in range(length):
        items = [refs[position] for refs in lists if len(refs) == length]
        for other in (*items[1:], *single):
            if site.rank(other):
                site.broadcast(items[0], other)


@rule("_foreach_norm")
def norms(site: Site) -> None:
    """The norm of each tensor is combined over all its dimensions."""
    for ref, out in zip(site.inputs, site.outputs, strict=True):
        site.partial(out, ref, range(site.rank(ref)), "norm")


@rule(
    *("empty", "empty_strided", "empty_permuted", "zeros", "ones", "full", "rand", "randn", "randint", "scalar_tensor"),
    *("new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided", "_local_scalar_dense", "is_nonzero"),
    *("sym_size", "_assert_async", "_assert_scalar"),
    # In place the view ties the axes.
    *("transpose", "t", "squeeze", "unsqueeze", "swapaxes", "swapdims", "as_strided"),
)
def factory(site: Site) -> None:
    """Values are the same everywhere, or those of a view: any axis of the output may be sharded."""


@rule("arange", "eye", "linspace", "logspace", "randperm", "tril_indices", "triu_indices")
def numbered(site: Site) -> None:
    """Values depend on the position: the output is needed whole."""
    for out in site.outputs:
        site.whole(out, *range(site.rank(out)))
