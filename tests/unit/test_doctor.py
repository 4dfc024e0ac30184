"""What the doctor finds on machines made of files; and how it asks drivers that answer, refuse, hang or die."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from hipplan.machines.doctor.asking import RuntimeAnswer, ask
from hipplan.machines.doctor.examine import examine
from hipplan.machines.doctor.report import DoctorReport, Finding
from hipplan.machines.doctor.variables import VARIABLES
from hipplan.machines.machine import Link, Machine, MachineDevice
from hipplan.machines.place import System
from hipplan.machines.profiles import load_machine
from hipplan.machines.simulator import library_path

UNLIMITED: dict[str, tuple[int | None, int | None]] = {
    "open_files": (1024, None),
    "locked_memory": (None, None),
    "addresses": (None, None),
    "file_size": (None, None),
}
AMD_GPU = {"vendor": "0x1002", "class": "0x120000"}
NVIDIA_GPU = {"vendor": "0x10de", "class": "0x030200"}


class Box:
    """A machine: files below a folder, an environment, limits, and what its drivers answer."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ: dict[str, str] = {}
        self.limits = dict(UNLIMITED)
        self.answers: dict[str, RuntimeAnswer] = {}
        self.asked: list[str] = []
        self.file("/proc/sys/vm/max_map_count", "1048576\n")

    def file(self, path: str, text: str = "") -> Path:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def gpu(self, gpu: dict[str, str], where: str = "0000:01:00.0") -> None:
        for name, text in gpu.items():
            self.file(f"/sys/bus/pci/devices/{where}/{name}", text)

    def amd(self, devices: int = 1, *, driver: bool = True, **of_device: Any) -> Machine:
        """With a driver, and a runtime that shows devices."""
        if driver:
            for file in ("/dev/kfd", "/dev/dri/renderD128", "/sys/module/amdgpu/version"):
                self.file(file, "6.12.12")
        device = MachineDevice(**{"name": "AMD Instinct MI300X", "vmm": True, "managed": True, **of_device})
        pairs = [(a, b) for a in range(devices) for b in range(devices) if a != b]
        links = [Link(source=a, target=b, type="xgmi") for a, b in pairs]
        machine = Machine(name="box", hip_version="6.4.0", devices=[device] * devices, links=links)
        return self.answered(machine)

    def answered(self, machine: Machine, family: str = "amd") -> Machine:
        self.answers[family] = RuntimeAnswer(
            machine, {"path": "lib", "version": str(machine.hip_version), "driver_version": "1"}
        )
        return machine

    def library(self, path: str, start: bytes | None = None) -> Path:
        file = self.file(path)
        file.write_bytes(start if start is not None else library_path().read_bytes())
        return file

    def report(self, only: str | None = None) -> DoctorReport:
        def asked(family: str) -> RuntimeAnswer:
            self.asked.append(family)
            return self.answers.get(family, RuntimeAnswer(summary="nothing there"))

        return examine(System(self.root, self.environ, self.limits), asked, only, packages={})

    def topics(self) -> dict[str, Finding]:
        return {finding.topic: finding for finding in self.report().findings}


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_a_machine_without_any_gpu_is_good_for_the_simulator(box: Box) -> None:
    report = box.report()

    assert [finding.topic for finding in report.findings] == ["runtime.none"]
    assert report.of("note") == list(report.findings)
    assert box.asked == []


def test_a_good_machine_has_no_findings(box: Box) -> None:
    box.amd(2)
    report = box.report()

    assert [finding for finding in report.findings if not finding.topic.startswith("release.")] == []
    assert report.facts["system"]["drivers"] == {"amd": "6.12.12"}
    assert len(report.facts["runtimes"]["amd"]["machine"]["devices"]) == 2


def test_each_finding_says_what_to_do(box: Box) -> None:
    box.gpu(NVIDIA_GPU)
    box.amd(2, vmm=False, host_visible=False, xnack=False)
    box.environ |= dict.fromkeys(VARIABLES, "1")
    box.limits |= {"open_files": (64, 64), "locked_memory": (1, 1), "addresses": (1, 1), "file_size": (1, 1)}
    report = box.report()

    assert len(report.findings) > 20
    for finding in report.findings:
        assert finding.do, finding
        assert finding.summary, finding
        assert "." in finding.topic, finding
    levels = [("error", "warning", "note").index(finding.level) for finding in report.findings]
    assert levels == sorted(levels)


@pytest.mark.parametrize(("gpu", "topic"), [(AMD_GPU, "driver.amd"), (NVIDIA_GPU, "driver.nvidia")])
def test_a_gpu_without_its_driver_is_an_error(gpu: dict[str, str], topic: str, box: Box) -> None:
    box.gpu(gpu)
    box.gpu({"vendor": "0x8086", "class": "0x030000"}, "0000:00:02.0")
    result = box.topics()

    assert result[topic].level == "error"
    assert "1 GPU of" in result[topic].summary


def test_device_files_that_are_missing_or_closed_are_errors(box: Box) -> None:
    box.file("/sys/module/amdgpu/version", "6")
    box.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep\n")
    box.file("/dev/nvidiactl")
    result = box.report()
    summaries = {event.summary for event in result.of("error")}

    assert "/dev/kfd is not there, though the driver is" in summaries
    assert "/dev/nvidia-uvm is not there, though the driver is" in summaries
    assert result.facts["system"]["drivers"] == {"amd": "6", "nvidia": "580.95.05"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open everything")
def test_a_device_file_that_the_user_may_not_open_is_an_error(box: Box) -> None:
    box.amd()
    (box.root / "dev/kfd").chmod(0)

    assert "may not open /dev/kfd" in box.topics()["driver.amd.device"].summary


def test_no_render_node_is_an_error(box: Box) -> None:
    box.amd()
    (box.root / "dev/dri/renderD128").unlink()

    assert box.topics()["driver.amd.render"].level == "error"


@pytest.mark.parametrize(
    ("limit", "value", "topic", "level"),
    [
        ("open_files", (256, 1024), "limits.open_files", "warning"),
        ("open_files", (256, 65536), None, None),
        ("locked_memory", (65536, 65536), "limits.locked_memory", "note"),
        ("addresses", (2**33, None), "limits.addresses", "warning"),
        ("file_size", (2**20, None), "limits.file_size", "note"),
    ],
)
def test_limits_of_the_process(limit: str, value: Any, topic: str | None, level: str | None, box: Box) -> None:
    box.amd()
    box.limits[limit] = value
    collected = {
        finding.topic: finding.level for finding in box.report().findings if finding.topic.startswith("limits.")
    }

    assert collected == ({topic: level} if topic else {})


@pytest.mark.parametrize(
    ("path", "text", "topic"),
    [
        ("/proc/sys/vm/max_map_count", "65530", "limits.mappings"),
        ("/proc/sys/vm/max_map_count", "no number", None),
        ("/proc/sys/kernel/numa_balancing", "1\n", "numa.balancing"),
        ("/proc/sys/kernel/numa_balancing", "0\n", None),
        ("/proc/sys/vm/overcommit_memory", "2", "memory.overcommit"),
        ("/sys/fs/cgroup/memory.max", "1048576", "memory.cgroup"),
        ("/sys/fs/cgroup/memory.max", "max", None),
    ],
)
def test_what_the_kernel_says(path: str, text: str, topic: str | None, box: Box) -> None:
    box.amd()
    box.file(path, text)
    collected = {finding.topic for finding in box.report().findings if not finding.topic.startswith("release.")}

    assert collected == ({topic} if topic else set())


def test_the_facts_say_what_plans_may_take_of_the_host(box: Box) -> None:
    box.amd()
    box.file("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "12")
    box.file("/sys/devices/system/node/has_memory", "0-1")
    box.file("/sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "5")
    box.file("/proc/self/status", "Mems_allowed_list:\t1\n")
    box.file("/sys/fs/cgroup/memory.max", "1048576")
    facts = box.report().facts["system"]

    assert facts["huge_pages"] == {"2MiB": 12, "1GiB": 0}
    assert facts["huge_pages_of_nodes"] == {1: {"2MiB": 5, "1GiB": 0}}
    assert facts["numa_nodes_usable"] == [1]
    assert facts["memory_allowed"] == 1048576


@pytest.mark.parametrize(
    ("variable", "value", "level"),
    [
        ("HIP_VISIBLE_DEVICES", "1,0", "note"),
        ("CUDA_VISIBLE_DEVICES", "", "warning"),
        ("CUDA_VISIBLE_DEVICES", "-1", "warning"),
        ("HSA_XNACK", "1", "note"),
        ("HSA_XNACK", "0", "note"),
        ("HIP_VMEM_MANAGE_SUPPORT", "0", "error"),
        ("HIP_VMEM_MANAGE_SUPPORT", "1", None),
        ("HSA_ENABLE_SDMA", "0", "warning"),
        ("HSA_ENABLE_SDMA", "1", None),
        ("CUDA_LAUNCH_BLOCKING", "1", "warning"),
        ("CUDA_LAUNCH_BLOCKING", "0", None),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:128", "warning"),
        ("PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync", "warning"),
        ("PYTORCH_HIP_ALLOC_CONF", "garbage_collection_threshold:0.8", None),
        ("PYTORCH_ALLOC_CONF", "max_split_size_mb:128, per_process_memory_fraction: 0.5", "note"),
        ("PYTORCH_ALLOC_CONF", "per_process_memory_fraction:half", None),
        ("LD_PRELOAD", "/opt/libhipsomething.so", "warning"),
        ("ROCM_PATH", "/nowhere", "warning"),
        ("HIPPLAN_RUNTIME", "amdd", "error"),
        ("HIPPLAN_RUNTIME", "libamdhip64.so.7", "error"),
        ("HIPPLAN_RUNTIME", "amd", "note"),
        ("HIPPLAN_RUNTIME", "./libamdhip64.so.7", "note"),
    ],
)
def test_variables_that_change_layouts(variable: str, value: str, level: str | None, box: Box) -> None:
    box.amd()
    box.environ[variable] = value
    collected = {
        finding.topic: finding.level for finding in box.report().findings if finding.topic.startswith("environment.")
    }

    assert collected == ({f"environment.{variable}": level} if level else {})


def test_variables_that_contradict_each_other(box: Box) -> None:
    box.environ |= {"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1", "ROCR_VISIBLE_DEVICES": "2"}
    summaries = [event.summary for event in box.report().of("warning")]

    assert any("differ" in summary for summary in summaries)
    assert any("applied first" in summary for summary in summaries)


def test_every_copy_of_a_library_is_found_once(box: Box) -> None:
    first = box.library("/opt/rocm-7.2.0/lib/libamdhip64.so.7.2.70200")
    (first.parent / "libamdhip64.so.7").symlink_to(first.name)
    (box.root / "opt/rocm").symlink_to("rocm-7.2.0")
    second = box.library("/wheels/torch/lib/libamdhip64.so")
    box.environ["LD_LIBRARY_PATH"] = f"{second.parent}:/none::{first.parent}"
    box.library("/usr/lib64/libamdhip64.so.6", b"no library")
    cut = box.library("/usr/lib/libamdhip64.so.7", library_path().read_bytes()[:1000])
    box.library("/usr/lib64/libamdhip64.so.txt")
    report = box.report()
    collected = {library["path"]: library for library in report.facts["libraries"]}
    topics = {finding.topic: finding for finding in report.findings}

    assert list(collected) == [str(second), str(first), str(box.root / "usr/lib64/libamdhip64.so.6"), str(cut)]
    assert collected[str(first)]["version"] == "7.2.70200"
    assert topics["libraries.amd"].level == "warning"
    assert [finding.summary[:8] for finding in report.findings if finding.topic == "libraries.amd"] == [
        "2 copies",
        str(box.root)[:8],
        str(box.root)[:8],
    ]
    assert box.asked == ["amd"]


def test_a_library_without_a_gpu_is_no_error(box: Box) -> None:
    box.library("/opt/rocm/lib/libamdhip64.so.7")
    box.answers["amd"] = RuntimeAnswer(summary="no AMD device was found", hint="look at the driver")

    assert box.topics()["runtime.amd"].level == "note"
    assert box.report("amd").of("error")[0].topic == "runtime.amd"


def test_a_driver_that_breaks_is_an_error_in_any_case(box: Box) -> None:
    box.library("/opt/rocm/lib/libamdhip64.so.7")
    box.answers["amd"] = RuntimeAnswer(summary="the amd driver did not answer within 30 s", hint="x", is_broken=True)

    assert box.topics()["runtime.amd"].level == "error"


@pytest.mark.parametrize(
    ("version", "topics"),
    [
        ("6.1.0", {"sharing", "release_order", "access_takes_others", "unmap_pieces", "fresh_memory"}),
        ("6.4.3", {"unmap_pieces", "fresh_memory"}),
        ("7.2.4", {"set_access_order", "copy_opens", "memory_comes_late", "fresh_memory"}),
        ("7.14.0", {"copy_opens", "export_again", "peer_rights", "descriptors_stay", "fresh_memory"}),
        ("7.15.0", {"copy_opens", "host_access_to_imports", "fresh_memory"}),
    ],
)
def test_releases_with_known_defects(version: str, topics: set[str], box: Box) -> None:
    box.answered(box.amd().model_copy(update={"hip_version": version}))

    assert {topic for topic in box.topics() if topic.startswith("release.")} == {f"release.{topic}" for topic in topics}


def test_peers_that_are_not_linked_are_named(box: Box) -> None:
    machine = box.amd(4)
    box.answered(
        machine.model_copy(update={"links": [link for link in machine.links if 3 not in (link.source, link.target)]})
    )

    assert box.topics()["peers.apart"].summary == "3 of 6 pairs of devices are not linked: 0 and 3, 1 and 3, 2 and 3"


def test_devices_that_the_runtime_does_not_show(box: Box) -> None:
    box.amd(1)
    for node, simds in enumerate((0, 304, 304)):
        box.file(f"/sys/class/kfd/kfd/topology/nodes/{node}/properties", f"cpu_cores_count 1\nsimd_count {simds}\n")
    assert box.topics()["device.missing"].summary == "the kernel knows 2 GPUs, the runtime 1"
    box.environ["ROCR_VISIBLE_DEVICES"] = "0"
    assert "device.missing" not in box.topics()


def test_a_process_on_another_numa_node_than_its_device_is_reported(box: Box) -> None:
    here = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    box.file("/sys/devices/system/node/node0/cpulist", f"{here}\n")
    box.file("/sys/devices/system/node/node1/cpulist", "4000-4003\n")
    box.amd(2, numa_node=1)
    assert "NUMA node 1, which device 0, 1 is next to" in box.topics()["numa.far"].summary
    box.amd(2, numa_node=0)
    assert "numa.far" not in box.topics()
    box.amd(1)
    assert "the NUMA node is unknown for device 0" in box.topics()["numa.unknown"].summary


def test_shipped_machines_are_examined(box: Box) -> None:
    for name in ("mi300x-8", "h200-4"):
        machine = load_machine(name)
        box.answered(machine, machine.runtime)
        assert box.report(machine.runtime).of("error") == []


@pytest.fixture
def rocm(tmp_path: Path) -> dict[str, str]:
    """The simulator, where ROCm's library is looked for."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libamdhip64.so.7").symlink_to(library_path())
    (tmp_path / "libamdhip64.so.7").symlink_to(library_path())
    return os.environ | {"ROCM_PATH": str(tmp_path), "LD_LIBRARY_PATH": str(tmp_path)}


def test_a_driver_answers_in_a_process_of_its_own(rocm: dict[str, str]) -> None:
    answer = ask("amd", environ=rocm)

    assert answer.machine is not None, answer
    assert answer.machine.runtime == "amd"
    assert len(answer.machine.devices) == 2
    assert answer.runtime["path"].startswith(rocm["ROCM_PATH"])
    loaded = Path("/proc/self/maps").read_text()
    assert rocm["ROCM_PATH"] not in loaded


def test_a_driver_that_refuses_says_why(rocm: dict[str, str]) -> None:
    answer = ask("amd", environ=rocm | {"HIPSIM_FAIL": "hipGetDeviceCount@1+=hipErrorNoDevice"})

    assert answer.machine is None
    assert answer.summary == "no AMD device was found"
    assert answer.hint.startswith("look at the driver")
    assert not answer.is_broken


def test_a_driver_that_hangs_is_given_up_on(rocm: dict[str, str], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    pause = f"hipGetDeviceCount@1=pause:{tmp_path / 'fifo'}"
    answer = ask("amd", 0.5, rocm | {"HIPSIM_FAIL": pause})

    assert answer.is_broken
    assert answer.summary == "the amd driver did not answer within 0.5 s"


def test_a_driver_that_ends_the_process_is_reported(rocm: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    answer = ask("amd", environ=rocm | {"PYTHONPATH": str(tmp_path)})

    assert answer.is_broken
    assert answer.summary == "the amd driver ended the process that asked it (SIGSEGV)"
    assert signal.SIGSEGV.name in answer.summary
    assert sys.executable in answer.hint
