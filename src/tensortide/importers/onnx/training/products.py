"""Backward rules of products: each wanted gradient is a product of the same size."""

from __future__ import annotations

from tensortide.cost.families.einsum import indices
from tensortide.graph.handles import Handle, Out
from tensortide.importers.onnx.training.reverse import Back, Rule


def _operands(back: Back) -> None:
    """Give both operands of a product their gradients: of the result's gradient and the other operand. ``k`` is the
    dimension of the operand that was contracted."""
    for place, other in ((0, 1), (1, 0)):
        if back.wanted(place):
            shape = back.input(place).shape
            inner = bool(back.attr(f"trans{'AB'[place]}", 0)) == bool(place)
            k = len(shape) - (1 if inner or len(shape) < 2 else 2)
            dy, held = back.dy, back.input(other)
            made = back.emit(f"MatMulGrad{'AB'[place]}", dy, held, out=shape, names=("gradient", "other"), k=k)
            back.give(place, made)


def matmul(back: Back) -> None:
    """A product of operands of any rank. A batch along which an operand was broadcast is contracted with the rows."""
    _operands(back)


def gemm(back: Back) -> None:
    """A product of matrices and a term, which gets the gradient itself, summed."""
    _operands(back)
    back.give(2, back.dy)


def _bias(back: Back, name: str) -> None:
    """Give a bias of channels the gradient summed over all else."""
    place = back.place(name)
    if back.wanted(place):
        back.give(place, back.emit("SumTo", back.dy, out=back.input(place).shape))


def convolution(back: Back) -> None:
    """A convolution: gradients of input, filter and bias, as wanted."""
    kind, x, w = back.kind.removeprefix("Fused").removeprefix("Nhwc"), back.input(0), back.input(1)
    dy = back.dy
    if back.wanted(0):
        back.give(0, back.emit(f"{kind}GradX", dy, w, out=x.shape, names=("gradient", "W")))
    if back.wanted(1):
        back.give(1, back.emit(f"{kind}GradW", dy, x, out=w.shape, names=("gradient", "X")))
    _bias(back, "B")


def recurrent(back: Back) -> None:
    """A recurrent layer: one op for all gradients that are wanted."""
    names = ("X", "W", "R", "B", "initial_h", "initial_c")
    places = [place for name in names if back.wanted(place := back.place(name))]
    given: dict[str, Handle] = {name: back.input(back.place(name)) for name in ("X", "W", "R")}
    if back.place("B") > 0:
        given["B"] = back.input(back.place("B"))
    for i, name in enumerate(("Y", "Y_h", "Y_c")):
        if i < len(back.view.op.outputs) and (found := back.gradient(i)) is not None:
            given[f"gradient_{name}"] = found
    given["hidden"] = back.output()
    given |= dict(zip(("gates",), back.saved("gates"), strict=False))
    wanted = (back.wanted(0), back.wanted(1) or back.wanted(2), back.wanted(back.place("initial_h")))
    outs = [Out(back.input(place).shape, back.input(place).dtype) for place in places]
    attributes = {name: value for name in ("layout", "activations") if (value := back.attr(name)) is not None}
    made = back.emit_all(
        f"{back.kind}Grad", *given.values(), outs=outs, names=tuple(given), wanted=wanted, **attributes
    )
    for place, handle in zip(places, made, strict=True):
        back.give(place, handle)


def attention(back: Back) -> None:
    """Attention: one op for the gradients of query, key and value."""
    outs = [Out(back.input(i).shape, back.input(i).dtype) for i in range(3)]
    held = [back.input(i) for i in range(3)]
    names = ["Q", "K", "V", "output", "gradient", *(["log_sum_exp"] if back.saved("log_sum_exp") else [])]
    attributes = {name: value for name in ("q_num_heads", "kv_num_heads") if (value := back.attr(name)) is not None}
    made = back.emit_all(
        "AttentionGrad", *held, back.output(), back.dy, *back.saved("log_sum_exp"), outs=outs, names=names, **attributes
    )
    for place in range(3):
        back.give(place, made[place])


def einsum(back: Back) -> None:
    """A sum of products: the gradient of each operand is one of the result's gradient and the others."""
    ranks = [len(back.input(i).shape) for i in range(len(back.view.op.inputs))]
    terms, result = indices(str(back.attr("equation", "")), ranks)
    for place, term in enumerate(terms):
        if back.wanted(place):
            others = [i for i in range(len(terms)) if i != place]
            text = ",".join([result, *(terms[i] for i in others)]) + f"->{term}"
            held = [back.input(i) for i in others]
            back.give(place, back.emit("EinsumGrad", back.dy, *held, out=back.input(place).shape, equation=text))


RULES: dict[str, Rule] = {
    "onnx.MatMul": matmul,
    "com.microsoft::FusedMatMul": matmul,
    "com.microsoft::TransposeMatMul": matmul,
    "onnx.Gemm": gemm,
    "onnx.Conv": convolution,
    "onnx.ConvTranspose": convolution,
    "onnx.Einsum": einsum,
    "onnx.Attention": attention,
    **{f"onnx.{name}": recurrent for name in ("LSTM", "GRU", "RNN")},
}
