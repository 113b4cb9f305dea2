"""The nodes of a graph file that are a training step: decoded, functions written out, edges linked."""
