"""All steps of a plan on a machine, in their order."""

from __future__ import annotations

from dataclasses import replace

from hipplan.kinds.peer.live import EnablePeer
from hipplan.kinds.stream.live import CreateStream
from hipplan.language.findings import Findings
from hipplan.language.loader import LoadedPlan
from hipplan.machines.machine import Machine
from hipplan.program import contents, steps
from hipplan.program.buffer_steps import Buffers
from hipplan.program.content_steps import staging_of
from hipplan.program.inventory import resources_of
from hipplan.program.region_steps import with_regions
from hipplan.program.runs import alike
from hipplan.program.series import Parts, Series
from hipplan.program.virtual_steps import VirtualMemory


class Building:
    """Makes the steps of a plan."""

    def __init__(self, plan: LoadedPlan, machine: Machine, devices: dict[str, int], findings: Findings) -> None:
        self._machine = machine
        self._devices = devices
        self._findings = findings
        self._own = plan
        self._memory = VirtualMemory(plan, machine, devices, findings)
        self.regions = self._memory.regions
        self.recommended = self._memory.recommended
        self.memory = self._memory.alike
        """(step, how many like it) of the steps that make memory, once all steps are made."""
        self.plan = replace(plan, objects=with_regions(plan.objects, self.regions)) if self.regions else plan
        """The plan as the rules about all memory need it."""

    def all_steps(self) -> Series[steps.Step]:
        """In the order in which they run. What is wrong with them is in the findings."""
        plan, objects = self._own, self._own.objects
        made: Parts[steps.Step] = Parts()
        for peer in objects.peers:
            name, device, other = f"{peer.device}->{peer.peer}", self._devices[peer.device], self._devices[peer.peer]
            made.append(EnablePeer(name=name, device=device, peer=other, origin=plan.span(*peer.path)))
        made.extend(self._memory.all_steps())
        for stream in objects.streams.values():
            device, span = self._devices[stream.device], plan.span(*stream.path)
            made.append(CreateStream(name=stream.name, device=device, origin=span))
        buffers = Buffers(plan, self._machine, self._devices)
        made.extend(buffers.all_steps(objects.buffers.lines))
        self.memory += buffers.alike
        made.extend(buffers.waits())
        if objects.contents:  # they come last, when all memory exists and is prefetched
            resources = resources_of(made.series(), self.regions, self._devices)
            filling = contents.lower(self.plan, resources, self._devices, self._machine, self._findings)
            lanes = [*contents.lanes(staging_of(filling), self._machine)]
            self.memory += alike(lanes)
            made.extend([*lanes, *filling])
        return made.series()
