"""From sized nodes to a Graph: order, phases, storages, arguments."""
