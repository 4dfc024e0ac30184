"""hipFree, hipHostFree, hipFreeHost: each takes what the others gave."""

import ctypes
from ctypes import c_void_p

import pytest

from .hip import DANGLING, INVALID_VALUE, MIB, NOT_REGISTERED, SUCCESS, Hip, access

FREES = [pytest.param(n, marks=pytest.mark.function(n)) for n in ("hipFree", "hipHostFree", "hipFreeHost")]
every_free = pytest.mark.parametrize("free", FREES)


@every_free
def test_null_is_a_success(hip: Hip, free: str) -> None:
    assert getattr(hip, free)(None) == SUCCESS


@every_free
def test_unknown_memory_is_invalid(hip: Hip, free: str) -> None:
    here = ctypes.create_string_buffer(4096)
    assert getattr(hip, free)(here) == INVALID_VALUE
    assert getattr(hip, free)(DANGLING) == INVALID_VALUE


@every_free
@pytest.mark.parametrize(
    "allocate", [("hipMalloc", MIB), ("hipHostMalloc", MIB, 0), ("hipMallocManaged", MIB, 1)], ids=lambda a: a[0]
)
def test_every_kind_is_freed_once(hip: Hip, free: str, allocate: tuple[object, ...]) -> None:
    address = hip.get(str(allocate[0]), c_void_p, *allocate[1:])

    assert getattr(hip, free)(address) == SUCCESS
    assert getattr(hip, free)(address) == INVALID_VALUE


@every_free
def test_registered_memory_is_invalid(hip: Hip, free: str) -> None:
    """But hipFree ends the registration since 7.2."""
    taken = free == "hipFree" and hip.version >= (7, 2)
    here = ctypes.create_string_buffer(4096)
    assert hip.hipHostRegister(here, 4096, 0) == SUCCESS
    assert getattr(hip, free)(here) == (SUCCESS if taken else INVALID_VALUE)
    assert hip.hipHostUnregister(here) == (NOT_REGISTERED if taken else SUCCESS)


@pytest.mark.function("hipFree")
@pytest.mark.needs("vmm", "handle checks")
def test_mapped_memory_is_invalid(hip: Hip) -> None:
    with hip.mapped(2 * MIB, access(0)) as address:
        assert hip.hipFree(address) == INVALID_VALUE
        assert hip.write(address, b"x") == SUCCESS


@pytest.mark.function("hipFree")
@pytest.mark.needs("handle checks")
def test_an_interior_pointer_is_refused_by_default(hip: Hip) -> None:
    """6.3 frees the whole allocation (quirk free_interior_pointer)."""
    with hip.buffer(MIB) as address:
        assert hip.hipFree(address + 4096) == INVALID_VALUE
