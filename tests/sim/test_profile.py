"""The machine profile: what the simulator becomes, and what it refuses."""

import ctypes
import os
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
    UNKNOWN,
    Hip,
    access,
    prop,
)
from ..conformance.sim import TWO_DEVICES, Simulator
from .conftest import ROOT, Script

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
        ("quirk.no_such_quirk=1", "unknown key"),
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


def test_a_bad_profile_leaves_the_machine_as_it_was(hip: Hip, simulator: Simulator) -> None:
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


# Quirks: off in every test above; each shows the defect when on.


def quirky(simulator: Simulator, quirk: str, version: str = "7.2.53211") -> None:
    simulator.configure(f"hip_version={version}\n{TWO_DEVICES}\nquirk.{quirk}=1")


def test_quirk_map_failure_hidden(hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "map_failure_hidden")
    with hip.reservation(SIZE) as address, hip.allocation(SIZE) as handle:
        assert hip.hipMemMap(address, 2 * SIZE, 0, handle, 0) == SUCCESS
        assert hip.hipMemSetAccess(address, SIZE, ctypes.byref(access(0)), 1) == INVALID_VALUE


def test_quirk_set_access_sums_from_start(hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "set_access_sums_from_start")
    with (
        hip.reservation(3 * SIZE) as address,
        hip.allocation(2 * SIZE) as big,
        hip.allocation(SIZE) as small,
        hip.mapping(address, 2 * SIZE, big),
        hip.mapping(address + 2 * SIZE, SIZE, small),
    ):
        grant = ctypes.byref(access(0))
        assert hip.hipMemSetAccess(address + 2 * SIZE, SIZE, grant, 1) == INVALID_VALUE
        assert hip.hipMemSetAccess(address, 3 * SIZE, grant, 1) == SUCCESS


def test_quirk_set_access_sums_from_start_grants_nothing_beyond_the_reservation(hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "set_access_sums_from_start")
    with (
        hip.reservation(4 * SIZE) as address,
        hip.allocation(SIZE) as handle,
        hip.mapping(address, SIZE, handle),
        hip.mapping(address + SIZE, SIZE, handle),
        hip.mapping(address + 3 * SIZE, SIZE, handle),
    ):
        assert hip.hipMemSetAccess(address + SIZE, 2 * SIZE, ctypes.byref(access(0)), 1) == INVALID_VALUE
        assert [piece["readers"] for piece in simulator.ledger()["mappings"]] == ["0x0"] * 3


def test_quirk_unmap_size_unchecked(hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "unmap_size_unchecked", "6.3.42133")
    with hip.reservation(SIZE) as address:
        handle = hip.get("hipMemCreate", c_void_p, SIZE, ctypes.byref(prop()), 0)
        hip.hipMemMap(address, SIZE, 0, handle, 0)
        assert hip.hipMemUnmap(address, SIZE - 1) == SUCCESS
        assert hip.hipMemRelease(handle) == INVALID_VALUE
        assert hip.hipMemUnmap(address, SIZE) == SUCCESS


def test_quirk_unmap_pieces_leaks(hip: Hip, simulator: Simulator, script: Script) -> None:
    source = f"""
simulator.configure("hip_version=6.3.42133\\ndevice.0.name=x\\nquirk.unmap_pieces_leaks=1")
p = hip.get("hipMemAddressReserve", c_void_p, {2 * SIZE}, 0, None, 0)
with hip.allocation({SIZE}) as h:
    hip.hipMemMap(p, {SIZE}, 0, h, 0)
    hip.hipMemMap(p + {SIZE}, {SIZE}, 0, h, 0)
    print(hip.hipMemUnmap(p, {2 * SIZE}))
print(hip.hipMemAddressFree(p, {2 * SIZE}))
"""
    assert script(source).stdout.split() == [str(SUCCESS), str(UNKNOWN)]


def test_quirk_address_free_forgets(script: Script) -> None:
    source = f"""
simulator.configure("device.0.name=x\\nquirk.address_free_forgets=1")
p = hip.get("hipMemAddressReserve", c_void_p, {SIZE}, 0, None, 0)
with hip.allocation({SIZE}) as h, hip.mapping(p, {SIZE}, h):
    print(hip.hipMemAddressFree(p, {SIZE}))
print(hip.hipMemAddressFree(p, {SIZE}))
"""
    assert script(source).stdout.split() == [str(UNKNOWN), str(INVALID_VALUE)]


def test_quirk_create_on_current_device(hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "create_on_current_device")
    hip.hipSetDevice(0)
    before = hip.free_memory()
    handle = hip.get("hipMemCreate", c_void_p, SIZE, ctypes.byref(prop(1)), 0)
    assert hip.free_memory() == before - SIZE
    assert hip.hipMemRelease(handle) == SUCCESS


def test_quirk_create_takes_descriptor(hip: Hip, simulator: Simulator) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    quirky(simulator, "create_takes_descriptor")
    before = descriptors()
    with hip.allocation(SIZE), hip.allocation(SIZE):
        assert descriptors() == before + 2
    assert descriptors() == before


@pytest.mark.skipif(
    "undefined" in os.environ.get("HIPPLAN_SANITIZER", ""),
    reason="UndefinedBehaviorSanitizer takes a descriptor to look at an object",
)
def test_out_of_descriptors_is_out_of_memory(script: Script) -> None:
    source = f"""
import resource
simulator.configure("device.0.name=x\\nquirk.create_takes_descriptor=1")
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
handles, code = [], 0
while code == 0 and len(handles) < 100:
    handle = c_void_p()
    code = hip.hipMemCreate(byref(handle), {SIZE}, byref(prop()), 0)
    if code == 0: handles.append(handle)
print(code, 10 < len(handles) < 40)
for handle in handles: assert hip.hipMemRelease(handle) == 0
print(simulator.alive())
"""
    assert script(source).stdout.split() == [str(OUT_OF_MEMORY), "True", "{}"]


@pytest.mark.parametrize("order", ["release, unmap", "unmap, release"])
def test_quirk_free_memory_with_reservation(order: str, hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "free_memory_with_reservation")
    before = hip.free_memory()
    with hip.reservation(SIZE) as address, hip.reservation(SIZE):
        with hip.allocation(SIZE) as handle:
            hip.hipMemMap(address, SIZE, 0, handle, 0)
            if order == "unmap, release":
                assert hip.hipMemUnmap(address, SIZE) == SUCCESS
        if order == "release, unmap":
            assert hip.hipMemUnmap(address, SIZE) == SUCCESS
        with hip.mapped(SIZE):  # another reservation has nothing to do with it
            pass
        assert hip.free_memory() == before - SIZE
    assert hip.free_memory() == before


def test_quirk_free_memory_with_reservation_spares_memory_that_is_still_held(hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "free_memory_with_reservation")
    before = hip.free_memory()
    with hip.allocation(SIZE) as handle:
        with hip.reservation(SIZE) as address, hip.mapping(address, SIZE, handle):
            pass
        assert hip.free_memory() == before - SIZE
        with hip.reservation(SIZE) as address:
            for _ in range(2):
                with hip.mapping(address, SIZE, handle, access(0)):
                    assert hip.write(address, b"x") == SUCCESS
    assert hip.free_memory() == before


def test_quirk_read_only_not_enforced(hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "read_only_not_enforced")
    with hip.mapped(SIZE, access(0, 1)) as address:
        assert hip.write(address, b"x") == SUCCESS


def test_quirk_free_interior_pointer(hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "free_interior_pointer")
    address = hip.get("hipMalloc", c_void_p, MIB)
    assert hip.hipFree(address + 4096) == SUCCESS


def imported(hip: Hip, form: str) -> int:
    """What an import by value or by pointer gives."""
    with hip.allocation(SIZE, prop(handle=1)) as handle:
        fd = hip.get("hipMemExportToShareableHandle", c_int, handle, 1, 0)
        made = c_void_p()
        code: int = hip.hipMemImportFromShareableHandle(byref(made), fd if form == "value" else byref(c_int(fd)), 1)
        os.close(fd)
        assert code != SUCCESS or hip.hipMemRelease(made) == SUCCESS
    return code


@pytest.mark.parametrize("form", ["value", "pointer"])
def test_quirk_import_by_pointer(form: str, hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "import_by_pointer", "7.0.1")
    assert imported(hip, form) == (SUCCESS if form == "pointer" else INVALID_VALUE)


@pytest.mark.parametrize("form", ["value", "pointer"])
def test_quirk_import_by_value(form: str, hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "import_by_value")
    assert imported(hip, form) == (SUCCESS if form == "value" else INVALID_VALUE)


def test_every_quirk_has_a_test_here_and_a_line_in_the_manual(simulator: Simulator) -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    documented = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")
    for line in simulator.library.hipsim_quirks().decode().splitlines():
        name, meaning = line.split(": ", 1)
        assert f"test_quirk_{name}" in here
        assert f"`{name}`" in documented and meaning


def test_device_memory_is_given_back_to_the_system(script: Script) -> None:
    source = """
def of_the_simulator():
    return sum(os.stat(f"/proc/self/fd/{n}").st_blocks * 512 for n in os.listdir("/proc/self/fd")
               if os.path.islink(f"/proc/self/fd/{n}") and "memfd:hipsim-" in os.readlink(f"/proc/self/fd/{n}"))
p = hip.get("hipMalloc", c_void_p, 64 << 20)
print(of_the_simulator() >> 20)
hip.hipMemset(p, 1, 64 << 20)
print(of_the_simulator() >> 20)
hip.hipMemset(p, 0, 32 << 20)
print(of_the_simulator() >> 20)
hip.hipFree(p)
print(of_the_simulator() >> 20)
"""
    got = script(source)

    assert got.stdout.split() == ["0", "64", "32", "0"], got.stderr
