"""TensorFlow 1 MetaGraphs, read with protocol buffers alone."""
