"""Checks that a machine can hold a plan, before the first driver call. Each rule has a code (HP3xx)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

from hipplan.errors import Diagnostic
from hipplan.kinds.allocation.live import CreateAllocation, ImportAllocation
from hipplan.kinds.live import Buffer
from hipplan.kinds.lives import BUFFERS
from hipplan.language.findings import Findings
from hipplan.language.host import HOST, is_host
from hipplan.language.loader import LoadedPlan
from hipplan.language.objects import Path, ResolvedAllocation, ResolvedMapping
from hipplan.machines.machine import HUGE_PAGE_SIZES, Machine, MachineDevice, OfHost
from hipplan.program import huge_pages, steps
from hipplan.program.facts import descriptors_of
from hipplan.program.on_host import lacking
from hipplan.program.peak import OPEN_FILES_MARGIN, bytes_of, host_bounds, largest_of, taken
from hipplan.program.tags import chunks_of_pools
from hipplan.units import about_size, full_size

PADDING_MIN = 16 * 2**20
PADDING_SHARE = 8
"""HP254: padding is reported from so many bytes on, if it is at least 1/PADDING_SHARE of the memory."""


def check(
    plan: LoadedPlan,
    machine: Machine,
    devices: dict[str, int],
    memory: Sequence[tuple[steps.Step, int]],
    findings: Findings,
) -> None:
    """Every rule about the whole plan. memory: (step, how many like it) of the steps that make memory."""
    rules = _Rules(plan, machine, devices, memory, findings)
    rules.requirements()
    rules.capacity()
    rules.host_memory()
    rules.huge_pages()
    rules.virtual_memory()
    rules.buffers()
    rules.prefetched()
    rules.peers()
    rules.access()
    rules.descriptors()
    rules.releases()
    rules.padding()
    rules.numa()
    rules.atomics()


def of_host(plan: LoadedPlan) -> list[OfHost]:
    """The figures of the host that the rules need for this plan."""
    objects = plan.objects
    specs: list[Any] = [line.memory.spec for line in objects.allocations.lines if line.memory.device == HOST]
    specs += [line.first.spec for line in objects.buffers.lines if line.first.spec.on_host]
    on_host = [place for region in objects.regions.values() for place in region.places if is_host(place)]
    figures: list[OfHost] = ["memory"] if specs or on_host or objects.contents else []
    on_node = any(device != HOST for device in on_host)
    return [*figures, "pages"] if on_node or any(map(_depends_on_pages, specs)) else figures


def _depends_on_pages(spec: Any) -> bool:
    """Whether memory must be on some NUMA node, or in reserved huge pages."""
    spec = getattr(spec, "anonymous", None) or spec
    on_node = getattr(spec, "numa", None) is not None or getattr(spec, "numa_node", None) is not None
    return on_node or getattr(spec, "huge_pages", "") in HUGE_PAGE_SIZES


def _who(mapping: ResolvedMapping) -> list[str]:
    """The names of devices and host that have a right."""
    return [who for who, right in mapping.access.items() if right != "none"]


class _Rules:
    def __init__(
        self,
        plan: LoadedPlan,
        machine: Machine,
        devices: dict[str, int],
        memory: Sequence[tuple[steps.Step, int]],
        findings: Findings,
    ) -> None:
        self.plan = plan
        self.objects = plan.objects
        self.machine = machine
        self.devices = devices
        self.memory = memory
        self.taken = taken(memory, machine)
        self.findings = findings
        self.lines = {line.names[0]: line.memory for line in plan.objects.allocations.lines if line.names}
        """The first allocation that each line of the plan makes. The others of that line are equal."""
        self.mappings = list(self._mappings())

    def add(self, code: str, summary: str, *path: object, why: str = "", hint: str = "") -> None:
        span = self.plan.span(*path) if path else None
        self.findings.add(Diagnostic(code, summary, span, why=why, hint=hint))

    def device(self, name: str) -> MachineDevice:
        return self.machine.devices[self.devices[name]]

    def requirements(self) -> None:
        requires, machine = self.plan.plan.requires, self.machine
        version = machine.hip_version
        if requires.hip and version and not requires.hip_allows(version):
            self.add("HP312", f"the plan requires HIP {requires.hip}, {machine.name} has {version}",
                     "requires", "hip", hint="use another ROCm release")  # fmt: skip
        if requires.gpu and machine.runtime == "sim":
            self.add("HP313", "the plan requires a real GPU, but this is the simulator",
                     "requires", "gpu", hint="run it on a machine with a GPU")  # fmt: skip
        for flag, fact in (("vmm", "vmm"), ("managed", "concurrent_managed"), ("xnack", "xnack")):
            if not getattr(requires, flag):
                continue
            for name in self.devices:
                if getattr(self.device(name), fact) is False:
                    hint = "set HSA_XNACK=1" if flag == "xnack" else "use another machine"
                    self.add("HP313", f"the plan requires {flag}, which {name} does not have",
                             "requires", flag, hint=hint)  # fmt: skip

    def capacity(self) -> None:
        """HP301: device memory, with padding and with memory that is in use."""
        for name, ordinal in self.devices.items():
            there, taken = self.machine.devices[ordinal], self.taken[ordinal]
            if there.memory is None:
                continue
            needed = bytes_of(taken)
            free = max(0, there.memory - there.in_use)
            if needed <= free:
                continue
            largest = largest_of(taken)
            noun = "allocations" if largest.owns_memory else "buffers"
            path = getattr(self.objects, noun)[largest.name].path
            self.add(
                "HP301",
                f"{name} needs {about_size(needed)}, {about_size(needed - free)} more than is free",
                *path,
                "size",
                why=f"{there.name} has {about_size(there.memory)}, {about_size(there.in_use)} in use; "
                f"'{largest.name}' is the largest of {sum(many for _, many in taken)}",
                hint="make it smaller, or move some of it to another device",
            )

    def host_memory(self) -> None:
        """HP303: memory of the host."""
        taken = self.taken[steps.CPU_ORDINAL]
        needed = bytes_of(taken)
        bound = next((bound for bound in host_bounds(self.machine) if needed > bound[0]), None)
        if bound is not None:
            size, says, do = bound
            paths = {name: allocation.path for name, allocation in self.lines.items()}
            paths |= {buffer.name: buffer.path for buffer in self.objects.buffers.values()}
            lanes = sum(step.size for step, _ in taken if step.makes == "pinned" and step.name not in paths)
            largest = max((s for s, _ in taken if s.name in paths), key=lambda step: step.size, default=None)
            self.add(
                "HP303",
                f"the plan needs {full_size(needed)} of host memory, {says} {full_size(size)}",
                *(("contents",) if largest is None else paths[largest.name]),
                why=f"{full_size(lanes)} of it copy contents to their devices" if lanes else "",
                hint=do,
            )

    def huge_pages(self) -> None:
        """HP315: reserved huge pages."""
        for short in huge_pages.shortages(self.memory, self.machine):
            users = [s for s, _ in self.memory if isinstance(s, Buffer) and s.huge_pages == short.size]
            largest = max(users, key=lambda step: step.size)
            path = (*self.objects.buffers[largest.name].path, "anonymous", "huge_pages")
            self.add("HP315", f"the plan needs {short.what}", *path, hint=short.hint)

    def virtual_memory(self) -> None:
        """HP304: a device without virtual memory management."""
        for allocation in self.lines.values():
            if allocation.device != HOST and self.device(allocation.device).vmm is False:
                self.add(
                    "HP304",
                    f"{allocation.device} has no virtual memory management",
                    *allocation.path,
                    why="hipDeviceAttributeVirtualMemoryManagementSupported is 0",
                    hint="use buffers (hipMalloc) instead of allocations",
                )

    def buffers(self) -> None:
        """HP305, HP309: what the machine lacks for a buffer."""
        for buffer, names in self.objects.buffers.lines:
            kind, ordinal = BUFFERS[buffer.spec.kind], self.devices[buffer.device]
            lacks = [*kind.lacks(buffer.spec, self.machine, buffer.device, ordinal)]
            for lack in lacks * len(names):
                self.add(lack.code, lack.summary, *buffer.path, *lack.where, why=lack.why, hint=lack.hint)

    def prefetched(self) -> None:
        """HP259, a warning: managed memory that is prefetched to a device without room for it."""
        sizes: dict[str, int] = {}
        largest: dict[str, tuple[int, Path]] = {}
        for buffer, names in self.objects.buffers.lines:
            for to, size, where in buffer.spec.moves() if buffer.spec.has_lines else ():
                sizes[to] = sizes.get(to, 0) + size * len(names)
                path = (*buffer.path, *where)
                largest[to] = max(largest.get(to, (0, path)), (size, path), key=itemgetter(0))
        for name in sizes.keys() & self.devices.keys():
            there, planned = self.device(name), bytes_of(self.taken[self.devices[name]])
            if there.memory is None or planned + sizes[name] <= there.memory - there.in_use:
                continue
            summary = f"{name} cannot hold the {about_size(sizes[name])} that are prefetched to it"
            why = (
                f"{there.name} has {about_size(there.memory)}, {about_size(there.in_use)} in use; "
                f"the plan takes {about_size(planned)} more"
            )
            hint = "prefetch a part: what does not fit moves out again, or is not moved"
            span = self.plan.span(*largest[name][1])
            self.findings.add(Diagnostic("HP259", summary, span, why=why, hint=hint, severity="warning"))

    def peers(self) -> None:
        """HP306: a peer link between devices that do not reach each other."""
        for peer in self.objects.peers:
            source, target = self.devices[peer.device], self.devices[peer.peer]
            if not self.machine.can_access(source, target):
                self.add(
                    "HP306",
                    f"{peer.device} cannot reach {peer.peer}",
                    *peer.path,
                    why=f"{self.machine.name} has no link from device {source} to device {target}",
                    hint="check `hipplan machine`; contents, copy() and remap() need no link",
                )

    def access(self) -> None:
        """HP307: access to a mapping for a device that does not reach its memory."""
        for name, mapping, holder in self.mappings:
            for who in _who(mapping):
                if self._reaches(who, holder):
                    continue
                self.add(
                    "HP307",
                    f"{who} cannot be given access to '{name}' on {holder}",
                    *mapping.path,
                    why=f"{self.machine.name} has no link from {who} to {holder}",
                    hint="remove the device from access",
                )

    def _mappings(self) -> Iterator[tuple[str, ResolvedMapping, str]]:
        """(name, mapping, device that has it) of the first mapping of each line of the plan. The chunks of a region
        have the region's name."""
        for name, reservation in self.objects.reservations.items():
            reported: set[tuple[int, int]] = set()
            path: Path | None = None
            line: ResolvedAllocation | None = None
            for mapping, *_ in reservation.lines:
                memory = self.objects.allocations[mapping.allocation]
                if mapping.path is path and memory is line:  # as for thousands of one line
                    continue
                path, line = mapping.path, memory
                if (id(path), id(line)) not in reported:
                    reported.add((id(path), id(line)))
                    yield name if name in self.objects.regions else mapping.name, mapping, memory.device

    def _reaches(self, who: str, owner: str) -> bool:
        return HOST in (who, owner) or self.machine.can_access(self.devices[who], self.devices[owner])

    def descriptors(self) -> None:
        """HP308: AMD's runtime and the simulator take a file descriptor for each allocation."""
        limit = self.machine.limits.open_files
        if self.machine.runtime == "cuda" or not limit:
            return
        of_pools = chunks_of_pools(self.objects.regions.values())
        count = descriptors_of(self.memory) + of_pools
        if count and count + OPEN_FILES_MARGIN > limit:
            fewer = "chunks" if of_pools else "allocations"
            allocations = sum(many for step, many in self.memory if step.makes == "allocation")
            pools = f", and the chunks of pools for PyTorch up to {of_pools}" if of_pools else ""
            self.add(
                "HP308",
                f"{allocations} allocations need {count - of_pools} file descriptors{pools}, the limit is {limit}",
                "regions" if of_pools else "allocations",
                why=f"each takes one, and a second if it is shared; {OPEN_FILES_MARGIN} are reserved for the process",
                hint=f"use fewer, larger {fewer}, or raise the hard limit (ulimit -Hn)",
            )

    def padding(self) -> None:
        """HP254, a warning: much padding, by line of the plan."""
        for step, many in self.memory:  # chunks of a region have no padding
            if not isinstance(step, (CreateAllocation, ImportAllocation)) or step.size == step.asked:
                continue
            taken, waste = many * step.size, many * (step.size - step.asked)
            if waste < max(PADDING_MIN, taken / PADDING_SHARE):
                continue
            several = f"{many} allocations of" if many > 1 else "an allocation of"
            summary = f"{full_size(waste)} of {full_size(taken)} are only padding"
            take = f"take {full_size(step.size)} each" if many > 1 else f"takes {full_size(step.size)}"
            why = f"{several} {full_size(step.asked)} {take}"
            path = self.objects.allocations[step.name].path
            span, hint = self.plan.span(*path, "size"), "use fewer, larger ones, or a region with tensors in it"
            self.findings.add(Diagnostic("HP254", summary, span, why=why, hint=hint, severity="warning"))

    def numa(self) -> None:
        """HP316: a NUMA node that this process cannot use. HP256, a warning: memory near a device whose node is
        unknown."""
        for name, allocation in self.lines.items():
            if (node := allocation.spec.numa_node) is not None:
                path = allocation.path
                self._node([name], node, *path, "device" if path[0] == "regions" else "numa_node")
        for buffer, names in self.objects.buffers.lines:
            if not buffer.spec.on_host:
                continue
            spec, where = buffer.spec.pages()
            path = (*buffer.path, *where)
            near = self.device(buffer.device).numa_node
            if getattr(spec, "numa", None) is None:
                if (node := getattr(spec, "numa_node", None)) is not None:
                    self._node(names, node, *path, "numa_node")
            elif near is not None:
                self._node(names, near, *path, "numa", whose=f" (that of {buffer.device})")
            else:
                why = f"{self.machine.name} has no numa_node for it; a virtual machine may have none"
                span = self.plan.span(*path, "numa")
                for name in names:
                    summary = f"the NUMA node of {buffer.device} is unknown, so '{name}' may be on any node"
                    self.findings.add(Diagnostic("HP256", summary, span, why=why, severity="warning"))

    def atomics(self) -> None:
        """HP261, a warning: regions on the host, which kernels of AMD GPUs may change with atomics."""
        if self.machine.runtime != "amd":
            return
        for name, region in self.objects.regions.items():
            if any(map(is_host, region.places)):
                summary = f"atomics of kernels on '{name}' are unproved where it is on the host"
                why = "no AMD GPU has been measured yet, and atomics over PCIe depend on the machine"
                span = self.plan.span(*region.path)
                self.findings.add(Diagnostic("HP261", summary, span, why=why, severity="warning"))

    def _node(self, names: Sequence[str], node: int, *path: object, whose: str = "") -> None:
        nodes = [known.node for known in self.machine.numa_nodes]
        if nodes and node not in nodes:
            there = f"node{'s' if len(nodes) > 1 else ''} {' and '.join(map(str, nodes))}"
            hint = f"use {there}, or leave the node to the kernel"
            for name in names:
                summary = f"'{name}' cannot be on NUMA node {node}{whose}: {self.machine.name} has {there}"
                self.add("HP316", summary, *path, hint=hint)

    def releases(self) -> None:
        """HP309: features that this HIP release, or CUDA, does not have."""
        version = self.machine.version
        for name, allocation in self.lines.items():
            self._allocation_release(name, allocation, version)
        for name, mapping, holder in self.mappings:
            self._mapping_release(name, mapping, holder, version)

    def _allocation_release(self, name: str, allocation: ResolvedAllocation, version: tuple[int, ...]) -> None:
        spec, path = allocation.spec, allocation.path
        cuda = self.machine.runtime == "cuda"
        if spec.type == "uncached" and (cuda or (version and version < (7, 0))):
            self.add("HP309", "uncached allocations need HIP 7.0.2 on AMD", *path, "type", hint="use type: pinned")
        if allocation.device == HOST and (why := lacking(self.machine, None)):
            self.add("HP309", why, *path, "device", hint="use a pinned buffer")
        elif spec.numa_node is not None and (why := lacking(self.machine, spec.numa_node)):
            key, hint = "numa_node", "remove numa_node, or use a registered buffer: anonymous has a node too"
            if path[0] == "regions":
                key, hint = "device", "write host, without a node"
            self.add("HP309", why, *path, key, hint=hint)
        too_old = not cuda and version and version < (7, 13)
        if spec.rdma and (allocation.device == HOST or self.device(allocation.device).rdma is False or too_old):
            region = name.partition("#")[0]
            self.add("HP309", f"'{region}' cannot be made for RDMA on {allocation.device}", *path, "rdma",
                     why="hipDeviceAttributeGPUDirectRDMAWithHipVMM, since HIP 7.13, is not 1",
                     hint="remove rdma; on AMD a dma-buf can be had without it, see docs/rdma.md")  # fmt: skip
        if spec.shareable == "none" or allocation.device == HOST:
            return
        possible = self.device(allocation.device).shareable_posix_fd
        if possible is False or (version and version < (6, 2)):
            self.add("HP309", f"'{name}' cannot be shared on {self.machine.name}", *path, "shareable",
                     why="sharing through a file descriptor works since HIP 6.2")  # fmt: skip

    def _mapping_release(self, name: str, mapping: ResolvedMapping, holder: str, version: tuple[int, ...]) -> None:
        cuda = self.machine.runtime == "cuda"
        if cuda and not mapping.whole:
            self.add("HP309", f"'{name}' maps a part of '{mapping.allocation}'",
                     *mapping.path, "size", why="CUDA maps whole allocations only",
                     hint="make the allocation as large as the mapping")  # fmt: skip
        if mapping.access.get(HOST, "none") != "none" and holder != HOST and (cuda or (version and version < (7, 2))):
            why = "CUDA gives it host-located memory only" if cuda else "before HIP 7.2 only host-located memory can be"
            self.add("HP309", f"the host cannot be given access to '{name}' on {holder}",
                     *mapping.path, why=why, hint="remove host from access")  # fmt: skip
        if not version or version >= (6, 3) or cuda:
            return
        if len(may := _who(mapping)) > 1:
            self.add("HP309", f"{' and '.join(may[:2])} cannot both have access to '{name}' on {holder}",
                     *mapping.path, hint="give one device access, or update ROCm",
                     why="before HIP 6.3, hipMemSetAccess for one device revokes the access of all others")  # fmt: skip
