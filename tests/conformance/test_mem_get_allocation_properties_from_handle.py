"""hipMemGetAllocationPropertiesFromHandle: what create was given."""

import ctypes

import pytest

from .hip import DANGLING, INVALID_VALUE, PIECE, POSIX_FD, AllocationProp, Hip, prop

pytestmark = [
    pytest.mark.function("hipMemGetAllocationPropertiesFromHandle"),
    pytest.mark.needs("vmm"),
]


def test_nulls_are_invalid(hip: Hip) -> None:
    assert hip.hipMemGetAllocationPropertiesFromHandle(None, DANGLING) == INVALID_VALUE
    out = AllocationProp()
    assert hip.hipMemGetAllocationPropertiesFromHandle(ctypes.byref(out), None) == INVALID_VALUE


@pytest.mark.needs("handle checks")
def test_what_is_no_handle_is_invalid(hip: Hip) -> None:
    out = AllocationProp()
    assert hip.hipMemGetAllocationPropertiesFromHandle(ctypes.byref(out), DANGLING) == INVALID_VALUE


@pytest.mark.needs("two devices", "export")
def test_it_returns_the_properties_of_the_create(hip: Hip) -> None:
    wanted = prop(1, handle=POSIX_FD)
    wanted.rdma, wanted.usage = 1, 0
    with hip.allocation(PIECE, wanted) as handle:
        got = hip.get("hipMemGetAllocationPropertiesFromHandle", AllocationProp, handle)

    assert (got.type, got.handle_type) == (wanted.type, wanted.handle_type)
    assert (got.location.type, got.location.id) == (1, 1)
    assert got.rdma == 1
