"""hipDeviceCanAccessPeer, EnablePeerAccess, DisablePeerAccess and what tells about links."""

import contextlib
import ctypes
from collections.abc import Iterator
from ctypes import c_int, c_uint

import pytest

from .hip import (
    ILLEGAL_ADDRESS,
    INVALID_DEVICE,
    INVALID_VALUE,
    MIB,
    PEER_ALREADY_ENABLED,
    PEER_NOT_ENABLED,
    SUCCESS,
    Hip,
)
from .sim import Simulator

CAN = pytest.mark.function("hipDeviceCanAccessPeer")
ENABLE = pytest.mark.function("hipDeviceEnablePeerAccess")
DISABLE = pytest.mark.function("hipDeviceDisablePeerAccess")
P2P = pytest.mark.function("hipDeviceGetP2PAttribute")
LINK = pytest.mark.function("hipExtGetLinkTypeAndHopCount")


@contextlib.contextmanager
def enabled(hip: Hip, device: int, peer: int) -> Iterator[None]:
    hip.hipSetDevice(device)
    assert hip.hipDeviceEnablePeerAccess(peer, 0) == SUCCESS
    yield
    hip.hipSetDevice(device)
    assert hip.hipDeviceDisablePeerAccess(peer) == SUCCESS


@CAN
def test_a_null_answer_is_invalid(hip: Hip) -> None:
    assert hip.hipDeviceCanAccessPeer(None, 0, 1) == INVALID_VALUE


@CAN
@pytest.mark.parametrize("device", [0, 99, -5])
def test_a_device_is_not_its_own_peer_checked_before_the_range(hip: Hip, device: int) -> None:
    assert hip.get("hipDeviceCanAccessPeer", c_int, device, device) == 0


@CAN
@pytest.mark.parametrize("pair", [(0, 99), (99, 0), (-1, 0), (0, -1)])
def test_a_bad_device_is_invalid_device(hip: Hip, pair: tuple[int, int]) -> None:
    assert hip.hipDeviceCanAccessPeer(ctypes.byref(c_int()), *pair) == INVALID_DEVICE


@CAN
@pytest.mark.needs("a device out of reach")
def test_the_links_decide(hip: Hip) -> None:
    got = [hip.get("hipDeviceCanAccessPeer", c_int, a, b) for a, b in [(0, 1), (1, 0), (0, 2), (2, 1)]]
    assert got == [1, 1, 0, 0]


@ENABLE
def test_flags_are_invalid_before_all_else(hip: Hip) -> None:
    assert hip.hipDeviceEnablePeerAccess(99, 1) == INVALID_VALUE


@ENABLE
@pytest.mark.parametrize("peer", [-1, 99, 0])
def test_a_bad_peer_or_oneself_is_invalid_device(hip: Hip, peer: int) -> None:
    assert hip.hipDeviceEnablePeerAccess(peer, 0) == INVALID_DEVICE


@ENABLE
@pytest.mark.needs("a device out of reach")
def test_a_peer_out_of_reach_is_invalid_device(hip: Hip) -> None:
    assert hip.hipDeviceEnablePeerAccess(2, 0) == INVALID_DEVICE


@ENABLE
@pytest.mark.needs("peers")
def test_a_second_time_is_already_enabled(hip: Hip) -> None:
    with enabled(hip, 0, 1):
        assert hip.hipDeviceEnablePeerAccess(1, 0) == PEER_ALREADY_ENABLED


@ENABLE
@pytest.mark.needs("peers")
def test_one_direction_only(hip: Hip, simulator: Simulator) -> None:
    touch = simulator.touch
    hip.hipSetDevice(0)
    with hip.buffer(MIB) as on_0:
        hip.hipSetDevice(1)
        with hip.buffer(MIB) as on_1, enabled(hip, 0, 1):
            assert touch(0, on_1, MIB) == 0
            assert touch(1, on_0, MIB) == ILLEGAL_ADDRESS


@ENABLE
@pytest.mark.needs("peers")
def test_allocations_before_and_after_become_reachable(hip: Hip, simulator: Simulator) -> None:
    touch = simulator.touch
    hip.hipSetDevice(1)
    with hip.buffer(MIB) as before, enabled(hip, 0, 1):
        hip.hipSetDevice(1)
        with hip.buffer(MIB) as after:
            assert touch(0, before, MIB) == touch(0, after, MIB) == 0


@ENABLE
@pytest.mark.needs("peers")
def test_the_set_belongs_to_the_device_not_the_thread(hip: Hip) -> None:
    import threading

    codes = []

    def other() -> None:
        hip.hipSetDevice(0)
        codes.append(hip.hipDeviceEnablePeerAccess(1, 0))

    with enabled(hip, 0, 1):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    assert codes == [PEER_ALREADY_ENABLED]


@DISABLE
@pytest.mark.parametrize("peer", [-1, 99, 0])
def test_disable_of_a_bad_peer_or_oneself_is_invalid_device(hip: Hip, peer: int) -> None:
    assert hip.hipDeviceDisablePeerAccess(peer) == INVALID_DEVICE


@DISABLE
@pytest.mark.needs("a device out of reach")
def test_disable_of_a_peer_out_of_reach_is_invalid_device(hip: Hip) -> None:
    assert hip.hipDeviceDisablePeerAccess(2) == INVALID_DEVICE


@DISABLE
@pytest.mark.needs("peers")
def test_disable_without_enable_is_not_enabled(hip: Hip) -> None:
    assert hip.hipDeviceDisablePeerAccess(1) == PEER_NOT_ENABLED
    with enabled(hip, 0, 1):
        pass
    assert hip.hipDeviceDisablePeerAccess(1) == PEER_NOT_ENABLED


@DISABLE
def test_the_context_forms_do_nothing(hip: Hip) -> None:
    assert hip.hipCtxEnablePeerAccess(None, 0) == hip.hipCtxDisablePeerAccess(None) == SUCCESS


def p2p(hip: Hip, attribute: int, source: int, target: int) -> tuple[int, int]:
    value = c_int(55)
    return hip.hipDeviceGetP2PAttribute(ctypes.byref(value), attribute, source, target), value.value


@P2P
def test_p2p_of_bad_arguments(hip: Hip) -> None:
    assert hip.hipDeviceGetP2PAttribute(None, 1, 0, 1) == INVALID_VALUE
    assert p2p(hip, 1, 0, 0)[0] == INVALID_DEVICE
    assert p2p(hip, 1, 0, 99)[0] == INVALID_DEVICE


@P2P
@pytest.mark.needs("peers")
def test_p2p_of_linked_devices(hip: Hip) -> None:
    assert p2p(hip, 9, 0, 1)[0] == INVALID_VALUE
    assert p2p(hip, 1, 0, 1) == (SUCCESS, 1)


@P2P
@pytest.mark.needs("a device out of reach")
def test_p2p_of_devices_that_are_not_linked(hip: Hip) -> None:
    assert [p2p(hip, a, 0, 2)[1] for a in (1, 3)] == [0, 0]


def link(hip: Hip, first: int, second: int) -> tuple[int, int, int]:
    kind, hops = c_uint(55), c_uint(55)
    code = hip.hipExtGetLinkTypeAndHopCount(first, second, ctypes.byref(kind), ctypes.byref(hops))
    return code, kind.value, hops.value


@LINK
def test_link_of_bad_arguments(hip: Hip) -> None:
    out = ctypes.byref(c_uint())
    assert hip.hipExtGetLinkTypeAndHopCount(0, 1, None, out) == INVALID_VALUE
    assert hip.hipExtGetLinkTypeAndHopCount(0, 1, out, None) == INVALID_VALUE
    assert link(hip, 0, 0)[0] == INVALID_VALUE
    assert link(hip, -1, 0)[0] == INVALID_VALUE
    assert link(hip, 0, 99)[0] == INVALID_DEVICE


@LINK
@pytest.mark.needs("a device out of reach")
def test_no_link_has_a_type_of_its_own(hip: Hip) -> None:
    assert link(hip, 0, 2) == (SUCCESS, 0xFFFFFFFF, 0)


@LINK
@pytest.mark.needs("peers")
def test_a_direct_xgmi_link_is_type_4_with_one_hop(hip: Hip, simulator: Simulator) -> None:
    code, kind, hops = link(hip, 0, 1)
    assert (code, kind, hops) == (SUCCESS, 4, 1) or (code == SUCCESS and kind == 2 and hops >= 1)  # or over PCIe
