"""A jaxpr as a Program: calls inlined, loops and conditionals kept, nothing computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tensortide.importers.jax import compat
from tensortide.importers.jax.avals import arguments_of, cell_of, dtype_of, number
from tensortide.importers.jax.program import Arm, Carry, Cell, Choice, Loop, Node, Slice, SourceInfo, Step
from tensortide.importers.jax.trips import trip_count, value_of

_MUTATING = frozenset(("swap", "addupdate", "accum_grad_in_ref"))
_GROUPED = ("axes", "axis_name", "axis_names")


@dataclass
class Scope:
    """Where a jaxpr is called: the name stack and jitted functions around it, the devices along each named axis."""

    stack: str = ""
    functions: tuple[str, ...] = ()
    axes: Mapping[Any, int] = field(default_factory=dict)
    around: tuple[str, int, str] | None = None


@dataclass
class Flattener:
    """Turns jaxprs into nodes. ``trips`` are given trip counts of while loops by name. ``devices`` are those of a
    ``shard_map``, ``partitioned`` those over which XLA spreads arrays by itself."""

    trips: Mapping[str, int] = field(default_factory=dict)
    constants: list[Cell] = field(default_factory=list)
    known: dict[Cell, Any] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    devices: int = 1
    partitioned: int = 1
    cells: dict[int, tuple[Any, Cell]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def run(self, jaxpr: Any, given: Sequence[Cell], scope: Scope) -> tuple[list[Node], list[Cell]]:
        """Return the nodes of ``jaxpr`` on the ``given`` operands, and its results."""
        inner, consts = compat.opened(jaxpr)
        env: dict[Any, Cell] = dict(zip(inner.invars, given, strict=True))
        env.update(zip(inner.constvars, map(self.constant, consts), strict=False))
        nodes: list[Node] = []
        for equation in inner.eqns:
            made = self._equation(equation, [self._read(env, var) for var in equation.invars], nodes, scope)
            env.update(zip(equation.outvars, made, strict=True))
        return nodes, [self._read(env, var) for var in inner.outvars]

    def constant(self, value: Any) -> Cell:
        """Return the cell of an array that the program closes over, the same one each time."""
        if id(value) not in self.cells:
            cell = Cell(tuple(map(int, value.shape)), dtype_of(value.dtype))
            if not cell.shape:
                cell = Cell((), cell.dtype, literal=number(value))
            if cell.literal is None:
                cell.name = f"constant.{len(self.constants)}"
                self.constants.append(cell)
            self.cells[id(value)] = value, cell
        return self.cells[id(value)][1]

    def _read(self, env: Mapping[Any, Cell], var: Any) -> Cell:
        if not hasattr(var, "val"):
            return env[var]
        if getattr(var.val, "ndim", 0):
            return self.constant(var.val)
        return Cell((), dtype_of(var.aval.dtype), literal=number(var.val))

    def _equation(self, equation: Any, given: list[Cell], nodes: list[Node], scope: Scope) -> list[Cell]:
        name, parameters = compat.primitive_of(equation), equation.params
        place = self._place(equation, scope)
        inside = Scope(place.stack, scope.functions, scope.axes, place.source)
        special = _SPECIAL.get(name)
        if special is not None:
            return special(self, name, parameters, given, equation, nodes, inside)
        callee = compat.called(name, parameters)
        if callee is not None:
            if name == "jit":
                inside.functions = _function(scope.functions, callee)
                self.partitioned = max(self.partitioned, compat.devices_of(parameters.get("in_shardings")))
            more, results = self.run(callee, given, inside)
            nodes += more
            return results
        return self._step(name, given, equation, nodes, place, scope.axes)

    def _step(
        self, name: str, given: list[Cell], equation: Any, nodes: list[Node], place: SourceInfo, axes: Mapping[Any, int]
    ) -> list[Cell]:
        parameters = equation.params
        made = [cell_of(var.aval) for var in equation.outvars]
        arguments = arguments_of(parameters)
        if group := _group(parameters, axes):
            arguments["group_size"] = group
        if target := parameters.get("target_name") or parameters.get("call_target_name"):
            name = f"{name}.{target}"  # a custom call
        step = Step(
            name, given, made, arguments, place,
            kept=not compat.silent(equation.effects), mutates=(0,) if name in _MUTATING else (),
        )  # fmt: skip
        if (value := value_of(step, self.known)) is not None:
            self.known[made[0]] = value
        nodes.append(step)
        return made

    def _place(self, equation: Any, scope: Scope) -> SourceInfo:
        stack = compat.name_stack(equation)
        joined = "/".join(part for part in (scope.stack, stack) if part)
        return SourceInfo(joined, scope.functions, compat.user_line(equation) or scope.around)

    def _named(self, kind: str) -> str:
        self.names[kind] = count = self.names.get(kind, 0) + 1
        return kind if count == 1 else f"{kind}_{count}"

    # --- control flow ---------------------------------------------------------------------------------

    def scan(
        self, name: str, parameters: Any, given: list[Cell], equation: Any, nodes: list[Node], scope: Scope
    ) -> list[Cell]:
        """A loop of known length over rows of its operands."""
        consts, carried = parameters["num_consts"], parameters["num_carry"]
        length = int(parameters["length"])
        made = [cell_of(var.aval) for var in equation.outvars]
        if not length:
            return [*given[consts : consts + carried], *made[carried:]]
        inner, _ = compat.opened(parameters["jaxpr"])
        starts = [cell_of(var.aval) for var in inner.invars[consts:]]
        body, results = self.run(parameters["jaxpr"], [*given[:consts], *starts], scope)
        inits = given[consts : consts + carried]
        carries = list(map(Carry, inits, starts[:carried], results[:carried], made[:carried]))
        read = list(map(Slice, given[consts + carried :], starts[carried:]))
        written = list(map(Slice, made[carried:], results[carried:]))
        place = SourceInfo(scope.stack, scope.functions, scope.around)
        nodes.append(Loop(self._named(name), length, body, carries, read, written, place=place))
        return made

    def while_loop(
        self, name: str, parameters: Any, given: list[Cell], equation: Any, nodes: list[Node], scope: Scope
    ) -> list[Cell]:
        """A loop whose condition is computed once before it and at the end of every iteration."""
        before, consts = parameters["cond_nconsts"], parameters["body_nconsts"]
        of_condition, of_body = given[:before], given[before : before + consts]
        inits = given[before + consts :]
        made = [cell_of(var.aval) for var in equation.outvars]
        starts = [Cell(cell.shape, cell.dtype) for cell in made]
        loop = self._named(name)
        body, following = self.run(parameters["body_jaxpr"], [*of_body, *starts], scope)
        carries = list(map(Carry, inits, starts, following, made))
        first, goes_on = self.run(parameters["cond_jaxpr"], [*of_condition, *starts], scope)
        found, most, why = trip_count(first, goes_on[0], body, carries, self.known)
        if (given_trips := self.trips.get(loop)) is not None:
            self.used.add(loop)
            found = given_trips
        once, goes = self.run(parameters["cond_jaxpr"], [*of_condition, *inits], scope)
        again, more = self.run(parameters["cond_jaxpr"], [*of_condition, *following], scope)
        nodes += once
        place = SourceInfo(scope.stack, scope.functions, scope.around)
        decides = [goes[0], more[0]]
        trips = 1 if found is None else found
        if trips:
            body += again
            nodes.append(Loop(loop, trips, body, carries, [], [], decides, place, found is None, most, why))
        return made if trips else inits

    def cond(
        self, name: str, parameters: Any, given: list[Cell], equation: Any, nodes: list[Node], scope: Scope
    ) -> list[Cell]:
        """A conditional, or the branch that it takes where the program spells that out."""
        selector, operands = given[0], given[1:]
        index: Any = self.known.get(selector) if selector.literal is None else selector.literal
        branches = parameters["branches"]
        if index is not None:
            taken = branches[min(max(int(index), 0), len(branches) - 1)]
            more, results = self.run(taken, operands, scope)
            nodes += more
            return results
        made = [cell_of(var.aval) for var in equation.outvars]
        arms = [Arm(*self.run(branch, operands, scope)) for branch in branches]
        nodes.append(Choice(selector, arms, made, SourceInfo(scope.stack, scope.functions, scope.around)))
        return made

    def solve(
        self, name: str, parameters: Any, given: list[Cell], equation: Any, nodes: list[Node], scope: Scope
    ) -> list[Cell]:
        """The solution of a linear system by a function of the user's; the other functions serve its gradient."""
        lengths = parameters["const_lengths"]
        before = lengths.matvec + lengths.vecmat
        consts, right = given[before : before + lengths.solve], given[sum(lengths) :]
        more, results = self.run(parameters["jaxprs"].solve, [*consts, *right], scope)
        nodes += more
        return results

    def sharded(
        self, name: str, parameters: Any, given: list[Cell], equation: Any, nodes: list[Node], scope: Scope
    ) -> list[Cell]:
        """The program of one device of a mesh, on its part of the operands."""
        sizes = compat.axis_sizes(parameters["mesh"])
        self.devices = max(self.devices, math.prod(sizes.values()))
        scope.axes = {**scope.axes, **sizes}
        place = SourceInfo(scope.stack, scope.functions, scope.around)
        inner, _ = compat.opened(parameters["jaxpr"])
        inside = [
            self._moved("shard", cell, var.aval, nodes, place) for cell, var in zip(given, inner.invars, strict=True)
        ]
        more, results = self.run(parameters["jaxpr"], inside, scope)
        nodes += more
        made = zip(results, equation.outvars, strict=True)
        return [self._moved("unshard", cell, var.aval, nodes, place) for cell, var in made]

    def _moved(self, name: str, cell: Cell, aval: Any, nodes: list[Node], place: SourceInfo) -> Cell:
        target = cell_of(aval)
        if target.shape == cell.shape:
            return cell
        nodes.append(Step(name, [cell], [target], place=place))
        return target


_SPECIAL: dict[str, Callable[..., list[Cell]]] = {
    "scan": Flattener.scan,
    "while": Flattener.while_loop,
    "cond": Flattener.cond,
    "shard_map": Flattener.sharded,
    "custom_linear_solve": Flattener.solve,
}


def _group(parameters: Mapping[str, Any], axes: Mapping[Any, int]) -> int:
    names: list[Any] = []
    for key in _GROUPED:
        value = parameters.get(key, ())
        names += value if isinstance(value, tuple | list) else [value]
    groups = parameters.get("axis_index_groups")
    if groups:
        return len(groups[0])
    sizes = [axes[name] for name in names if not isinstance(name, int) and name in axes]
    return math.prod(sizes) if sizes else 0


def _function(around: tuple[str, ...], callee: Any) -> tuple[str, ...]:
    """Return the jitted functions around a call: those of the user only, not the many of JAX's own."""
    name, file = compat.function_of(callee)
    return around if compat.is_library(file) or not name.isidentifier() else (*around, name)
