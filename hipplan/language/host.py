"""The words of a plan for the CPU, where it takes a device. By itself, because a holder needs it and reads no plan.

`host` is the memory of the host, on the node that the runtime chooses; `host.1` its memory on NUMA node 1. A plan
writes the latter as {host: {numa: 1}}, or {host: {numa: near}} for the node of a region's GPU.
"""

from __future__ import annotations

HOST = "host"

NEAR = "near"
"""In place of a node: that of the region's GPU."""


def is_host(name: str) -> bool:
    """Whether the name of a device means memory of the host."""
    return name == HOST or name.startswith(f"{HOST}.")


def on_node(node: int | str) -> str:
    """The name of the host's memory on a NUMA node."""
    return f"{HOST}.{node}"


def node_of(name: str) -> int | None:
    """The NUMA node in a name of the host; None: it names none."""
    _, _, node = name.partition(".")
    return int(node) if is_host(name) and node.isdecimal() else None
