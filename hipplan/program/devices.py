"""Finds the GPU that each device name of a plan means on a machine."""

from __future__ import annotations

from hipplan.errors import Diagnostic
from hipplan.language.arch import has_arch
from hipplan.language.findings import Findings
from hipplan.language.loader import LoadedPlan
from hipplan.language.objects import Path, ResolvedDevice, bare_uuid
from hipplan.machines.machine import Machine


def place(plan: LoadedPlan, machine: Machine, current_device: int, findings: Findings) -> dict[str, int]:
    """Device name -> ordinal. HP310: no such device, or one device under two names; HP311: another arch."""
    placed: dict[str, int] = {}
    missing: dict[Path, str] = {}
    by_ordinal: dict[int, str] = {}
    for name, device in plan.objects.devices.items():
        ordinal = _ordinal(device, machine, current_device)
        if ordinal is None or ordinal >= len(machine.devices):
            if plan.plan.devices:
                missing.setdefault(device.path, name)  # of devices made by one `count`, only the first is reported
            else:
                missing[device.path] = name  # report the device that the plan names, not the ones implied before it
            continue
        if twin := by_ordinal.get(ordinal):
            if device.ordinal is not None and plan.objects.devices[twin].ordinal is not None:
                placed[name] = ordinal  # HP214 has reported it
                continue
            summary = f"'{name}' and '{twin}' are the same device {ordinal}"
            findings.add(Diagnostic("HP310", summary, plan.span(*device.path), hint="choose another device"))
            continue
        _check_arch(name, device, machine, ordinal, plan, findings)
        placed[name] = ordinal
        by_ordinal[ordinal] = name
    for name in missing.values():
        findings.add(_no_such_device(name, plan.objects.devices[name], machine, plan))
    return placed


def selectors(plan: LoadedPlan) -> dict[str, str]:
    """Device name -> how the device was chosen: "uuid GPU-...", "ordinal 2", "next in order"."""
    return {name: _words(device) for name, device in plan.objects.devices.items()}


def _words(device: ResolvedDevice) -> str:
    selector = device.selector
    for key in ("uuid", "pci"):
        if value := getattr(selector, key):
            return f"{key} {value}"
    if selector.current:
        return "the current device"
    return "next in order" if selector.ordinal is None else f"ordinal {device.ordinal}"


def _ordinal(device: ResolvedDevice, machine: Machine, current_device: int) -> int | None:
    if device.ordinal is not None:
        return device.ordinal
    selector = device.selector
    if selector.current:
        return current_device
    for ordinal, there in enumerate(machine.devices):
        if selector.uuid and there.uuid and bare_uuid(there.uuid) == bare_uuid(selector.uuid):
            return ordinal
        if selector.pci and there.pci and there.pci.lower().endswith(selector.pci.lower()):
            return ordinal
    return None


def _no_such_device(name: str, device: ResolvedDevice, machine: Machine, plan: LoadedPlan) -> Diagnostic:
    selector, span = device.selector, plan.span(*device.path)
    if selector.uuid or selector.pci:
        asked = f"uuid {selector.uuid}" if selector.uuid else f"pci {selector.pci}"
        have = ", ".join(filter(None, (d.uuid if selector.uuid else d.pci for d in machine.devices)))
        why = f"{machine.name} has {have}" if have else f"the profile {machine.name} does not have it for any device"
        summary = f"no device with {asked} for '{name}'"
    else:
        count = len(machine.devices)
        why = f"{machine.name} has {count} device{'s' if count != 1 else ''}"
        summary = f"there is no device {device.ordinal} for '{name}'"
    masks = "CUDA_VISIBLE_DEVICES" if machine.runtime == "cuda" else "ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES"
    hint = f"`hipplan machine` lists the devices; {masks} may hide some"
    if (ranks := plan.plan.ranks) and ranks.per_node is None and plan.rank.ranks > 1:
        hint = f"ranks: {{per_node: {len(machine.devices)}}} spreads the ranks over several nodes; {hint}"
    return Diagnostic("HP310", summary, span, why=why, hint=hint)


def _check_arch(
    name: str,
    device: ResolvedDevice,
    machine: Machine,
    ordinal: int,
    plan: LoadedPlan,
    findings: Findings,
) -> None:
    there = machine.devices[ordinal]
    wanted, have = device.selector.arch, there.arch
    if wanted is None or have is None or has_arch(have, wanted, xnack=there.xnack):
        return
    summary = f"'{name}' must be {wanted}, but device {ordinal} is {have}"
    span = plan.span(*device.path, "arch")
    why = f"its xnack is {'on' if there.xnack else 'off'}" if has_arch(have, wanted) else ""
    hint = "choose another device, or remove arch:; `hipplan machine` shows its architecture"
    findings.add(Diagnostic("HP311", summary, span, why=why, hint=hint))
