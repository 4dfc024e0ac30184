"""Selects the part of a plan that one rank makes, and checks that the plan fits the group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hipplan.language.model.plan import Plan
from hipplan.language.objects import Path
from hipplan.language.rank import Rank
from hipplan.language.resolve.names import Names

_MADE = ("allocations", "reservations", "streams", "buffers", "regions")


def part_of(plan: Plan, rank: Rank, names: Names) -> Plan:
    """The plan without objects of other ranks, which are noted in `names`."""
    _check_group(plan, rank, names)
    by_rank: dict[str, dict[str, Any]] = {}
    for noun in _MADE:
        things: Mapping[str, Any] = getattr(plan, noun)
        for name, spec in things.items():
            _check(plan, spec, (noun, name), rank, names)
        if any(not rank.makes(spec) for spec in things.values()):
            by_rank[noun] = {name: spec for name, spec in things.items() if rank.makes(spec)}
            names.elsewhere |= {(noun, name): things[name].rank for name in things.keys() - by_rank[noun].keys()}
    return plan.model_copy(update=by_rank) if by_rank else plan


def _check_group(plan: Plan, rank: Rank, names: Names) -> None:
    spec = plan.ranks
    if spec is None:
        return
    if spec.count is not None and spec.count != rank.ranks:
        summary = f"the plan is for {spec.count} ranks, the group has {rank.ranks}"
        hint = "start as many ranks, or remove count"
        names.report("HP215", summary, ("ranks", "count"), hint=hint)
    if spec.per_node is not None and rank.local_rank >= spec.per_node:
        summary = f"the plan is for {spec.per_node} ranks per node, node {rank.node} has more"
        names.report("HP215", summary, ("ranks", "per_node"), hint="start fewer per node, or remove per_node")


def _check(plan: Plan, spec: Any, path: Path, rank: Rank, names: Names) -> None:
    for key in ("rank", "map"):
        if plan.ranks is None and getattr(spec, key, None) is not None:
            names.report("HP107", f"{key} needs a plan with ranks", (*path, key), hint="add ranks: {} to the plan")
    if plan.ranks is not None and getattr(spec, "torch", None) is not None:
        hint = "give the pools a plan of their own, without ranks"
        names.report("HP107", "a pool for PyTorch is for one process", (*path, "torch"), hint=hint)
    if plan.ranks is not None and isinstance(spec.rank, int) and spec.rank >= rank.ranks:
        names.report(
            "HP215", f"there is no rank {spec.rank} of {rank.ranks}", (*path, "rank"), hint="ranks count from 0"
        )
