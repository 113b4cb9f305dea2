"""Networks described in JSON, as placements see them: layers in topological order, shards, assignments to devices."""
