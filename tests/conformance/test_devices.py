"""Devices: counting, choosing, naming, measuring."""

import ctypes
import threading
from ctypes import c_char, c_int, c_size_t, c_ubyte, c_uint
from typing import Any

import pytest

from .hip import INVALID_DEVICE, INVALID_VALUE, SUCCESS, Hip
from .sim import Simulator


def about(function: str) -> pytest.MarkDecorator:
    return pytest.mark.function(function)


bad_device = pytest.mark.parametrize("device", [-1, 99])


@about("hipInit")
def test_flags_of_init_must_be_zero(hip: Hip) -> None:
    assert (hip.hipInit(0), hip.hipInit(1)) == (SUCCESS, INVALID_VALUE)


@about("hipRuntimeGetVersion")
def test_the_version_is_major_minor_patch_in_one_number(hip: Hip) -> None:
    assert hip.hipRuntimeGetVersion(None) == INVALID_VALUE
    assert hip.get("hipRuntimeGetVersion", c_int) >= 60_000_000


@about("hipDriverGetVersion")
def test_the_driver_has_a_version(hip: Hip) -> None:
    assert hip.hipDriverGetVersion(None) == INVALID_VALUE
    assert hip.get("hipDriverGetVersion", c_int) > 0


@about("hipGetDeviceCount")
def test_count(hip: Hip) -> None:
    assert hip.hipGetDeviceCount(None) == INVALID_VALUE
    assert hip.get("hipGetDeviceCount", c_int) >= 1


@about("hipSetDevice")
@bad_device
def test_a_bad_device_cannot_be_chosen(hip: Hip, device: int) -> None:
    assert hip.hipSetDevice(device) == INVALID_DEVICE
    assert hip.get("hipGetDevice", c_int) == 0


@about("hipGetDevice")
def test_the_current_device_of_null_is_invalid(hip: Hip) -> None:
    assert hip.hipGetDevice(None) == INVALID_VALUE


@about("hipSetDevice")
@pytest.mark.needs("two devices")
def test_the_current_device_is_per_thread_and_starts_at_0(hip: Hip) -> None:
    seen: list[int] = []
    hip.hipSetDevice(1)
    thread = threading.Thread(target=lambda: seen.append(hip.get("hipGetDevice", c_int)))
    thread.start()
    thread.join()

    assert seen == [0]
    assert hip.get("hipGetDevice", c_int) == 1


@about("hipDeviceGet")
@bad_device
def test_device_get(hip: Hip, device: int) -> None:
    assert hip.hipDeviceGet(None, 0) == INVALID_VALUE
    assert hip.hipDeviceGet(ctypes.byref(c_int()), device) == INVALID_DEVICE
    assert hip.get("hipDeviceGet", c_int, 0) == 0


@about("hipDeviceGetName")
@bad_device
def test_name(hip: Hip, device: int) -> None:
    name = (c_char * 64)()
    assert hip.hipDeviceGetName(name, 64, device) == INVALID_DEVICE
    assert hip.hipDeviceGetName(None, 64, 0) == INVALID_VALUE
    assert hip.hipDeviceGetName(name, 64, 0) == SUCCESS
    assert name.value


@about("hipDeviceTotalMem")
@bad_device
def test_total_memory(hip: Hip, device: int) -> None:
    assert hip.hipDeviceTotalMem(None, 0) == INVALID_VALUE
    assert hip.hipDeviceTotalMem(ctypes.byref(c_size_t()), device) == INVALID_DEVICE
    assert hip.get("hipDeviceTotalMem", c_size_t, 0) > 1 << 20


@about("hipDeviceGetPCIBusId")
def test_pci_address_there_and_back(hip: Hip) -> None:
    text = (c_char * 32)()
    assert hip.hipDeviceGetPCIBusId(text, 32, 99) == INVALID_DEVICE
    assert hip.hipDeviceGetPCIBusId(text, 32, 0) == SUCCESS
    domain, bus, rest = text.value.decode().split(":")
    assert int(domain, 16) == hip.attribute(69)
    assert int(bus, 16) == hip.attribute(67)
    assert int(rest.split(".")[0], 16) == hip.attribute(68)
    assert hip.get("hipDeviceGetByPCIBusId", c_int, text.value) == 0


@about("hipDeviceGetByPCIBusId")
def test_an_unknown_pci_address_is_invalid(hip: Hip) -> None:
    assert hip.hipDeviceGetByPCIBusId(ctypes.byref(c_int()), b"ffff:ff:1f.7") == INVALID_VALUE
    assert hip.hipDeviceGetByPCIBusId(None, b"0000:00:00.0") == INVALID_VALUE


@about("hipDeviceGetUuid")
@pytest.mark.needs("two devices")
def test_uuids_differ(hip: Hip) -> None:
    uuids = [bytes(hip.get("hipDeviceGetUuid", c_ubyte * 16, device)) for device in (0, 1)]

    assert uuids[0] != uuids[1]
    assert hip.hipDeviceGetUuid(None, 0) == INVALID_VALUE
    assert hip.hipDeviceGetUuid((c_ubyte * 16)(), 99) == INVALID_DEVICE


@about("hipDeviceGetAttribute")
def test_attribute_of_bad_arguments(hip: Hip) -> None:
    out = ctypes.byref(c_int())
    assert hip.hipDeviceGetAttribute(None, 24, 0) == INVALID_VALUE
    assert hip.hipDeviceGetAttribute(out, 24, 99) == INVALID_DEVICE
    assert hip.hipDeviceGetAttribute(out, 777, 0) == INVALID_VALUE


@about("hipDeviceGetAttribute")
@pytest.mark.parametrize("attribute", [3, 24, 65, 85, 89, 90])
def test_what_is_a_flag_is_0_or_1(hip: Hip, attribute: int) -> None:
    assert hip.attribute(attribute) in (0, 1)


@about("hipDeviceGetAttribute")
def test_the_total_memory_attribute_is_capped_at_31_bits(hip: Hip) -> None:
    total = hip.get("hipDeviceTotalMem", c_size_t, 0)
    assert hip.attribute(84) == min(total, 2**31 - 1)


@about("hipDeviceGetAttribute")
@pytest.mark.parametrize(
    ("attribute", "since"), [(92, (7, 0)), (93, (7, 12)), (94, (7, 13)), (95, (7, 14)), (96, (9, 0))]
)
def test_attributes_came_with_releases(hip: Hip, simulator: Simulator, attribute: int, since: tuple[int, int]) -> None:
    code = hip.hipDeviceGetAttribute(ctypes.byref(c_int()), attribute, 0)

    assert code == (SUCCESS if hip.version >= since else INVALID_VALUE)


@about("hipDeviceComputeCapability")
def test_the_capability_agrees_with_the_attributes(hip: Hip) -> None:
    major, minor = c_int(), c_int()
    out = ctypes.byref(major), ctypes.byref(minor)
    assert hip.hipDeviceComputeCapability(None, out[1], 0) == INVALID_VALUE
    assert hip.hipDeviceComputeCapability(*out, 99) == INVALID_DEVICE
    assert hip.hipDeviceComputeCapability(*out, 0) == SUCCESS
    assert (major.value, minor.value) == (hip.attribute(23), hip.attribute(61))


@about("hipGetDevicePropertiesR0600")
def test_properties_agree_with_the_single_questions(hip: Hip) -> None:
    raw = ctypes.create_string_buffer(1472)
    assert hip.hipGetDevicePropertiesR0600(None, 0) == INVALID_VALUE
    assert hip.hipGetDevicePropertiesR0600(raw, 99) == INVALID_DEVICE
    assert hip.hipGetDevicePropertiesR0600(raw, 0) == SUCCESS

    def number(offset: int, kind: Any = c_int) -> int:
        value: int = kind.from_buffer(raw, offset).value
        return value

    assert number(288, c_size_t) == hip.get("hipDeviceTotalMem", c_size_t, 0)
    assert (number(360), number(364)) == (hip.attribute(23), hip.attribute(61))
    assert (number(584), number(588), number(592)) == (hip.attribute(67), hip.attribute(68), hip.attribute(69))
    assert (number(652), number(676)) == (hip.attribute(24), hip.attribute(9))
    assert number(308) == hip.attribute(87)
    limits = {8: 576, 26: 324, 27: 328, 28: 332, 29: 336, 30: 340, 31: 344, 57: 624, 71: 304}
    assert {n: number(offset) for n, offset in limits.items()} == {n: hip.attribute(n) for n in limits}
    long_limits = {58: 312, 81: 368, 82: 376}
    got = {n: number(offset, c_size_t) for n, offset in long_limits.items()}
    assert got == {n: hip.attribute(n) for n in long_limits}
    assert raw.raw[1160:1163] == b"gfx" or raw.raw[1160:1162] == b"sm"


PLACES = {
    2: 600, 3: 400, 5: 348, 8: 576, 9: 676, 10: 688, 11: 692, 12: 384, 14: 632, 15: 664, 16: 396, 19: 616, 20: 636,
    23: 360, 24: 652, 25: 712, 26: 324, 27: 328, 28: 332, 29: 336, 30: 340, 31: 344, 56: 320, 57: 624, 58: 312,
    59: 612, 60: 608, 61: 364, 63: 388, 65: 672, 66: 704, 67: 584, 68: 588, 69: 592, 70: 620, 71: 304, 72: 648,
    74: 296, 75: 696, 76: 640, 78: 628, 79: 568, 81: 368, 82: 376, 83: 352, 87: 308, 88: 744, 90: 728, 91: 760,
    10002: 1416, 10007: 1448, 10008: 1452, 10009: 1456, 10010: 1460, 10011: 1464, 10012: 1468,
}  # fmt: skip
"""Attribute -> where hipDeviceProp_tR0600 has it."""


@about("hipGetDevicePropertiesR0600")
def test_every_property_that_is_an_attribute_has_its_value(hip: Hip) -> None:
    if "libhipcuda" in hip.path:
        pytest.skip("CUDA answers what its driver knows")
    raw = ctypes.create_string_buffer(1472)
    assert hip.hipGetDevicePropertiesR0600(raw, 0) == SUCCESS

    got = {number: c_int.from_buffer(raw, offset).value for number, offset in PLACES.items()}
    assert got == {number: hip.attribute(number) for number in PLACES}
    no_zeros = {offset: c_int.from_buffer(raw, offset).value for offset in (600, 640, 696, 712, 1424, 1428)}
    assert all(no_zeros.values()), no_zeros


@about("hipDeviceGetAttribute")
def test_the_clock_of_kernels_has_a_rate(hip: Hip) -> None:
    if "libhipcuda" in hip.path:
        pytest.skip("an attribute of AMD's own")
    assert hip.attribute(10017) == 100_000


@about("hipGetDeviceProperties")
def test_the_plain_symbol_keeps_the_layout_of_5_x(hip: Hip, simulator: Simulator) -> None:
    raw = ctypes.create_string_buffer(b"\xee" * 1000, 1000)
    assert hip.hipGetDeviceProperties(raw, 0) == SUCCESS

    assert c_size_t.from_buffer(raw, 256).value == hip.get("hipDeviceTotalMem", c_size_t, 0)
    assert raw.raw[396:402] == b"gfx942"
    limits = {8: 360, 26: 284, 27: 288, 28: 292, 29: 296, 30: 300, 31: 304, 57: 344, 71: 272}
    limits |= {58: 712, 81: 720, 82: 728}  # of eight bytes, the upper ones 0
    got = {n: c_int.from_buffer(raw, offset).value for n, offset in limits.items()}
    assert got == {n: hip.attribute(n) for n in limits}
    assert raw.raw[792:] == b"\xee" * 208


@about("hipMemGetInfo")
def test_memory_info_takes_nulls_and_counts_the_current_device(hip: Hip) -> None:
    free, total = c_size_t(), c_size_t()
    assert hip.hipMemGetInfo(None, None) == SUCCESS
    assert hip.hipMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == SUCCESS
    assert 0 < free.value <= total.value == hip.get("hipDeviceTotalMem", c_size_t, 0)
    assert free.value % 1024 == 0


@about("hipMemGetInfo")
def test_what_others_use_is_not_free(hip: Hip, simulator: Simulator) -> None:
    before = hip.free_memory()
    simulator.library.hipsim_set_in_use(0, 1 << 30)
    assert hip.free_memory() == before - (1 << 30)


@about("hipDeviceSynchronize")
def test_synchronise(hip: Hip) -> None:
    assert hip.hipDeviceSynchronize() == SUCCESS


@about("hipDeviceReset")
def test_reset_frees_what_the_current_device_holds(hip: Hip, simulator: Simulator) -> None:
    hip.get("hipMalloc", ctypes.c_void_p, 1 << 20)
    hip.get("hipStreamCreate", ctypes.c_void_p)

    assert hip.hipDeviceReset() == SUCCESS
    assert simulator.alive() == {}


@about("hipSetDeviceFlags")
def test_device_flags(hip: Hip) -> None:
    assert hip.hipSetDeviceFlags(8) == SUCCESS
    assert hip.hipSetDeviceFlags(0x1000) == INVALID_VALUE
    assert hip.hipGetDeviceFlags(ctypes.byref(c_uint())) == SUCCESS


@about("hipGetProcAddress")
def test_a_function_by_name(hip: Hip) -> None:
    out = ctypes.c_void_p()
    for name in (b"hipMalloc", b"hipGetErrorName", b"hipGetErrorString", b"hipLaunchKernel", b"hipMemPoolCreate"):
        assert hip.hipGetProcAddress(name, ctypes.byref(out), 70000000, 0, None) == SUCCESS
        assert out.value
    assert hip.hipGetProcAddress(b"hipNoSuchThing", ctypes.byref(out), 70000000, 0, None) == INVALID_VALUE
    assert hip.hipGetProcAddress(None, ctypes.byref(out), 70000000, 0, None) == INVALID_VALUE
