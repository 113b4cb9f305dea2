"""Dense layers, embeddings, activations, normalization, and layers that change shapes or nothing."""

from __future__ import annotations

import math

from tensortide.cost.families.einsum import indices
from tensortide.graph.handles import Handle
from tensortide.importers.keras.layers.layer import Layer, layer
from tensortide.importers.shapes import ShapeError


@layer("Dense")
def dense(call: Layer) -> Handle:
    """A product over the last axis."""
    x, units = call.x, call.number("units")
    inputs = {"x": x, "kernel": call.weight("kernel", x.shape[-1], units)}
    if call.is_true("use_bias", True):
        inputs["bias"] = call.weight("bias", units)
    return call.activated(call.op("Dense", inputs, (*x.shape[:-1], units)))


@layer("EinsumDense")
def einsum_dense(call: Layer) -> Handle:
    """A product in Einstein's notation."""
    return call.activated(einsum(call, call.x, str(call.config.get("equation", "")), call.config.get("output_shape")))


def einsum(call: Layer, x: Handle, equation: str, output: object) -> Handle:
    """Append a product of ``x`` and a kernel; sizes that ``x`` does not have are those of the output."""
    try:
        (operand, kernel), result = indices(equation, [len(x.shape), None])
    except ValueError as error:
        raise ShapeError(f"its equation: {error}") from None
    sizes = dict(zip(operand, x.shape, strict=True))
    given = [output] if isinstance(output, int) else list(output) if isinstance(output, list | tuple) else []
    for letter, size in zip(reversed(result), reversed(given), strict=False):
        if isinstance(size, int):
            sizes.setdefault(letter, size)
    missing = [letter for letter in (*kernel, *result) if letter not in sizes]
    if missing:
        raise ShapeError(f"its equation {equation!r} leaves the size of {missing[0]!r} open")
    inputs = {"x": x, "kernel": call.weight("kernel", *(sizes[letter] for letter in kernel))}
    bias = call.config.get("bias_axes")
    if isinstance(bias, str) and bias:
        shape = [sizes[letter] if letter in bias else 1 for letter in result]
        while shape and shape[0] == 1:
            del shape[0]
        inputs["bias"] = call.weight("bias", *shape)
    full = f"{operand},{kernel}->{result}"
    return call.op("EinsumDense", inputs, [sizes[letter] for letter in result], equation=full)


@layer("Embedding")
def embedding(call: Layer) -> Handle:
    """Rows of a table."""
    table = call.weight("embeddings", call.number("input_dim"), call.number("output_dim"))
    return call.op("Embedding", {"indices": call.x, "table": table}, (*call.x.shape, call.number("output_dim")))


@layer("ReversibleEmbedding")
def reversible(call: Layer) -> Handle | list[Handle]:
    """Rows of a table, or in reverse a product with all of them."""
    if not call.keywords.get("reverse"):
        return embedding(call)
    rows, width = call.number("input_dim"), call.number("output_dim")
    if call.is_true("tie_weights", True):
        kernel = call.weight("embeddings", rows, width)
        return call.op("tied_logits", {"x": call.x, "kernel": kernel}, (*call.x.shape[:-1], rows))
    return call.op("Dense", {"x": call.x, "kernel": call.weight("reverse_embeddings", width, rows)},
                   (*call.x.shape[:-1], rows))  # fmt: skip


@layer("AutoContrast Equalization ContrastLimitedAdaptiveHistogramEqualization Solarization")
def image(call: Layer) -> Handle:
    """Every element of an image changed, by the rest of the image or alone."""
    return call.op(call.kind, {"x": call.x}, call.x.shape, call.x.dtype)


@layer("SpectralNormalization")
def spectral(call: Layer) -> list[Handle]:
    """The layer inside, whose kernel is divided by its largest singular value only in training; it is found by the help
    of a vector with an element for each channel that is made."""
    if call.apply is None or not isinstance(call.config.get("layer"), dict):
        raise ShapeError("it has no layer")
    inner = call.config["layer"].get("config", {})
    channels = next((inner[name] for name in ("filters", "units", "output_dim") if isinstance(inner.get(name), int)), 0)
    call.buffer("vector_u", 1, channels)
    return call.apply(call.config["layer"], f"{call.path}.layer", call.inputs, call.trainable)


@layer("Activation")
def activation(call: Layer) -> Handle:
    """An activation by name."""
    return call.activated(call.x)


@layer("ReLU LeakyReLU ELU Softmax PReLU")
def activation_layer(call: Layer) -> Handle:
    """An activation as a layer of its own."""
    inputs = {"x": call.x}
    if call.kind == "PReLU":
        shared = call.config.get("shared_axes") or ()
        inputs["alpha"] = call.weight("alpha", *(1 if i + 1 in shared else n for i, n in enumerate(call.x.shape[1:])))
    names = {"ReLU": "relu", "LeakyReLU": "leaky_relu", "ELU": "elu", "Softmax": "softmax", "PReLU": "leaky_relu"}
    kind = names[call.kind]
    if call.kind == "ReLU" and call.config.get("max_value") is not None:
        kind = "relu6"
    return call.op(f"activation_{kind}", inputs, call.x.shape, call.x.dtype)


@layer(
    "Dropout SpatialDropout1D SpatialDropout2D SpatialDropout3D GaussianDropout GaussianNoise AlphaDropout Identity "
    "ActivityRegularization Masking RandomFlip RandomRotation RandomZoom RandomTranslation RandomContrast "
    "RandomBrightness RandomHeight RandomWidth RandomColorDegeneration RandomColorJitter RandomElasticTransform "
    "RandomErasing RandomGaussianBlur RandomGrayscale RandomHue RandomInvert RandomPerspective RandomPosterization "
    "RandomSaturation RandomSharpness RandomShear RandAugment AugMix CutMix MixUp"
)
def nothing(call: Layer) -> Handle:
    """A layer that does nothing in inference."""
    return call.x


@layer("BatchNormalization")
def batch_norm(call: Layer) -> Handle:
    """Normalization with running statistics, folded into a scale and a shift."""
    (axis,) = call.axes()
    channels = call.x.shape[axis]
    inputs = {"x": call.x}
    if call.is_true("scale", True):
        inputs["gamma"] = call.weight("gamma", channels)
    if call.is_true("center", True):
        inputs["beta"] = call.weight("beta", channels)
    inputs["mean"], inputs["variance"] = (call.buffer(f"moving_{name}", channels) for name in ("mean", "variance"))
    return call.op("BatchNormalization", inputs, call.x.shape)


@layer("LayerNormalization RMSNormalization GroupNormalization UnitNormalization")
def norm(call: Layer) -> Handle:
    """Normalization of rows; what is normalized together is ``row`` elements."""
    shape = call.x.shape
    affine = [shape[axis] for axis in call.axes()]
    row = math.prod(affine)
    if call.kind == "GroupNormalization":
        groups = call.config.get("groups", 32)
        groups = affine[0] if groups == -1 else call.number("groups", 32)
        row = math.prod(shape[1:]) // max(1, groups)
    inputs = {"x": call.x}
    if call.kind == "RMSNormalization":
        inputs["scale"] = call.weight("scale", *affine)
    elif call.kind != "UnitNormalization":
        if call.is_true("scale", True):
            inputs["gamma"] = call.weight("gamma", *affine)
        if call.is_true("center", True):
            inputs["beta"] = call.weight("beta", *affine)
    return call.op(call.kind, inputs, shape, row=row)


@layer("Flatten")
def flatten(call: Layer) -> Handle:
    """All axes but the first as one."""
    return call.view("Flatten", call.x, (call.x.shape[0], math.prod(call.x.shape[1:])))


@layer("Reshape")
def reshape(call: Layer) -> Handle:
    """Other axes after the first; one of them may be what is left."""
    target = call.config.get("target_shape")
    if not isinstance(target, list) or any(not isinstance(n, int | None) for n in target):
        raise ShapeError(f"its target_shape is {target!r}")
    rest = [n for n in target if n in (-1, None)]
    known = math.prod(n for n in target if n not in (-1, None))
    left = math.prod(call.x.shape[1:]) // known if rest and known else 1
    return call.view("Reshape", call.x, (call.x.shape[0], *(left if n in (-1, None) else n for n in target)))


@layer("Permute")
def permute(call: Layer) -> Handle:
    """Axes in another order."""
    dims = call.config.get("dims")
    if not isinstance(dims, list) or sorted(dims) != [*range(1, len(call.x.shape))]:
        raise ShapeError(f"its dims are {dims!r}")
    return call.op("Permute", {"x": call.x}, (call.x.shape[0], *(call.x.shape[i] for i in dims)), call.x.dtype)


@layer("RepeatVector")
def repeat(call: Layer) -> Handle:
    """Rows repeated along a new axis."""
    return call.op("RepeatVector", {"x": call.x}, (call.x.shape[0], call.number("n"), *call.x.shape[1:]), call.x.dtype)


@layer("Rescaling Normalization")
def rescaled(call: Layer) -> Handle:
    """A factor and a shift; those of Normalization are learned from data, along an axis, unless they are given."""
    if call.kind == "Normalization" and call.config.get("mean") is None:
        shape = [call.x.shape[axis] for axis in call.axes()]
        for name in ("mean", "variance"):
            call.buffer(name, *shape)
        call.buffer("count")
    return call.op("Rescaling", {"x": call.x}, call.x.shape)
