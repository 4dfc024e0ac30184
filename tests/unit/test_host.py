"""What a host gives, on hosts made of files; and what a plan is refused before the first driver call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.errors import MachineError
from hipplan.kinds.pinned.live import CreatePinnedBuffer
from hipplan.language.loader import LoadedPlan
from hipplan.lowering.compiler import compile_change
from hipplan.machines import host
from hipplan.machines.machine import Limits, Machine, NumaNode
from hipplan.machines.place import System
from hipplan.machines.profiles import load_machine
from hipplan.program import huge_pages
from hipplan.program.runs import alike

PAGES = "/sys/kernel/mm/hugepages/hugepages-2048kB"


class Host:
    """A host: files below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.place = System(root, {}, {})

    def file(self, path: str, text: object = "") -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def files(self, folder: str, **texts: object) -> None:
        for name, text in texts.items():
            self.file(f"{folder}/{name}", text)


@pytest.fixture
def box(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_the_memory_of_the_host_is_limited_by_the_tightest_control_group(box: Host) -> None:
    box.file("/proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:  8000 kB")
    box.file("/proc/self/cgroup", "1:cpu:/elsewhere\n0::/outer/inner")
    assert host.memory_available(box.place) == 8000 << 10
    assert host.memory_allowed(box.place) is None
    for group, limit, used in (("outer/inner", "max", 10), ("outer", 5000, 4000)):
        for name, text in (("max", limit), ("current", used), ("stat", "anon 3000\ninactive_file 500")):
            box.file(f"/sys/fs/cgroup/{group}/memory.{name}", text)
    assert host.memory_available(box.place) == 1500
    assert host.memory_allowed(box.place) == 5000
    box.file("/sys/fs/cgroup/outer/inner/memory.max", 4000)
    assert host.memory_allowed(box.place) == 4000
    (box.root / "proc/meminfo").unlink()
    (box.root / "proc/self/cgroup").unlink()
    assert host.memory_available(box.place) is None


def test_amd_s_driver_pins_nearly_all_memory_unless_it_has_no_limit(box: Host) -> None:
    total, limit = host.memory_total(), "/sys/module/amdgpu/parameters/no_system_mem_limit"
    assert host.memory_pinned(box.place) is None
    box.file(limit, "N")
    pinned = host.memory_pinned(box.place)
    assert pinned is not None
    assert total - total // 16 <= pinned < total
    box.file(limit, "Y")
    assert host.memory_pinned(box.place) is None


def test_huge_pages_are_those_that_are_free_and_not_reserved(box: Host) -> None:
    assert host.huge_pages(box.place) == {}
    box.files(PAGES, nr_hugepages=20, free_hugepages=10, resv_hugepages=3)
    assert host.huge_pages(box.place) == {"2MiB": 7, "1GiB": 0}
    box.files(PAGES, nr_overcommit_hugepages=5, surplus_hugepages=1)
    assert host.huge_pages(box.place) == {"2MiB": 11, "1GiB": 0}
    box.file("/sys/fs/cgroup/hugetlb.2MB.max", 6 << 21)
    box.file("/sys/fs/cgroup/hugetlb.2MB.current", 2 << 21)
    assert host.huge_pages(box.place) == {"2MiB": 4, "1GiB": 0}


def test_the_nodes_are_those_with_memory_that_the_process_may_use(box: Host) -> None:
    assert host.numa_nodes(box.place) == []
    box.file("/sys/devices/system/node/has_memory", "0-2,8")
    box.file("/proc/self/status", "Name:\tx\nMems_allowed_list:\t0,2-9")
    box.file("/sys/devices/system/node/node8/hugepages/hugepages-2048kB/free_hugepages", 4)
    nodes = host.numa_nodes(box.place)

    assert [known.node for known in nodes] == [0, 2, 8]
    assert [known.huge_pages for known in nodes] == [{}, {}, {"2MiB": 4, "1GiB": 0}]


def test_this_host_says_what_it_has() -> None:
    """As the kernel of this machine writes its files."""
    place = System(Path("/"), {}, {})
    for known in host.numa_nodes(place):
        assert (place.root / f"sys/devices/system/node/node{known.node}").is_dir()
    assert set(host.huge_pages(place)) <= {"2MiB", "1GiB"}


def machine(**more: Any) -> Machine:
    return load_machine("sim-2").model_copy(update=more)


def loaded(**buffers: Any) -> LoadedPlan:
    return hipplan.load({"hipplan": 1, "devices": {"gpu": {"count": 2}}, "buffers": buffers})


def codes(buffers: dict[str, Any], on: Machine) -> list[tuple[str, str]]:
    """(code, summary) of each error of a plan with these buffers."""
    try:
        hipplan.compile(loaded(**buffers), on)
    except MachineError as error:
        return [(diagnostic.code, diagnostic.summary) for diagnostic in error.diagnostics]
    return []


def fresh(**memory: Any) -> dict[str, Any]:
    return {"kind": "registered", "device": "gpu.1", "anonymous": {"size": "5MiB", **memory}}


@pytest.mark.parametrize(
    ("free", "of_node", "expected"),
    [
        (6, 3, []),
        (5, 3, [("HP315", "the plan needs 6 huge pages of 2MiB; 5 can be had")]),
        (6, 2, [("HP315", "the plan needs 3 huge pages of 2MiB on NUMA node 1; 2 can be had")]),
    ],
)
def test_huge_pages_are_counted_on_the_host_and_on_each_node(free: int, of_node: int, expected: object) -> None:
    nodes = [NumaNode(node=0, huge_pages={"2MiB": 0}), NumaNode(node=1, huge_pages={"2MiB": of_node})]
    on = machine(limits=Limits(huge_pages={"2MiB": free, "1GiB": 0}), numa_nodes=nodes)
    buffers = {"any": fresh(huge_pages="2MiB"), "bound": fresh(huge_pages="2MiB", numa_node=1), "own": fresh()}

    assert codes(buffers, on) == expected


def test_huge_pages_of_an_unknown_number_and_transparent_ones_are_accepted() -> None:
    assert codes({"a": fresh(huge_pages="1GiB")}, machine()) == []
    none = Limits(huge_pages={"2MiB": 0, "1GiB": 0})
    assert codes({"a": fresh(huge_pages="transparent")}, machine(limits=none)) == []


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, []),
        ({"host_memory": 8 << 20}, ["8MiB of host memory, the control groups of this process allow 7MiB"]),
        ({"backed_memory": 8 << 20}, ["8MiB of host memory, this machine itself has 7MiB"]),
        ({"pinned_memory": 8 << 20}, ["8MiB of host memory, AMD's driver pins at most 7MiB"]),
    ],
)
def test_host_memory_is_bounded_by_control_groups_and_the_driver(limits: dict[str, int], expected: list[str]) -> None:
    buffers = {"a": {"kind": "pinned", "size": "3MiB"}, "b": fresh()}
    assert codes(buffers, machine(limits=Limits(**limits))) == []
    less = {name: size - (1 << 20) for name, size in limits.items()}

    assert codes(buffers, machine(limits=Limits(**less))) == [("HP303", f"the plan needs {text}") for text in expected]


NODES = [NumaNode(node=0), NumaNode(node=2)]


@pytest.mark.parametrize(
    ("buffer", "expected"),
    [
        (fresh(numa_node=2), []),
        (fresh(numa_node=1), "'b' cannot be on NUMA node 1: sim-2 has nodes 0 and 2"),
        (fresh(numa="near"), "'b' cannot be on NUMA node 3 (that of gpu.1): sim-2 has nodes 0 and 2"),
        ({"kind": "pinned", "size": 4096, "numa": "near", "device": "gpu.0"}, []),
        (
            {"kind": "pinned", "size": 4096, "numa": "near", "device": "gpu.1"},
            "'b' cannot be on NUMA node 3 (that of gpu.1): sim-2 has nodes 0 and 2",
        ),
    ],
)
def test_a_node_that_the_process_cannot_use_is_refused(buffer: dict[str, Any], expected: Any) -> None:
    devices = [
        device.model_copy(update={"numa_node": node}) for device, node in zip(machine().devices, (0, 3), strict=True)
    ]
    refused = [("HP316", expected)] if expected else []

    assert codes({"b": buffer}, machine(devices=devices, numa_nodes=NODES)) == refused
    assert codes({"b": buffer}, machine(devices=devices)) == []


def test_an_allocation_on_a_node_that_the_process_cannot_use_is_refused() -> None:
    plan = hipplan.load({"hipplan": 1, "allocations": {"a": {"device": "host", "numa_node": 1, "size": 4096}}})
    with pytest.raises(MachineError, match=r"HP316.*'a' cannot be on NUMA node 1"):
        hipplan.compile(plan, machine(hip_version="7.15.0", numa_nodes=NODES))


def test_the_shipped_mi300x_8_has_the_nodes_of_its_devices() -> None:
    on = load_machine("mi300x-8")
    plan = hipplan.load({
        "hipplan": 1,
        "devices": {"gpu": {"count": 8}},
        "buffers": {f"b{n}": {"kind": "pinned", "size": 4096, "device": f"gpu.{n}", "numa": "near"} for n in range(8)},
    })  # fmt: skip
    program = hipplan.compile(plan, on)
    nodes = [step.numa_node for step in program.steps if isinstance(step, CreatePinnedBuffer)]

    assert nodes == [0] * 4 + [1] * 4
    assert program.warnings == ()


def test_an_update_needs_huge_pages_for_old_and_new_buffers_together() -> None:
    with_pages = {size: machine(limits=Limits(huge_pages={"2MiB": size})) for size in (0, 3)}
    old = hipplan.compile(loaded(a=fresh(huge_pages="2MiB")), with_pages[3])
    now = huge_pages.freed(with_pages[0], alike(old.steps))

    assert now.limits.huge_pages == {"2MiB": 3}
    assert compile_change(old, loaded(a=fresh(huge_pages="2MiB"), b=fresh()), now).additions
    with pytest.raises(MachineError, match=r"HP315.*old and new buffers together need 6 huge pages of 2MiB; 3 can"):
        compile_change(old, loaded(b=fresh(huge_pages="2MiB")), now)
