"""Products and convolutions against loops that count every multiply-accumulate."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from tensortide.cost import Cost, count
from tests.cost.probe import cost_of, cost_of_call, counted, recorded, tensor

small = st.integers(1, 5)


def loop_mm(a: torch.Tensor, b: torch.Tensor) -> tuple[int, torch.Tensor]:
    done, out = 0, torch.zeros(a.shape[0], b.shape[1])
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            for p in range(a.shape[1]):
                out[i, j] += a[i, p] * b[p, j]
                done += 1
    return done, out


def test_mm_against_loop() -> None:
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    done, out = loop_mm(a, b)
    assert torch.allclose(out, a @ b, atol=1e-5)
    assert cost_of(torch.mm, a, b).macs == done


@given(small, small, small, small)
def test_batch_is_linear_and_backward_is_twice_forward(b: int, m: int, n: int, k: int) -> None:
    one = cost_of_call("aten.mm.default", {"self": tensor(m, k), "mat2": tensor(k, n)}, tensor(m, n))
    batch = cost_of_call("aten.bmm.default", {"self": tensor(b, m, k), "mat2": tensor(b, k, n)}, tensor(b, m, n))
    assert batch.macs == b * one.macs
    of_left = cost_of_call("aten.mm.default", {"self": tensor(m, n), "mat2": tensor(n, k)}, tensor(m, k))
    of_right = cost_of_call("aten.mm.default", {"self": tensor(k, m), "mat2": tensor(m, n)}, tensor(k, n))
    assert of_left.macs + of_right.macs == 2 * one.macs


def test_recorded_backward_is_twice_forward() -> None:
    a, b = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    phases = counted(lambda: (a @ b).sum().backward()).by_phase
    assert phases["backward"].macs == 2 * phases["forward"].macs == 2 * 60


@pytest.mark.parametrize(("beta", "alpha", "extra"), [(1, 1, 1), (2, 1, 2), (1, 2, 2), (0, 1, 0), (0, 3, 1), (2, 2, 3)])
def test_added_term(beta: float, alpha: float, extra: int) -> None:
    c, a, b = torch.randn(3, 5), torch.randn(3, 4), torch.randn(4, 5)
    cost = cost_of(lambda: torch.addmm(c, a, b, beta=beta, alpha=alpha))
    assert (cost.macs, cost.elementwise_flops) == (60, 15 * extra)
    batch = cost_of(lambda: torch.baddbmm(c, a.expand(7, 3, 4), b.expand(7, 4, 5), beta=beta, alpha=alpha))
    assert (batch.macs, batch.elementwise_flops) == (7 * 60, 7 * 15 * extra)
    row = cost_of(lambda: torch.addmv(c[:, 0], a, b[:, 0], beta=beta, alpha=alpha))
    assert (row.macs, row.elementwise_flops) == (12, 3 * extra)


def test_products_of_other_shapes() -> None:
    x, y = torch.randn(6), torch.randn(6)
    assert (cost_of(torch.dot, x, y).macs, cost_of(torch.mv, torch.randn(3, 6), x).macs) == (6, 18)
    assert cost_of(torch.outer, x, y).macs == 0
    assert cost_of(torch.outer, x, y).elementwise_flops == 36
    assert cost_of(torch.kron, torch.randn(2, 3), torch.randn(4, 5)).elementwise_flops == 2 * 3 * 4 * 5
    added = cost_of(torch.addbmm, torch.randn(3, 5), torch.randn(7, 3, 4), torch.randn(7, 4, 5))
    assert (added.macs, added.elementwise_flops) == (7 * 60, 6 * 15 + 15)
    assert cost_of(torch.matmul, torch.randn(3, 2), torch.randn(7, 2, 5)).macs == 7 * 3 * 2 * 5


def test_complex_product() -> None:
    a, b = torch.randn(3, 4, dtype=torch.complex64), torch.randn(4, 5, dtype=torch.complex64)
    assert cost_of(torch.mm, a, b).flops == 8 * 60


def test_integer_product_is_macs() -> None:
    a, b = torch.ones(3, 4, dtype=torch.int64), torch.ones(4, 5, dtype=torch.int64)
    cost = cost_of(torch.mm, a, b)
    assert (cost.macs, cost.elementwise_flops) == (60, 0)


def test_bilinear_and_its_gradients() -> None:
    layer = torch.nn.Bilinear(3, 4, 5)
    x, y = torch.randn(7, 3, requires_grad=True), torch.randn(7, 4, requires_grad=True)
    forward = 7 * 5 * 3 * 4 + 7 * 5 * 4
    assert counted(lambda: layer(x, y)).total.macs == forward
    phases = counted(lambda: layer(x, y).sum().backward()).by_phase
    assert phases["forward"].macs == forward
    assert phases["backward"].macs >= 3 * 7 * 5 * 3 * 4 - 1


# -- convolution ------------------------------------------------------------------------------------


def loop_convolution(
    x: torch.Tensor, w: torch.Tensor, stride: int, padding: int, dilation: int, groups: int
) -> tuple[int, torch.Tensor]:
    """Every output element takes all its taps, those on the padding too."""
    size = [(n + 2 * padding - dilation * (w.shape[2] - 1) - 1) // stride + 1 for n in x.shape[2:]]
    padded = F.pad(x, (padding,) * 2 * len(size))
    out = torch.zeros(x.shape[0], w.shape[0], *size)
    done = 0
    for n, o in itertools.product(range(x.shape[0]), range(w.shape[0])):
        group = o // (w.shape[0] // groups)
        for place in itertools.product(*map(range, size)):
            for c in range(w.shape[1]):
                for tap in itertools.product(*map(range, w.shape[2:])):
                    at = [p * stride + t * dilation for p, t in zip(place, tap, strict=True)]
                    out[(n, o, *place)] += padded[(n, group * w.shape[1] + c, *at)] * w[(o, c, *tap)]
                    done += 1
    return done, out


def loop_transposed(x: torch.Tensor, w: torch.Tensor, stride: int, groups: int) -> tuple[int, torch.Tensor]:
    """Every input element is spread over all taps."""
    size = [(n - 1) * stride + w.shape[2] for n in x.shape[2:]]
    out = torch.zeros(x.shape[0], w.shape[1] * groups, *size)
    done = 0
    for n, c in itertools.product(range(x.shape[0]), range(x.shape[1])):
        group = c // (x.shape[1] // groups)
        for place in itertools.product(*map(range, x.shape[2:])):
            for o in range(w.shape[1]):
                for tap in itertools.product(*map(range, w.shape[2:])):
                    at = [p * stride + t for p, t in zip(place, tap, strict=True)]
                    out[(n, group * w.shape[1] + o, *at)] += x[(n, c, *place)] * w[(c, o, *tap)]
                    done += 1
    return done, out


@pytest.mark.parametrize(("rank", "stride", "padding", "dilation", "groups"), [
    (1, 1, 0, 1, 1), (1, 2, 1, 2, 2), (2, 1, 1, 1, 1), (2, 2, 1, 1, 2), (2, 1, 2, 2, 4), (3, 2, 1, 1, 1),
])  # fmt: skip
def test_convolution_against_loop(rank: int, stride: int, padding: int, dilation: int, groups: int) -> None:
    x, w = torch.randn(2, 4, *([5] * rank)), torch.randn(4, 4 // groups, *([2] * rank))
    function = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    done, out = loop_convolution(x, w, stride, padding, dilation, groups)
    assert torch.allclose(out, function(x, w, None, stride, padding, dilation, groups), atol=1e-4)
    x.requires_grad_()
    w.requires_grad_()
    phases = counted(lambda: function(x, w, None, stride, padding, dilation, groups).sum().backward()).by_phase
    assert phases["forward"].macs == done
    assert phases["backward"].macs == 2 * done
    x.requires_grad_(False)
    assert (
        counted(lambda: function(x, w, None, stride, padding, dilation, groups).sum().backward()).total.macs == 2 * done
    )


@pytest.mark.parametrize(("rank", "stride", "groups"), [(1, 2, 1), (2, 2, 1), (2, 3, 2), (3, 1, 1)])
def test_transposed_convolution_against_loop(rank: int, stride: int, groups: int) -> None:
    x, w = torch.randn(2, 4, *([3] * rank)), torch.randn(4, 6 // groups, *([2] * rank))
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
    done, out = loop_transposed(x, w, stride, groups)
    assert torch.allclose(out, function(x, w, None, stride, groups=groups), atol=1e-4)
    x.requires_grad_()
    w.requires_grad_()
    phases = counted(lambda: function(x, w, None, stride, groups=groups).sum().backward()).by_phase
    assert (phases["forward"].macs, phases["backward"].macs) == (done, 2 * done)


def test_bias_adds() -> None:
    layer, x = torch.nn.Conv2d(3, 5, 2), torch.randn(2, 3, 4, 4)
    bias = list(layer.parameters())[1]
    phases = counted(lambda: torch.autograd.grad(layer(x), bias, torch.ones(2, 5, 3, 3))).by_phase
    assert phases["forward"].cost.elementwise_flops == 2 * 5 * 9
    assert phases["backward"].cost.elementwise_flops == 5 * (2 * 9 - 1)


def test_unfold_and_fold() -> None:
    x = torch.randn(2, 3, 6, 6)
    assert cost_of(F.unfold, x, 3).flops == 0
    columns = torch.randn(2, 27, 16)
    assert cost_of(F.fold, columns, (6, 6), 3).elementwise_flops == columns.numel() - x.numel()


# -- others -----------------------------------------------------------------------------------------


def test_grouped_product() -> None:
    def grouped(left: tuple[int, ...], right: tuple[int, ...], out: tuple[int, ...]) -> int:
        operands = {"self": tensor(*left, dtype="bfloat16"), "mat2": tensor(*right, dtype="bfloat16")}
        return cost_of_call("aten._grouped_mm.default", operands, tensor(*out, dtype="bfloat16")).macs

    assert grouped((128, 8), (4, 8, 6), (128, 6)) == 128 * 8 * 6
    assert grouped((4, 5, 8), (4, 8, 6), (4, 5, 6)) == 4 * 5 * 8 * 6
    assert grouped((5, 32), (32, 6), (4, 5, 6)) == 5 * 32 * 6
    assert grouped((4, 5, 8), (8, 32), (5, 32)) == 5 * 8 * 32


@pytest.mark.parametrize(("name", "per_output"), [("_grouped_mm", 0), ("_scaled_grouped_mm", 1)])
def test_only_scaled_grouped_products_are_scaled(name: str, per_output: int) -> None:
    operands = {"self": tensor(128, 8), "mat2": tensor(4, 8, 6)}
    assert cost_of_call(f"aten.{name}.default", operands, tensor(128, 6)).elementwise_flops == per_output * 128 * 6


@pytest.mark.parametrize(("rows", "others", "by_product"), [(25, 25, False), (26, 3, True), (3, 26, True)])
def test_distances_change_to_a_product_above_25_rows(rows: int, others: int, by_product: bool) -> None:
    cost = cost_of(torch.cdist, torch.randn(rows, 7), torch.randn(others, 7))
    pairs = rows * others
    if by_product:
        assert (cost.macs, cost.kernel_recompute_macs) == (pairs * 7, pairs * 2)
        assert cost.elementwise_flops == 2 * 7 * (rows + others) + 3 * pairs
    else:
        assert (cost.macs, cost.elementwise_flops) == (0, 3 * 7 * pairs)


def test_sparse_operand_counts_what_it_stores() -> None:
    matrix = torch.zeros(8, 8)
    matrix[0, 1] = matrix[3, 3] = matrix[7, 2] = 1
    sparse, dense = matrix.to_sparse(), torch.randn(8, 5)
    assert cost_of(lambda: sparse @ dense).macs == 3 * 5
    assert cost_of(lambda: matrix @ dense).macs == 8 * 8 * 5
    assert cost_of(lambda: sparse @ dense).read_bytes == 3 * (8 + 8 + 4) + 8 * 5 * 4  # two indices and a value of each


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(
    ("layout", "stored", "nbytes"),  # of five elements in five rows: blocks of 2 x 2 hold four each
    [("coo", 5, 5 * 20), ("csr", 5, 9 * 8 + 5 * 12), ("csc", 5, 7 * 8 + 5 * 12), ("bsr", 20, 5 * 8 + 5 * 8 + 80)],
)
@pytest.mark.parametrize("columns", [None, 4])
def test_every_layout_counts_what_it_stores(layout: str, stored: int, nbytes: int, columns: int | None) -> None:
    matrix = torch.zeros(8, 6)
    for row, column in ((0, 1), (1, 3), (3, 0), (4, 5), (6, 2)):
        matrix[row, column] = 1
    sparse = matrix.to_sparse_bsr((2, 2)) if layout == "bsr" else getattr(matrix, f"to_sparse_{layout}")()
    dense = torch.randn(6) if columns is None else torch.randn(6, columns)
    cost = cost_of(lambda: sparse @ dense)
    assert cost.macs == stored * (columns or 1)
    assert cost.read_bytes == nbytes + dense.nbytes


def test_elementwise_work_on_a_sparse_matrix_is_on_what_it_stores() -> None:
    matrix, weights = torch.eye(8).to_sparse(), torch.randn(8, 8)
    assert cost_of(lambda: matrix * 2).elementwise_flops == 8
    cost = cost_of(lambda: weights.add_(matrix))
    assert (cost.elementwise_flops, cost.read_bytes, cost.written_bytes) == (8, 8 * (20 + 4), 8 * 4)


def test_other_rules_are_not_for_sparse_operands() -> None:
    matrix = torch.eye(8).to_sparse()
    total = count(recorded(lambda: matrix @ matrix), resolver=lambda op: (Cost(macs=512), "framework")).total
    assert (total.unknown_ops, total.macs) == (1, 0)


def test_factorizations_are_leading_terms() -> None:
    a = torch.eye(9) + torch.randn(9, 9) / 100
    assert cost_of(torch.linalg.inv, a).macs == 9**3
    assert cost_of(torch.linalg.cholesky_ex, a).macs == 9**3 // 6
    assert cost_of(torch.linalg.lu_factor_ex, a).macs == 9**3 // 3
    solved = cost_of(lambda: torch.linalg.solve_triangular(a, torch.ones(9, 4), upper=True))
    assert solved.macs == 9 * 9 * 4 // 2
    assert not solved.exact
    assert count(recorded(torch.linalg.svd, a)).total.unknown_ops == 1


def test_einsum_counts_the_products_it_dispatches() -> None:
    a, b = torch.randn(2, 3, 4), torch.randn(4, 5)
    assert cost_of(lambda: torch.einsum("bij,jk->bik", a, b)).macs == math.prod((2, 3, 4, 5))
    assert cost_of(lambda: torch.einsum("bij,bij->bij", a, a)).macs == 0
