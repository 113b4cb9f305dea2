"""Construction of a Graph from sized nodes: order, phases, storages, arguments."""
