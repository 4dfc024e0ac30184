"""The machine profile: what the simulator becomes, and what it refuses."""

import ctypes
from ctypes import byref, c_int, c_void_p
from pathlib import Path

import pytest

from ..conformance.hip import (
    GIB,
    ILLEGAL_ADDRESS,
    INVALID_VALUE,
    MIB,
    OUT_OF_MEMORY,
    SUCCESS,
    Hip,
    access,
    prop,
)
from ..conformance.sim import TWO_DEVICES, Simulator
from .conftest import Script

SIZE = 2 * MIB


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("colour=blue", "unknown key"),
        ("device.0.colour=blue", "unknown device key"),
        ("no equals sign", "expected key=value"),
        ("hip_version=5.7.0", "6.1 to 7.x only"),
        ("hip_version=8.0.0", "6.1 to 7.x only"),
        ("hip_version=seven", "not a number"),
        ("device.0.memory=-5", "not a number"),
        ("device.0.memory=99999999999999999999999", "not a number"),
        ("device.0.vmm=yes", "neither 0 nor 1"),
        ("device.3.name=x", "without gaps"),
        ("device.64.name=x", "0 to 63"),
        ("device.0.granularity_minimum=1000", "power of two"),
        ("device.0.pci=1:2.3", "dddd:bb:dd.f"),
        ("device.0.uuid=far too long to be a uuid", "32 hex digits"),
        ("link.0.1=wire,1", "xgmi, nvlink, pcie or none"),
        ("quirk.no_such_quirk=1", "there is no quirk no_such_quirk"),
        ("option.no_such_option=1", "unknown key"),
    ],
)
def test_a_bad_line_is_named_with_its_number_and_reason(simulator: Simulator, line: str, why: str) -> None:
    assert simulator.library.hipsim_configure(f"# a comment\n\n{line}\n".encode()) == 1
    assert "line 3" in simulator.message
    assert line in simulator.message
    assert why in simulator.message


def test_a_link_to_a_device_that_is_not_there_is_refused(simulator: Simulator) -> None:
    assert simulator.library.hipsim_configure(b"device.0.name=a\nlink.0.1=xgmi,1\n") == 1
    assert "link.0.1" in simulator.message


def test_a_bad_profile_leaves_the_machine_unchanged(hip: Hip, simulator: Simulator) -> None:
    simulator.library.hipsim_configure(b"nonsense")

    assert hip.devices == 3


def test_the_machine_cannot_change_while_something_is_alive(hip: Hip, simulator: Simulator) -> None:
    with hip.buffer(MIB):
        assert simulator.library.hipsim_configure(b"") == 2
        assert "alive" in simulator.message


def test_a_machine_that_is_replaced_gives_its_addresses_back(hip: Hip, simulator: Simulator) -> None:
    def address_space_gib() -> int:
        return int(Path("/proc/self/statm").read_text().split()[0]) * 4096 >> 30

    before = address_space_gib()
    for _ in range(20):
        simulator.configure()
        with hip.reservation(MIB), hip.reservation(2 * GIB):
            pass
    simulator.configure()

    assert address_space_gib() <= before


def test_without_a_profile_there_are_two_linked_devices_of_64_gib(hip: Hip, simulator: Simulator) -> None:
    simulator.configure()

    assert (hip.devices, hip.version) == (2, (7, 2))
    assert hip.get("hipDeviceTotalMem", ctypes.c_size_t, 1) == 64 * GIB
    assert hip.get("hipDeviceCanAccessPeer", c_int, 0, 1) == 1


def test_eight_devices_of_192_gib_fit_a_laptop(hip: Hip, simulator: Simulator) -> None:
    devices = "\n".join(f"device.{i}.memory={192 * GIB}" for i in range(8))
    simulator.configure(f"host_memory=2199023255552\n{devices}")
    for device in range(8):
        hip.hipSetDevice(device)
        with hip.buffer(192 * GIB - SIZE) as address:
            assert hip.write(address + 191 * GIB, b"far away") == SUCCESS
            assert hip.hipMemset(address, 0, 192 * GIB - SIZE) == SUCCESS
            assert hip.hipMalloc(ctypes.byref(c_void_p()), 2 * SIZE) == OUT_OF_MEMORY


def test_the_cpu_faults_on_device_memory(script: Script) -> None:
    got = script("p = hip.get('hipMalloc', c_void_p, 4096)\nctypes.string_at(p, 1)")

    assert got.returncode == -11


def test_the_cpu_faults_on_mapped_memory_however_much_access_devices_have(script: Script) -> None:
    got = script("with hip.mapped(1 << 21, access(0)) as p: ctypes.string_at(p, 1)")

    assert got.returncode == -11


def test_a_host_visible_device_shares_its_memory_with_the_cpu(hip: Hip, simulator: Simulator) -> None:
    simulator.configure("device.0.host_visible=1\ndevice.0.integrated=1")
    with hip.buffer(MIB) as address, hip.mapped(SIZE, access(0)) as mapped:
        ctypes.memset(address, 0x41, 10)
        ctypes.memset(mapped, 0x42, 10)

        assert hip.read(address, 2) + hip.read(mapped, 2) == b"AABB"


def test_aliases_on_a_host_visible_device_are_one_memory(hip: Hip, simulator: Simulator) -> None:
    simulator.configure("device.0.host_visible=1")
    with (
        hip.reservation(2 * SIZE) as address,
        hip.allocation(SIZE) as handle,
        hip.mapping(address, SIZE, handle, access(0)),
        hip.mapping(address + SIZE, SIZE, handle, access(0)),
    ):
        ctypes.memset(address, 0x41, 10)
        assert ctypes.string_at(address + SIZE, 2) == b"AA"


@pytest.mark.parametrize("what", ["before access", "after unmap", "a write where only reading was granted"])
def test_the_cpu_faults_on_a_host_visible_device_too(script: Script, what: str) -> None:
    source = f"""
simulator.configure("device.0.host_visible=1")
what = {what!r}
with hip.reservation(1 << 21) as p, hip.allocation(1 << 21) as h:
    with hip.mapping(p, 1 << 21, h):
        if what == "before access": ctypes.string_at(p, 1)
        desc = access(0, READ if "write" in what else READ_WRITE)
        assert hip.hipMemSetAccess(p, 1 << 21, byref(desc), 1) == 0
        assert ctypes.string_at(p, 1) == b"\\0"
        if "write" in what: ctypes.memset(p, 1, 1)
    ctypes.string_at(p, 1)
"""
    assert script(source).returncode == -11


def test_xnack_opens_the_program_s_own_memory_to_devices(hip: Hip, simulator: Simulator) -> None:
    here = ctypes.create_string_buffer(8192)
    assert simulator.touch(0, ctypes.addressof(here), 8192) == ILLEGAL_ADDRESS
    assert "XNACK" in simulator.message
    simulator.configure("device.0.xnack=1")
    assert simulator.touch(0, ctypes.addressof(here), 8192) == 0
    assert hip.attribute(65) == 1
    assert hip.hipMemPrefetchAsync(here, 8192, 0, None) == SUCCESS


def test_without_hmm_managed_memory_is_pinned_and_advice_is_ignored(hip: Hip, simulator: Simulator) -> None:
    simulator.configure("device.0.managed=0")
    assert (hip.attribute(24), hip.attribute(9)) == (0, 0)
    with hip.managed(MIB) as address:
        assert hip.hipMemAdvise(address, MIB, 777, 0) == SUCCESS
        assert hip.hipMemAdvise(address, MIB + 1, 1, 0) == INVALID_VALUE
        assert hip.hipMemPrefetchAsync(address, MIB, 0, None) == SUCCESS
        out = c_int()
        assert hip.hipMemRangeGetAttribute(ctypes.byref(out), 4, 1, address, MIB) == INVALID_VALUE
        assert hip.hipMemRangeGetAttribute(ctypes.byref(out), 4, 100, address, MIB) == SUCCESS


def test_without_vmm_the_attribute_is_0_and_memory_is_refused(hip: Hip, simulator: Simulator) -> None:
    simulator.configure("device.0.vmm=0")
    out = c_void_p()
    assert hip.attribute(89) == 0
    assert hip.hipMemAddressReserve(ctypes.byref(out), SIZE, 0, None, 0) == OUT_OF_MEMORY
    assert hip.hipMemCreate(ctypes.byref(out), SIZE, ctypes.byref(prop()), 0) == OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("arch", "capability"), [("gfx90a", (9, 0)), ("gfx942", (9, 4)), ("gfx950", (9, 5)), ("gfx1100", (11, 0))]
)
def test_the_capability_follows_the_architecture(
    hip: Hip, simulator: Simulator, arch: str, capability: tuple[int, int]
) -> None:
    simulator.configure(f"device.0.arch={arch}")
    assert (hip.attribute(23), hip.attribute(61)) == capability


def test_a_limit_on_mappings(hip: Hip, simulator: Simulator) -> None:
    simulator.configure("device.0.name=x\nlimit.mappings=1")
    with hip.mapped(SIZE), hip.reservation(SIZE) as address, hip.allocation(SIZE) as handle:
        assert hip.hipMemMap(address, SIZE, 0, handle, 0) == OUT_OF_MEMORY


def test_a_later_line_of_a_profile_undoes_an_earlier_one(hip: Hip, simulator: Simulator) -> None:
    quirk, link = "quirk.map_failure_hidden", "link.0.1"
    simulator.configure(f"{TWO_DEVICES}\n{quirk}=1\n{quirk}=0\n{link}=none")
    assert hip.get("hipDeviceCanAccessPeer", c_int, 0, 1) == 0
    with hip.reservation(SIZE) as address, hip.allocation(SIZE) as handle:
        assert hip.hipMemMap(address, 2 * SIZE, 0, handle, 0) == INVALID_VALUE


def test_others_may_have_all_of_a_device_and_more(hip: Hip, simulator: Simulator) -> None:
    with hip.buffer(SIZE):
        assert simulator.library.hipsim_set_in_use(0, 2**64 - 1) == 0
        assert hip.free_memory() == 0
    simulator.configure(f"device.0.in_use={2**64 - 1}")
    assert hip.free_memory() == 0


@pytest.mark.parametrize(
    ("shape", "dies"),
    [("", 8), ("device.0.multiprocessors=38", 1), ("device.0.arch=gfx90a", 1), ("hip_version=6.3.42133", None)],
)
def test_the_number_of_dies_is_reported_from_7_0_on(
    hip: Hip, simulator: Simulator, shape: str, dies: int | None
) -> None:
    simulator.configure(f"hip_version=7.2.0\ndevice.0.name=x\n{shape}")
    reported = c_int()
    assert hip.hipDeviceGetAttribute(byref(reported), 10018, 0) == (SUCCESS if dies else INVALID_VALUE)
    assert dies is None or reported.value == dies


def test_accessed_by_into_more_than_the_address_space_is_invalid(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        assert hip.hipMemRangeGetAttribute(byref(c_int()), 2**64 - 4, 3, address, MIB) == INVALID_VALUE


def test_hip_s_own_variables_change_what_is_reported(script: Script) -> None:
    got = script(
        "print(hip.attribute(89), hip.free_memory() >> 20)\nwith hip.mapped(1 << 21): pass",
        HIPSIM_PROFILE="device.0.memory=16777216",
        HIP_VMEM_MANAGE_SUPPORT="0",
        HIP_HIDDEN_FREE_MEM="6",
    )

    assert (got.stdout.strip(), got.returncode) == ("0 10", 0)


def test_granularities_can_differ_from_the_release_s(hip: Hip, simulator: Simulator) -> None:
    simulator.configure("device.0.granularity_minimum=65536\ndevice.0.granularity_recommended=2097152")
    assert (hip.granularity(), hip.granularity(option=1)) == (65536, 2 * MIB)


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({}, "ABC"),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, "CA"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, "B"),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, "A"),
        ({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "1"}, "B"),
        ({"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1"}, "C"),
        ({"HIP_VISIBLE_DEVICES": "1,7,0"}, "B"),
        ({"HIP_VISIBLE_DEVICES": "1,x"}, "B"),
        ({"HIP_VISIBLE_DEVICES": "-1"}, ""),
        ({"ROCR_VISIBLE_DEVICES": "GPU-51a0000000000001"}, "B"),
    ],
    ids=str,
)
def test_visibility_masks(script: Script, variables: dict[str, str], names: str) -> None:
    source = """
for device in range(hip.devices):
    name = (c_char * 64)()
    hip.hipDeviceGetName(name, 64, device)
    print(name.value.decode()[-1], end="")
"""
    got = script(source, HIPSIM_PROFILE=TWO_DEVICES, **variables)

    assert (got.stdout, got.returncode) == (names, 0)


def test_links_follow_the_mask(script: Script) -> None:
    source = "print([hip.get('hipDeviceCanAccessPeer', c_int, a, b) for a, b in ((0, 1), (0, 2), (1, 2))])"
    got = script(source, HIPSIM_PROFILE=TWO_DEVICES, HIP_VISIBLE_DEVICES="2,1,0")

    assert got.stdout.strip() == "[0, 0, 1]"


def test_with_no_device_calls_say_so_before_they_look_at_arguments(script: Script) -> None:
    source = """
count = c_int(5)
print(hip.hipGetDeviceCount(byref(count)), count.value, hip.hipMalloc(None, 0), hip.hipSetDevice(0), hip.hipInit(9))
print(hip.hipRuntimeGetVersion(byref(count)), hip.hipGetLastError(), hip.hipMemcpy(None, None, 0, 0))
print(hip.library.hipMemPoolCreate(None, None))
"""
    got = script(source, HIPSIM_PROFILE=TWO_DEVICES, HIP_VISIBLE_DEVICES="-1")

    assert got.stdout.split() == ["100", "0", "100", "100", "100", "0", "100", "100", "100"]


def test_a_bad_profile_in_the_environment_fails_every_call_and_says_why(script: Script) -> None:
    got = script("print(hip.hipInit(0), hip.hipMalloc(None, 5))", HIPSIM_PROFILE="device.0.colour=red")

    assert got.stdout.split() == ["101", "101"]
    assert "profile line 1 'device.0.colour=red': unknown device key" in got.stderr
