"""Memory of the host: the NUMA node that a plan wants near a region's GPU, and the releases that have it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from hipplan.errors import Diagnostic
from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.language.findings import Findings
from hipplan.language.host import HOST, NEAR, on_node
from hipplan.language.objects import ResolvedRegion
from hipplan.machines.machine import Machine
from hipplan.program.steps import Step

if TYPE_CHECKING:
    from hipplan.language.loader import LoadedPlan


def with_nodes(plan: LoadedPlan, machine: Machine, devices: Mapping[str, int], findings: Findings) -> LoadedPlan:
    """The plan with a number in place of `near`. HP256, a warning: the node of a GPU is unknown; HP309: a release
    without memory on the host, where a region overflows to it."""
    for region in plan.objects.regions.values():
        if region.spec.overflow and (why := lacking(machine, None)):
            findings.add(Diagnostic("HP309", why, plan.span(*region.path, "overflow"), hint="remove overflow"))
    regions = {
        name: _on_nodes(region, plan, machine, devices, findings) for name, region in plan.objects.regions.items()
    }
    if all(regions[name] is region for name, region in plan.objects.regions.items()):
        return plan
    return replace(plan, objects=replace(plan.objects, regions=regions))


def near(gpu: str, machine: Machine, devices: Mapping[str, int]) -> str:
    """The host's memory near a GPU; `host` where its node is unknown."""
    node = machine.devices[devices[gpu]].numa_node
    return HOST if node is None else on_node(node)


def lacking(machine: Machine, node: int | None) -> str:
    """Why a machine's release has no allocations on the host, or on this NUMA node of it; empty if it has."""
    version = machine.version
    if machine.runtime == "cuda" or not version:
        return ""
    what, first, named = ("on the host", (7, 1), "7.1")
    if node is not None and version >= first:
        what, first, named = "on a NUMA node", (7, 15), "7.15 (ROCm 10.0)"
    have = f"{machine.name} has {machine.hip_version}"
    return f"allocations {what} need HIP {named}, {have}" if version < first else ""


def bytes_on_host(some_steps: Iterable[tuple[Step, int]]) -> dict[str, int]:
    """Bytes of allocations on the host, by its name in a plan: host, or host.N on NUMA node N. some_steps: each with
    how many are like it."""
    taken: dict[str, int] = {}
    for step, many in some_steps:
        if isinstance(step, CreateAllocation) and step.location != "device":
            name = HOST if step.location == "host" else on_node(step.device)
            taken[name] = taken.get(name, 0) + many * step.size
    return taken


def _on_nodes(
    region: ResolvedRegion, plan: LoadedPlan, machine: Machine, devices: Mapping[str, int], findings: Findings
) -> ResolvedRegion:
    if on_node(NEAR) not in region.devices:
        return region
    gpu = region.gpus[0]
    there = near(gpu, machine, devices)
    if there == HOST:
        summary = f"the NUMA node of {gpu} is unknown, so '{region.name}' may be on any node"
        why = f"{machine.name} has no numa_node for it; a virtual machine may have none"
        findings.add(Diagnostic("HP256", summary, plan.span(*region.path), why=why, severity="warning"))
    return region._replace(devices=tuple(there if device == on_node(NEAR) else device for device in region.devices))
