"""Every form in which a JAX function is given, and every construct of its control flow."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

import tensortide
from tensortide.cost import count
from tensortide.errors import CaptureError, WorkloadError
from tensortide.graph import Graph, Role, unrolled

pytestmark = pytest.mark.frameworks

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax


def shaped(*shape: int, dtype: Any = "float32") -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def opened(*target: Any, **options: Any) -> Graph:
    return tensortide.open(target, **options).graph


def macs(graph: Graph) -> int:
    return count(graph).total.cost.macs


def square(x: Any) -> Any:
    return x @ x


def names(graph: Graph) -> list[str]:
    return [graph.calls[op.call].op for op in graph.ops]


X = (4, 4)


def test_keywords_flags_texts_and_static_arguments() -> None:
    @functools.partial(jax.jit, static_argnums=1, static_argnames="act")
    def powers(x: Any, n: int, *, act: str) -> Any:
        for _ in range(n):
            x = getattr(jax.nn, act)(x @ x)
        return x

    assert macs(opened(powers, (shaped(*X), 3), {"act": "tanh"})) == 3 * 64
    assert macs(opened(lambda x, train, name: x @ x if train and name else x, (shaped(*X), True, "a"))) == 64
    assert macs(opened(lambda x, *, y: x @ y, (shaped(*X),), {"y": shaped(4, 5)})) == 80
    assert macs(opened(square, shaped(*X))) == 64, "one argument needs no tuple"


def test_numbers_that_the_program_spells_out_have_a_cost_where_arrays_do() -> None:
    def summed(x: Any) -> Any:
        return x * jax.jit(jnp.sum)(2.0) + jnp.zeros(5).at[2].add(1.0)

    graph = opened(summed, (shaped(5),))
    assert "jax.reduce_sum" in names(graph)
    assert count(graph, strict=True).total.cost.elementwise_flops >= 10


def test_arguments_that_cannot_be_taken_apart_are_one_error() -> None:
    with pytest.raises(WorkloadError, match="cannot take the arguments apart"):
        opened(lambda d: d["a"], ({"a": shaped(3), 1: shaped(2)},))


def test_traced_functions_and_jaxprs() -> None:
    assert macs(tensortide.open(jax.jit(square).trace(shaped(*X))).graph) == 64
    assert macs(tensortide.open(jax.make_jaxpr(square)(shaped(*X))).graph) == 64
    with pytest.raises(WorkloadError, match=r"a Lowered of JAX holds no jaxpr .* jitted.trace"):
        tensortide.open(jax.jit(square).lower(shaped(*X)))


def test_what_the_function_raises_is_one_message_with_its_line() -> None:
    def wrong(x: Any) -> Any:
        return x if x.sum() > 0 else -x

    with pytest.raises(CaptureError, match=r"cannot be traced by JAX: TracerBool.*\n  at .*test_trace.py:\d+: ret"):
        opened(wrong, (shaped(3),))
    with pytest.raises(CaptureError, match=r"contracting dimensions.*\n  at .*test_trace.py:\d+: return x @ x"):
        opened(square, (shaped(2, 3),))


def test_loops_are_kept_and_count_by_their_trips() -> None:
    def nested(x: Any) -> Any:
        def outer(carry: Any, _: Any) -> Any:
            inner, _ = lax.scan(lambda c, _: (c @ c, None), carry, None, 3)
            return inner, carry.sum()

        return lax.scan(outer, x, None, 5)

    graph = opened(nested, (shaped(*X),))
    assert [loop.trips for loop in graph.loops] == [5, 3]
    assert macs(graph) == macs(unrolled(graph)) == 5 * 3 * 64
    assert len(graph) < 20
    assert macs(opened(lambda x: lax.scan(lambda c, _: (c @ c, c), x, None, 0), (shaped(*X),))) == 0


def test_trip_counts_that_data_decide_are_assumed_or_given() -> None:
    def loop(n: Any, x: Any) -> Any:
        return lax.fori_loop(0, n, lambda i, x: x @ x, x)

    arguments = (shaped(dtype="int32"), shaped(*X))
    assert opened(loop, arguments).loops[0].assumed
    given = opened(loop, arguments, hyperparameters={"trips.while": 5})
    assert not given.loops[0].assumed
    assert macs(given) == 5 * 64
    with pytest.raises(WorkloadError, match=r"no loop 'other'\. Its loops: while"):
        opened(loop, arguments, hyperparameters={"trips.other": 5})


@pytest.mark.parametrize(
    ("goes_on", "trips", "why"),
    [
        (lambda i, _: i < 10**6, 10**6, ""),
        (lambda i, _: i < 2**31 - 1, 2**31 - 1, ""),
        (lambda i, _: True, None, "nothing ends the loop"),
        (lambda i, _: i >= 0, None, "over 100,000"),
        (lambda i, x: (i < 2**31 - 1) & (x.sum() > 0), None, "data decide it, at most 2,147,483,647 by its condition"),
    ],
    ids=["million", "largest", "endless", "wraps", "data"],
)
def test_a_count_that_is_not_known_says_why(goes_on: Any, trips: int | None, why: str) -> None:
    def loop(x: Any) -> Any:
        return lax.while_loop(lambda c: goes_on(*c), lambda c: (c[0] + 1, c[1] @ c[1]), (0, x))[1]

    graph = opened(loop, (shaped(*X),))
    assert (graph.loops[0].trips, graph.loops[0].assumed) == (trips or 1, trips is None)
    notes = [note for note in graph.meta.assumptions if "trip count" in note]
    assert len(notes) == (trips is None)
    assert all(why in note for note in notes)


def test_conditionals_are_branches_and_under_vmap_selections() -> None:
    def choose(p: Any, x: Any) -> Any:
        return lax.cond(p, lambda x: x @ x, lambda x: x @ x @ x, x)

    low, high = count(opened(choose, (shaped(dtype="bool"), shaped(*X)))).range
    assert (low.cost.macs, high.cost.macs) == (64, 128)
    both = opened(jax.vmap(choose), (shaped(3, dtype="bool"), shaped(3, 4, 4)))
    assert not both.branches
    assert macs(both) == 3 * (64 + 128)
    cases = [lambda x: x, lambda x: x @ x, lambda x: x @ x @ x]
    low, high = count(opened(lambda i, x: lax.switch(i, cases, x), (shaped(dtype="int32"), shaped(*X)))).range
    assert (low.cost.macs, high.cost.macs) == (0, 128)


@pytest.mark.parametrize(("stride", "groups", "dilation", "padding"), [
    (1, 1, 1, "VALID"), (2, 1, 1, "VALID"), (1, 3, 1, "SAME"), (2, 3, 1, "SAME"), (1, 1, 2, "VALID"),
    (3, 1, 1, ((1, 2), (0, 3))),
])  # fmt: skip
def test_gradients_of_convolutions_cost_what_the_convolution_does(
    stride: int, groups: int, dilation: int, padding: Any
) -> None:
    def conv(w: Any, x: Any) -> Any:
        steps = (stride, stride)
        y = lax.conv_general_dilated(
            jnp.sin(x), w, steps, padding, rhs_dilation=(dilation, dilation), feature_group_count=groups
        )
        return (y**2).sum()

    w, x = shaped(6, 6 // groups, 3, 3), shaped(2, 6, 10, 10)
    graph = opened(jax.value_and_grad(conv, (0, 1)), (w, x))
    phases = {phase: total.cost.macs for phase, total in count(graph).by_phase.items()}
    assert phases["backward"] == 2 * phases["forward"] > 0


def test_gradients_of_transposed_and_batch_grouped_convolutions() -> None:
    def transposed(w: Any, x: Any) -> Any:
        return (
            lax.conv_transpose(jnp.sin(x), w, (2, 2), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW")) ** 2
        ).sum()

    graph = opened(jax.value_and_grad(transposed, (0, 1)), (shaped(5, 6, 4, 4), shaped(2, 6, 8, 8)))
    assert macs(graph) == 3 * (2 * 64 * 6 * 5 * 16)

    def grouped(w: Any, x: Any) -> Any:
        return (lax.conv_general_dilated(jnp.sin(x), w, (1, 1), "SAME", batch_group_count=2) ** 2).sum()

    graph = opened(jax.value_and_grad(grouped, (0, 1)), (shaped(6, 3, 3, 3), shaped(4, 3, 8, 8)))
    assert macs(graph) == 3 * (2 * 64 * 6 * 3 * 9)


def test_custom_calls_are_unknown_by_name() -> None:
    graph = opened(jax.ffi.ffi_call("mykernel", shaped(*X)), (shaped(*X),))
    assert names(graph) == ["jax.ffi_call.mykernel"]
    assert count(graph).total.unknown_ops
    seen = opened(lambda x: jax.pure_callback(lambda x: x, shaped(*X), x) @ x, (shaped(*X),))
    assert macs(seen) == 64
    assert count(seen).total.unknown_ops


def test_every_common_primitive_has_a_rule() -> None:
    def many(x: Any, ids: Any) -> Any:
        return [
            *(jnp.cumsum(x, 1), jnp.sort(x), jnp.argsort(x), lax.top_k(x, 2), jnp.fft.fft(x), jnp.fft.rfft(x)),
            *(jnp.linalg.cholesky(x @ x.T), jnp.linalg.solve(x @ x.T, x), jnp.linalg.qr(x), jnp.linalg.inv(x @ x.T)),
            *(lax.cumlogsumexp(x), jnp.convolve(x[0], x[1]), jax.random.normal(jax.random.key(0), (3, 4))),
            *(jax.random.permutation(jax.random.key(0), 10), x.at[ids].add(1.0), x.at[0].set(2.0), jnp.var(x)),
            *(jax.nn.gelu(x), jax.nn.silu(x), jax.scipy.special.gammaln(x), jnp.clip(x, 0, 1), x**2.5, x**-2),
            *(jnp.roll(x, 1), jnp.pad(x, 1), jnp.tile(x, (2, 1)), jnp.unique(x, size=4), jnp.searchsorted(x[0], x[1])),
            *(jax.nn.one_hot(ids, 4), lax.bitcast_convert_type(x, jnp.int32), jnp.median(x), jax.nn.logsumexp(x)),
            *(lax.associative_scan(jnp.add, x), jax.image.resize(x, (8, 16), "bilinear"), jnp.linalg.det(x @ x.T)),
            lax.ragged_dot(x, jnp.ones((2, 4, 3)), jnp.array([1, 3], jnp.int32)),
            lax.reduce_window(x, -jnp.inf, lax.max, (1, 2), (1, 2), "VALID"),
        ]

    count(opened(many, (shaped(4, 4), shaped(2, dtype="int32"))), strict=True)


def test_eigenvalues_are_unknown() -> None:
    assert count(opened(jnp.linalg.eigh, (shaped(*X),))).total.unknown_ops


def test_a_device_of_a_mesh_has_its_part() -> None:
    def step(p: Any, x: Any) -> Any:
        def loss(p: Any, x: Any) -> Any:
            return lax.pmean((jnp.tanh(x @ p["a"]) ** 2).mean(), "d")

        return jax.value_and_grad(loss)(p, x)

    spec = jax.sharding.PartitionSpec
    mesh = jax.sharding.AbstractMesh((4,), ("d",))
    on_mesh = jax.shard_map(step, mesh=mesh, in_specs=(spec(), spec("d")), out_specs=(spec(), spec()))
    graph = opened(on_mesh, ({"a": shaped(8, 16)}, shaped(32, 8)))
    shapes = {entry.name: graph.tensors[entry.tensor].shape for entry in graph.named}
    assert shapes == {"p.a": (8, 16), "x": (8, 8)}
    assert macs(graph) == 2 * (8 * 8 * 16)
    assert "jax.psum" in names(graph)
    assert any("one device of 4" in text for text in graph.meta.assumptions)
    sizes = [dict(call.arguments).get("group_size") for call in graph.calls if call.op == "jax.psum"]
    assert set(sizes) == {4}


def test_names_lines_and_modules_of_flax() -> None:
    nn = pytest.importorskip("flax.linen")

    class MLP(nn.Module):  # type: ignore[misc, name-defined]
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return nn.Dense(3)(nn.relu(nn.Dense(8)(x)))

    model, x = MLP(), shaped(2, 4)
    variables = jax.eval_shape(model.init, jax.random.key(0), x)
    graph = opened(jax.grad(lambda v, x: (model.apply(v, x) ** 2).sum()), (variables, x))
    assert {module.path for module in graph.modules} >= {"MLP.Dense_0", "MLP.Dense_1"}
    named = {entry.name for entry in graph.named if entry.role is Role.PARAMETER}
    assert "MLP.Dense_0.kernel" in named
    assert len(named) == 4
    assert {source.file for source in graph.sources} == {__file__}


def test_modules_of_nnx_are_arguments_like_arrays() -> None:
    nnx = pytest.importorskip("flax.nnx")

    class Net(nnx.Module):  # type: ignore[misc, name-defined]
        def __init__(self, rngs: Any) -> None:
            self.a, self.n = nnx.Linear(4, 6, rngs=rngs), nnx.BatchNorm(6, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.n(self.a(x))

    def step(model: Any, x: Any) -> Any:
        return nnx.value_and_grad(lambda model: (model(x) ** 2).sum())(model)

    graph = opened(step, (nnx.eval_shape(lambda: Net(nnx.Rngs(0))), shaped(2, 4)))
    roles = {entry.name: entry.role for entry in graph.named}
    assert sorted(role for role in roles.values()) == sorted([Role.PARAMETER] * 4 + [Role.BUFFER] * 2 + [Role.INPUT]), (
        roles
    )
    assert macs(graph) == 2 * (2 * 4 * 6)


def test_donated_arguments_are_said() -> None:
    step = jax.jit(lambda p, g: p - 0.1 * g, donate_argnums=0)
    graph = opened(step, (shaped(*X), shaped(*X)))
    assert any("1 donated argument" in text for text in graph.meta.assumptions)


def test_a_step_that_trains_over_several_batches_in_a_scan_has_an_optimizer() -> None:
    def epoch(w: Any, xs: Any) -> Any:
        def one(w: Any, x: Any) -> Any:
            value, g = jax.value_and_grad(lambda w: (jnp.tanh(x @ w) ** 2).sum())(w)
            return w - 0.1 * g, value

        return lax.scan(one, w, xs)

    totals = count(opened(epoch, (shaped(4, 6), shaped(10, 2, 4)))).by_phase
    assert totals["optimizer"].cost.elementwise_flops == 10 * 2 * 24
    assert totals["forward"].cost.macs == totals["backward"].cost.macs == 10 * 2 * 4 * 6


def test_a_keras_model_on_jax_has_named_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "jax":
        pytest.skip("Keras was imported with another backend")
    layers = keras.layers
    model = keras.Sequential([layers.Input((12,)), layers.Dense(16), layers.BatchNormalization(), layers.Dense(4)])
    graph = opened(model, (jnp.ones((8, 12)),))
    roles = {entry.name: entry.role for entry in graph.named}
    assert macs(graph) == 8 * (12 * 16 + 16 * 4)
    assert sum(role is Role.PARAMETER for role in roles.values()) == 6
    assert sum(role is Role.BUFFER for role in roles.values()) == 2
    assert any(name.endswith("dense.kernel") for name in roles)


def test_a_function_is_built_without_allocating_what_it_makes(tmp_path: Path) -> None:
    source = """
import jax, jax.numpy as jnp
def build(width=1 << 17):
    w = jax.random.normal(jax.random.key(0), (width, width))  # 64 GiB
    return (lambda x: x @ w), (jnp.ones((4, width)),)

def reads():
    w = jnp.ones((4, 4))
    return (lambda x: x @ w), (jnp.ones((int(w.sum()), 4)),)
"""
    (tmp_path / "wide.py").write_text(source)
    assert macs(tensortide.open(f"{tmp_path / 'wide.py'}:build").graph) == 4 << 34
    assert macs(tensortide.open(f"{tmp_path / 'wide.py'}:reads").graph) == 16 * 4 * 4, "called for real"


def test_a_train_state_of_flax_has_parameters_buffers_and_optimizer_state() -> None:
    nn, optax = pytest.importorskip("flax.linen"), pytest.importorskip("optax")
    train_state = pytest.importorskip("flax.training.train_state")

    class CNN(nn.Module):  # type: ignore[misc, name-defined]
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.BatchNorm(use_running_average=False)(nn.Conv(8, (3, 3))(x))
            return nn.Dense(10)(nn.Dropout(0.5, deterministic=False)(nn.relu(x).mean((1, 2))))

    class State(train_state.TrainState):  # type: ignore[misc, name-defined]
        batch_stats: Any

    model, x = CNN(), shaped(2, 8, 8, 3)
    variables = jax.eval_shape(lambda key, x: model.init({"params": key, "dropout": key}, x), jax.random.key(0), x)
    made = {"apply_fn": model.apply, "params": variables["params"], "tx": optax.adam(1e-3)}
    state = jax.eval_shape(lambda: State.create(**made, batch_stats=variables["batch_stats"]))

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: Any, batch: Any, key: Any) -> Any:
        def loss(params: Any) -> Any:
            given = {"params": params, "batch_stats": state.batch_stats}
            out, others = state.apply_fn(given, batch["x"], mutable=["batch_stats"], rngs={"dropout": key})
            return optax.softmax_cross_entropy_with_integer_labels(out, batch["y"]).mean(), others

        (value, others), gradients = jax.value_and_grad(loss, has_aux=True)(state.params)
        return state.apply_gradients(grads=gradients, batch_stats=others["batch_stats"]), value

    key = shaped(dtype=jax.random.key(0).dtype)
    graph = opened(step, (state, {"x": x, "y": shaped(2, dtype="int32")}, key))
    roles = {entry.name: entry.role for entry in graph.named}
    count_of = {role: sum(each is role for each in roles.values()) for role in set(roles.values())}
    assert count_of == {Role.PARAMETER: 6, Role.BUFFER: 2, Role.OPTIMIZER_STATE: 2 * 6 + 2, Role.INPUT: 3}, roles
    assert roles["CNN.Dense_0.kernel"] is Role.PARAMETER


def test_an_optimizer_of_nnx_is_an_argument_like_its_model() -> None:
    nnx, optax = pytest.importorskip("flax.nnx"), pytest.importorskip("optax")
    model = nnx.Linear(4, 6, rngs=nnx.Rngs(0))

    @nnx.jit
    def step(model: Any, optimizer: Any, x: Any) -> Any:
        value, gradients = nnx.value_and_grad(lambda model: (model(x) ** 2).sum())(model)
        optimizer.update(model, gradients)
        return value

    graph = opened(step, (model, nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param), shaped(2, 4)))
    totals = count(graph).by_phase
    assert (totals["forward"].cost.macs, totals["backward"].cost.macs) == (48, 48)
    assert totals["optimizer"].cost.elementwise_flops > 30 * 10
    roles = [entry.role for entry in graph.named]
    assert roles.count(Role.PARAMETER) == 2
    assert roles.count(Role.OPTIMIZER_STATE) >= 2 * 2 + 1


def test_second_derivatives_solvers_and_other_dtypes() -> None:
    def conjugate(a: Any, b: Any) -> Any:
        return jax.scipy.sparse.linalg.cg(lambda x: a @ x, b, maxiter=10)[0]

    graph = opened(conjugate, (shaped(4, 4), shaped(4)))
    assert any("at most 10 by its condition" in text for text in graph.meta.assumptions)
    assert macs(opened(lambda a: a @ a, (shaped(4, 4, dtype="complex64"),))) == 4 * 64
    assert macs(opened(lambda: jnp.ones((3, 3)) @ jnp.ones((3, 3)), ())) == 27
    twice = opened(jax.hessian(lambda w, x: (jnp.tanh(x @ w) ** 2).sum()), (shaped(4, 3), shaped(5, 4)))
    assert macs(twice) > 0
    assert not count(twice).total.unknown_ops
