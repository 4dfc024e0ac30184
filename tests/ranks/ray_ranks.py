"""Ranks as actors of Ray, on two nodes of one host: prints what became of them as JSON. Run by test_ray.py."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import ray
from ray.cluster_utils import Cluster

import hipplan
from hipplan.ranks import ray_store

PLAN = """
hipplan: 1
ranks: {}
regions:
  heap: {size: 2MiB, chunk: 2MiB, reserve: 8MiB, map: {ranks: node, access: rw}, addresses: symmetric,
         tensors: {inbox: {dtype: u8, shape: [4096]}}}
contents:
  heap.inbox: {value: 9}
"""
NODES = ["a", "a", "b", "b"]


class Rank:
    """One rank; HIPPLAN_NODE makes two nodes of one host."""

    def __init__(self, node: str) -> None:
        os.environ["HIPPLAN_NODE"] = node
        self._layout: Any = None

    def apply(self, store: Any, rank: int, size: int, timeout: float) -> Any:
        group = hipplan.group(store, rank, size)
        self._layout = hipplan.apply(PLAN, runtime="sim", group=group, timeout=timeout)
        return self._layout.program.rank.node, [other for other in range(size) if f"heap@{other}" in self._layout]

    def lost(self, rank: int) -> Any:
        until = time.monotonic() + 60
        while rank not in self._layout.lost and time.monotonic() < until:
            time.sleep(0.01)
        return self._layout.lost.get(rank)

    def write_and_read(self, rank: int) -> Any:
        """Fills the other's inbox; what is in it then."""
        from tests.ranks.scripts import read

        name = self._layout.rank(rank)["heap.inbox"].name
        self._layout.fill(name, rank)
        self._layout.barrier()
        seen = sorted(set(read(self._layout, "heap.inbox")))
        self._layout.barrier()
        return seen

    def close(self) -> str:
        return str(self._layout.close().summary())


def started(node: str) -> Any:
    return ray.remote(Rank).options(num_cpus=0, resources={node: 1}).remote(node)


def applied(ranks: list[Any], timeout: float = 60.0) -> list[Any]:
    """What each has, or raises."""
    store, reply = ray_store.start(), []
    for answer in [one.apply.remote(store, rank, len(ranks), timeout) for rank, one in enumerate(ranks)]:
        try:
            reply.append(ray.get(answer))
        except hipplan.GroupError as error:
            reply.append("HP431" if "HP431" in str(error) else str(error))
        except ray.exceptions.RayActorError:
            reply.append("gone")
    return reply


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "resources": {"a": 8}})
    cluster.add_node(num_cpus=1, resources={"b": 8})
    variables = {"PYTHONPATH": os.environ["PYTHONPATH"]}
    ray.init(address=cluster.address, log_to_driver=False, runtime_env={"env_vars": variables})
    ranks = [started(node) for node in NODES]
    collected = {"first": applied(ranks)}
    ray.kill(ranks[1])
    collected["lost"] = ray.get(ranks[0].lost.remote(1))
    collected["closed"] = ray.get([ranks[rank].close.remote() for rank in (0, 2, 3)])
    ranks[1] = started("a")
    collected["again"] = applied(ranks)
    collected["bytes"] = ray.get([one.write_and_read.remote(rank ^ 1) for rank, one in enumerate(ranks)])
    ray.get([rank.close.remote() for rank in ranks])
    ray.kill(ranks[3])
    collected["without the last"] = applied(ranks, 2.0)
    print(json.dumps(collected))
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
