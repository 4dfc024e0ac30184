"""The largest key/value cache that fits a machine beside a model's weights, to the byte, or how much is missing."""

from __future__ import annotations

from collections import Counter
from io import StringIO

from hipplan.errors import Diagnostic, MachineError
from hipplan.language.loader import load
from hipplan.language.serving import PAGE_TOKENS, Model, plan_text
from hipplan.machines.machine import FALLBACK_GRANULARITY, Machine
from hipplan.plain import counted
from hipplan.program.compiler import planned
from hipplan.program.open_sizes import KeptFree
from hipplan.units import about_size, full_size, round_up


def fitted(model: Model, machine: Machine, cache: int | None, reserve: KeptFree) -> int:
    """Bytes of the cache on each device: `cache` if it is given, else as many as fit on every device.

    Raises MachineError: HP301 with the missing bytes, or any error of planned().
    """
    weights = _weights(model, machine)
    page = model.page_bytes
    room: list[int] = []
    for ordinal in range(model.ranks):
        device = machine.devices[ordinal]
        if device.memory is None:
            why = f"{machine.name} does not say how much memory device {ordinal} has"
            raise MachineError(
                Diagnostic("HP301", "the memory of a device is unknown", why=why, hint="measure the machine")
            )
        room.append(device.memory - device.in_use - reserve.of(device.memory) - weights[ordinal])
    step = max(_granularity(machine, ordinal) for ordinal in range(model.ranks))
    wanted = round_up(max(cache or page, page), step)
    least = min(range(model.ranks), key=room.__getitem__)
    if room[least] < wanted:
        raise MachineError(_short(model, machine, least, weights[least], wanted, reserve, wanted - room[least]))
    return wanted if cache is not None else room[least] // step * step


def _weights(model: Model, machine: Machine) -> Counter[int]:
    """Bytes by ordinal, padding included."""
    unbounded = [device.model_copy(update={"memory": None}) for device in machine.devices]
    program = planned(load(StringIO(plan_text(model, 0, 0))), machine.model_copy(update={"devices": unbounded}))
    return Counter(program.taken)


def _granularity(machine: Machine, ordinal: int) -> int:
    device = machine.devices[ordinal]
    known = (device.granularity_minimum, device.granularity_recommended, FALLBACK_GRANULARITY)
    return max(limit for limit in known if limit is not None)


def _short(
    model: Model, machine: Machine, ordinal: int, weights: int, cache: int, reserve: KeptFree, missing: int
) -> Diagnostic:
    device = machine.devices[ordinal]
    assert device.memory is not None
    kept = reserve.of(device.memory)
    summary = f"device {ordinal} of {machine.name} lacks {missing} bytes ({about_size(missing)})"
    in_use = f" and {full_size(device.in_use)} in use" if device.in_use else ""
    pages = cache // model.page_bytes
    why = (
        f"it has {device.memory} bytes{in_use}; weights take {weights}, a cache of {counted(pages, 'page')} "
        f"({pages * PAGE_TOKENS} tokens) {cache}, and {kept} are reserved"
    )
    return Diagnostic("HP301", summary, why=why, hint="use more devices (--tp), a smaller --kv or a smaller --reserve")
