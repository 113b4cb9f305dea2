"""PyTorch's side of the metrics: Graphs and forward calls of a model, random inputs, evaluation."""
