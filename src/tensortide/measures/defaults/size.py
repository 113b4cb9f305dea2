"""Sizes of the model: parameters and buffers, tied ones once, in bytes of their own dtype."""

from __future__ import annotations

from tensortide.measures.metric import Metric
from tensortide.measures.registry import metric
from tensortide.measures.subject import Subject


@metric(
    Metric("total_params", "Parameters", "amount", "elements of all parameters, tied ones once", of_model=True),
    Metric(
        "trainable_params",
        "Trainable parameters",
        "amount",
        "elements of parameters that take gradients",
        of_model=True,
    ),
    Metric(
        "model_size", "Model size", "bytes", "bytes of all parameters by their own dtype, tied ones once", of_model=True
    ),
    Metric("buffer_size", "Buffers", "bytes", "bytes of all buffers by their own dtype", of_model=True),
)
def sizes(subject: Subject) -> dict[str, int]:
    """Sum up parameters and buffers; weights that a quantized module has packed are parameters of their true size."""
    found = subject.sizes()
    return {
        "total_params": found.parameters,
        "trainable_params": found.trainable,
        "model_size": found.parameter_bytes,
        "buffer_size": found.buffer_bytes,
    }
