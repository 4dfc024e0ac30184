"""Which ranks share a node: those that can reach each other's sockets and memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from hipplan.language.rank import Rank


def node_id() -> str:
    """An id that is equal for all processes that can share memory. HIPPLAN_NODE simulates several nodes in tests."""
    known = [os.environ.get("HIPPLAN_NODE", "")]
    with contextlib.suppress(OSError):
        known.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip())
    for namespace in ("net", "user"):
        with contextlib.suppress(OSError):
            known.append(os.readlink(f"/proc/self/ns/{namespace}"))  # noqa: PTH115  # no path, but a name
    return "/".join(known)


def rank_of(number: int, nodes: Sequence[str], local_rank: int | None) -> Rank:
    """The rank with a number. nodes: the node of each rank of the group. local_rank: the launcher's, if known."""
    own = nodes[number]
    before = nodes[:number].count(own)
    node = list(dict.fromkeys(nodes)).index(own)
    return Rank(rank=number, ranks=len(nodes), local_rank=before if local_rank is None else local_rank, node=node)


def neighbours(number: int, nodes: Sequence[str]) -> list[int]:
    """The other ranks of a rank's node."""
    return [other for other, node in enumerate(nodes) if node == nodes[number] and other != number]
