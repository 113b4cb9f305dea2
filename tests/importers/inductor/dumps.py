"""Dumps by hand: a linear layer with a buffer, forward, backward and an optimizer with momentum."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tensortide.graph import Phase
from tensortide.importers.imported import Imported
from tensortide.importers.inductor.read import Texts, trace_of_texts
from tensortide.importers.textfile import TextFile

FORWARD = """\
class GraphModule(torch.nn.Module):
    def forward(self, primals_1: "f32[8, 4]", primals_2: "f32[8]", primals_3: "f32[2, 4]", primals_4: "i64[]"):
        # File: /code/model.py:12 in forward, code: self.steps += 1
        add: "i64[]" = torch.ops.aten.add.Tensor(primals_4, 1)

        # File: /code/model.py:13 in forward (Model.forward), code: y = self.linear(x)
        permute: "f32[4, 8]" = torch.ops.aten.permute.default(primals_1, [1, 0])
        addmm: "f32[2, 8]" = torch.ops.aten.addmm.default(primals_2, primals_3, permute);  primals_2 = permute = None

        # No stacktrace found for following nodes
        max_1 = torch.ops.aten.max.dim(addmm, 1)
        getitem: "f32[2]" = max_1[0]
        getitem_1: "i64[2]" = max_1[1];  max_1 = None
        copy_: "i64[]" = torch.ops.aten.copy_.default(primals_4, add);  primals_4 = add = copy_ = None
        return (getitem, primals_3, getitem_1)
"""

BACKWARD = """\
class GraphModule(torch.nn.Module):
    def forward(self, primals_3: "f32[2, 4]", getitem_1: "i64[2]", tangents_1: "f32[2]"):
        full: "f32[2, 8]" = torch.ops.aten.full.default([2, 8], 0, dtype = torch.float32, device = device(type='cpu'))
        unsqueeze: "i64[2, 1]" = torch.ops.aten.unsqueeze.default(getitem_1, 1);  getitem_1 = None
        unsqueeze_1: "f32[2, 1]" = torch.ops.aten.unsqueeze.default(tangents_1, 1);  tangents_1 = None
        addmm: "f32[2, 8]" = torch.ops.aten.scatter.src(full, 1, unsqueeze, unsqueeze_1);  full = unsqueeze = None
        permute: "f32[8, 2]" = torch.ops.aten.permute.default(addmm, [1, 0])
        mm: "f32[8, 4]" = torch.ops.aten.mm.default(permute, primals_3);  permute = primals_3 = None
        sum_1: "f32[8]" = torch.ops.aten.sum.dim_IntList(addmm, [0]);  addmm = None
        return (mm, sum_1, None, None)
"""

WEIGHT = """\
class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[8, 4]", arg1_1: "f32[8]", arg2_1: "f32[8, 4]", arg3_1: "f32[8]", arg4_1: "f32[8]"):
        mul: "f32[8]" = torch.ops.aten.mul.Tensor(arg4_1, 0.9)
        add: "f32[8]" = torch.ops.aten.add.Tensor(mul, arg3_1);  mul = arg3_1 = None
        add_1: "f32[8, 4]" = torch.ops.aten.add.Tensor(arg0_1, arg2_1, alpha = -0.1);  arg2_1 = None
        add_2: "f32[8]" = torch.ops.aten.add.Tensor(arg1_1, add, alpha = -0.1)
        copy_: "f32[8, 4]" = torch.ops.aten.copy_.default(arg0_1, add_1);  arg0_1 = add_1 = copy_ = None
        copy__1: "f32[8]" = torch.ops.aten.copy_.default(arg1_1, add_2);  arg1_1 = add_2 = copy__1 = None
        copy__2: "f32[8]" = torch.ops.aten.copy_.default(arg4_1, add);  arg4_1 = add = copy__2 = None
        return ()
"""

STEP = {Phase.FORWARD: FORWARD, Phase.BACKWARD: BACKWARD, Phase.OPTIMIZER: WEIGHT}


def trace(*texts: str, bind: Mapping[str, int] | None = None) -> Imported:
    """The Trace of a forward dump, a backward and an optimizer one, as many as there are."""
    files = [TextFile(f"{phase}.py", text) for phase, text in zip(STEP, texts, strict=False)]
    return trace_of_texts(Texts(files[:1], files[1:2], *files[2:]), bind=bind)


def body(*lines: str, parameters: str = 'primals_1: "f32[4, 6]", primals_2: "f32[6]"', result: str = "()") -> str:
    """A forward dump with these nodes."""
    nodes = "".join(f"        {line}\n" for line in lines)
    return (
        f"class GraphModule(torch.nn.Module):\n    def forward(self, {parameters}):\n{nodes}        return {result}\n"
    )


def bare(text: str) -> str:
    """``text`` in the older style: types without quotes."""
    return re.sub(r': "([^"]*)"', r": \1", text)


def newer(text: str) -> str:
    """``text`` with strides and devices, as a newer style has them."""

    def strided(match: re.Match[str]) -> str:
        dims = [int(dim) for dim in match[2].split(", ")] if match[2] else []
        strides = [1]
        for dim in reversed(dims[1:]):
            strides.insert(0, strides[0] * dim)
        return f'"{match[1]}[{match[2]}][{", ".join(map(str, strides[: len(dims)]))}]cuda:0"'

    return re.sub(r'"(\w+)\[([\d, ]*)\]"', strided, text)
