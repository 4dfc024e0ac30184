"""hipMemRangeGetAttribute: what the whole range agrees on."""

import ctypes
from ctypes import c_int

import pytest

from .hip import CPU, INVALID_VALUE, MIB, NOWHERE, SUCCESS, Hip

pytestmark = [pytest.mark.function("hipMemRangeGetAttribute"), pytest.mark.needs("managed")]

READ_MOSTLY, PREFERRED, ACCESSED_BY, LAST_PREFETCH, COHERENCY = 1, 2, 3, 4, 100
HALF = MIB // 2


def ask(hip: Hip, attribute: int, address: int, size: int, data_size: int = 4) -> tuple[int, int]:
    out = (c_int * 8)(*[55] * 8)
    code = hip.hipMemRangeGetAttribute(out, data_size, attribute, address, size)
    return code, out[0]


def accessed_by(hip: Hip, address: int, size: int, slots: int) -> list[int]:
    out = (c_int * slots)(*[55] * slots)
    assert hip.hipMemRangeGetAttribute(out, 4 * slots, ACCESSED_BY, address, size) == SUCCESS
    return list(out)


def test_nulls_and_zeros_are_invalid(hip: Hip) -> None:
    out = ctypes.byref(c_int())
    with hip.managed(MIB) as address:
        assert hip.hipMemRangeGetAttribute(None, 4, 1, address, MIB) == INVALID_VALUE
        assert hip.hipMemRangeGetAttribute(out, 0, 1, address, MIB) == INVALID_VALUE
        assert hip.hipMemRangeGetAttribute(out, 4, 1, None, MIB) == INVALID_VALUE
        assert hip.hipMemRangeGetAttribute(out, 4, 1, address, 0) == INVALID_VALUE


@pytest.mark.parametrize("attribute", [READ_MOSTLY, PREFERRED, LAST_PREFETCH, COHERENCY])
@pytest.mark.parametrize("size", [1, 3, 8])
def test_sizes_other_than_four_are_invalid(hip: Hip, attribute: int, size: int) -> None:
    with hip.managed(MIB) as address:
        assert ask(hip, attribute, address, MIB, size)[0] == INVALID_VALUE


@pytest.mark.parametrize("size", [1, 6])
def test_accessed_by_wants_a_multiple_of_four(hip: Hip, size: int) -> None:
    with hip.managed(MIB) as address:
        assert ask(hip, ACCESSED_BY, address, MIB, size)[0] == INVALID_VALUE


@pytest.mark.parametrize("attribute", [0, 5, 101])
def test_an_unknown_attribute_is_invalid(hip: Hip, attribute: int) -> None:
    with hip.managed(MIB) as address:
        assert ask(hip, attribute, address, MIB)[0] == INVALID_VALUE


def test_more_than_the_allocation_is_invalid(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        assert ask(hip, READ_MOSTLY, address, MIB + 1)[0] == INVALID_VALUE


@pytest.mark.parametrize("attribute", [READ_MOSTLY, PREFERRED, ACCESSED_BY, LAST_PREFETCH])
def test_memory_that_is_not_managed_is_invalid(hip: Hip, attribute: int) -> None:
    with hip.buffer(MIB) as address:
        assert ask(hip, attribute, address, MIB)[0] == INVALID_VALUE


def test_fresh_memory_has_nothing(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        got = [ask(hip, a, address, MIB)[1] for a in (READ_MOSTLY, PREFERRED, LAST_PREFETCH, COHERENCY)]

        assert got == [0, NOWHERE, NOWHERE, 0]


@pytest.mark.parametrize("start", [0, HALF], ids=["first half", "second half"])
def test_read_mostly_is_one_only_if_the_whole_range_has_it(hip: Hip, start: int) -> None:
    with hip.managed(MIB) as address:
        hip.hipMemAdvise(address + start, HALF, 1, 0)

        assert ask(hip, READ_MOSTLY, address + start, HALF)[1] == 1
        assert ask(hip, READ_MOSTLY, address, MIB)[1] == 0


@pytest.mark.parametrize("attribute", [PREFERRED, LAST_PREFETCH])
def test_a_location_is_reported_only_if_the_whole_range_has_it(hip: Hip, attribute: int) -> None:
    def send(address: int, size: int, device: int) -> None:
        if attribute == PREFERRED:
            hip.hipMemAdvise(address, size, 3, device)
        else:
            hip.hipMemPrefetchAsync(address, size, device, None)
        hip.hipDeviceSynchronize()

    with hip.managed(MIB) as address:
        send(address, HALF, 0)
        assert ask(hip, attribute, address, HALF)[1] == 0
        assert ask(hip, attribute, address, MIB)[1] == NOWHERE
        send(address + HALF, HALF, CPU)
        assert ask(hip, attribute, address + HALF, HALF)[1] == CPU
        assert ask(hip, attribute, address, MIB)[1] == NOWHERE
        send(address + HALF, HALF, 0)
        assert ask(hip, attribute, address, MIB)[1] == 0


@pytest.mark.needs("two devices")
def test_accessed_by_lists_devices_in_order_then_nowhere(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        hip.hipMemAdvise(address, MIB, 5, 1)
        hip.hipMemAdvise(address, MIB, 5, 0)

        assert accessed_by(hip, address, MIB, 4) == [0, 1, NOWHERE, NOWHERE]


@pytest.mark.needs("two devices")
def test_advice_that_the_cpu_does_not_access_takes_the_first_device_away(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        for device in (0, 1, CPU):
            assert hip.hipMemAdvise(address, MIB, 5, device) == SUCCESS
        assert hip.hipMemAdvise(address, MIB, 6, CPU) == SUCCESS

        assert accessed_by(hip, address, MIB, 3) == [1, NOWHERE, NOWHERE]


@pytest.mark.needs("two devices")
def test_a_short_accessed_by_array_is_cut(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        hip.hipMemAdvise(address, MIB, 5, 0)
        hip.hipMemAdvise(address, MIB, 5, 1)

        assert accessed_by(hip, address, MIB, 1) == [0]


@pytest.mark.needs("two devices")
@pytest.mark.parametrize("start", [0, HALF], ids=["first half", "second half"])
def test_accessed_by_counts_devices_on_the_whole_range_only(hip: Hip, start: int) -> None:
    with hip.managed(MIB) as address:
        hip.hipMemAdvise(address, MIB, 5, 0)
        hip.hipMemAdvise(address + start, HALF, 5, 1)

        assert accessed_by(hip, address, MIB, 2) == [0, NOWHERE]
        assert accessed_by(hip, address + start, HALF, 2) == [0, 1]


def test_the_cpu_does_not_appear_in_accessed_by(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        hip.hipMemAdvise(address, MIB, 5, CPU)

        assert accessed_by(hip, address, MIB, 2) == [NOWHERE, NOWHERE]


def test_coherency_is_fine_coarse_or_both(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        hip.hipMemAdvise(address, HALF, 100, 0)

        assert [ask(hip, COHERENCY, address, n)[1] for n in (HALF, MIB)] == [1, 2]
        assert ask(hip, COHERENCY, address + HALF, HALF)[1] == 0


def test_coherency_of_ordinary_memory(hip: Hip) -> None:
    with hip.buffer(MIB) as device, hip.pinned(MIB) as host:
        assert ask(hip, COHERENCY, device, MIB) == (SUCCESS, 1)
        assert ask(hip, COHERENCY, host, MIB) == (SUCCESS, 0)


def several(hip: Hip, address: int, size: int, attributes: list[int], null: int | None = None) -> tuple[int, list[int]]:
    values = [c_int(55) for _ in attributes]
    data = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
    if null is not None:
        data[null] = None
    sizes = (ctypes.c_size_t * len(values))(*[4] * len(values))
    wanted = (c_int * len(values))(*attributes)
    code = hip.hipMemRangeGetAttributes(data, sizes, wanted, len(values), address, size)
    return code, [v.value for v in values]


@pytest.mark.function("hipMemRangeGetAttributes")
def test_several_attributes_in_one_call(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        hip.hipMemAdvise(address, MIB, 1, 0)
        hip.hipMemAdvise(address, MIB, 3, 0)

        assert several(hip, address, MIB, [1, 2, 3, 4]) == (SUCCESS, [1, 0, NOWHERE, NOWHERE])


@pytest.mark.function("hipMemRangeGetAttributes")
def test_several_with_a_null_or_a_zero_are_invalid(hip: Hip) -> None:
    one = (ctypes.c_void_p * 1)(ctypes.addressof(c_int()))
    size, attribute = (ctypes.c_size_t * 1)(4), (c_int * 1)(1)
    with hip.managed(MIB) as address:
        assert hip.hipMemRangeGetAttributes(None, size, attribute, 1, address, MIB) == INVALID_VALUE
        assert hip.hipMemRangeGetAttributes(one, None, attribute, 1, address, MIB) == INVALID_VALUE
        assert hip.hipMemRangeGetAttributes(one, size, None, 1, address, MIB) == INVALID_VALUE
        assert hip.hipMemRangeGetAttributes(one, size, attribute, 0, address, MIB) == INVALID_VALUE
        assert hip.hipMemRangeGetAttributes(one, size, attribute, 1, None, MIB) == INVALID_VALUE
        assert hip.hipMemRangeGetAttributes(one, size, attribute, 1, address, 0) == INVALID_VALUE
        assert several(hip, address, MIB, [1, 2], null=1)[0] == INVALID_VALUE


@pytest.mark.function("hipMemRangeGetAttributes")
def test_several_of_unknown_or_device_memory_are_invalid(hip: Hip) -> None:
    with hip.buffer(MIB) as address:
        assert several(hip, address, MIB, [1])[0] == INVALID_VALUE
    here = ctypes.create_string_buffer(4096)
    assert several(hip, ctypes.addressof(here), 4096, [1])[0] == INVALID_VALUE
