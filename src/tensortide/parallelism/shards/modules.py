"""Modules of shards: each is as a module inside the sharded one, with the modules of that inside it."""

from __future__ import annotations

from tensortide.graph.model import OUTSIDE, Graph, Module
from tensortide.graph.module_paths import within
from tensortide.parallelism.shards.regions import Divided, Region, families


class ShardModules:
    """``all``: the modules of ``graph``, and after them those of shards. ``first_shard``: of those of a first shard the
    number of the region."""

    def __init__(self, graph: Graph, found: Divided) -> None:
        modules = list(graph.modules)
        self._regions = found.regions
        self._numbers: dict[tuple[int, int, int], int] = {}
        self.first_shard: dict[int, int] = {}
        for number, region in enumerate(found.regions):
            for part in range(len(region.split)):
                first = len(modules)
                self._numbers[number, part, OUTSIDE] = first
                modules.append(Module(region.shard(part), "Shard"))
                for old, module in enumerate(graph.modules):
                    if within(module.path, region.module) and module.path != region.module:
                        self._numbers[number, part, old] = len(modules)
                        rest = module.path.removeprefix(region.module).removeprefix(".")
                        modules.append(Module(f"{region.shard(part)}.{rest}", module.type))
                if not part:
                    self.first_shard.update(dict.fromkeys(range(first, len(modules)), number))
        self.all = tuple(modules)
        self._parameters = {
            storage: graph.storages[parameter].name
            for parameter, family in families(graph).items()
            for storage in (parameter, *family)
        }

    def number(self, region: Region) -> int:
        """The number of a region."""
        return next(i for i, one in enumerate(self._regions) if one.module == region.module)

    def of_part(self, region: Region, part: int, module: int) -> int:
        """The module of one part of an op of ``module``; what runs outside the region's module is the shard's own."""
        number = self.number(region)
        return self._numbers.get((number, part, module), self._numbers[number, part, OUTSIDE])

    def parameter_of(self, storage: int) -> str:
        """The name of the parameter whose storage, gradient or state this is; empty for any other storage."""
        return self._parameters.get(storage, "")
