"""Where CUDA answers otherwise than HIP, and what AMD's library does to a process: declared, held by the suite, shown
in docs/hardware.md and docs/amd.md.

On the runtime in question each test named here must fail, and with the answer of its row; one that passes, or fails in
another way, is reported. So no table can hide a mistake or grow stale.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

DIED = "the process died: "
"""Prefix of an answer for a call that ended by a signal: the signal follows."""
UNCACHED_IS_NONE = "NotSupported: CUDA has no such memory"
COARSE_IS_NONE = "NotSupported: CUDA does not know coherency of a range"


@dataclass(frozen=True, slots=True)
class Difference:
    """One answer, and the tests that see it."""

    call: str
    """The function, and with what."""
    hip: str
    here: str
    answer: str
    """A regular expression that the failed assertion's message must hold: what was got, against what HIP gives."""
    tests: dict[str, str]
    """file.py::test -> a regular expression that the test's parameters must hold."""
    always: bool = True
    """False: seen in some runs and not in others; then the tests may pass."""
    releases: tuple[str, ...] = ()
    """The releases that answer so; empty: all of them."""

    @property
    def ends_the_process(self) -> bool:
        """Then its tests have a process each."""
        return self.answer.startswith(DIED)


CUDA = (
    Difference(
        "hipMemMap of less than the handle's size",
        "works",
        "NotSupported: hipplan maps whole allocations there, and refuses the rest before the first call",
        "hipMemMap: 801",
        {
            "test_mem_map.py::test_less_than_the_handle_may_be_mapped_from_its_start": "",
        },
    ),
    Difference(
        "hipMemAddressFree with a size other than the reserved one",
        "frees the whole range",
        "InvalidValue: base and size must be the reservation's",
        "assert 1 == 0",
        {
            "test_mem_address_free.py::test_the_size_is_ignored": "",
        },
    ),
    Difference(
        "hipMemAddressFree of a range with a mapping",
        "Unknown",
        "InvalidValue",
        "assert 1 == 999",
        {
            "test_mem_address_free.py::test_a_range_with_a_mapping_is_in_use": "",
        },
    ),
    Difference(
        "hipMemCreate and its granularity, type Uncached",
        "works since 7.0",
        UNCACHED_IS_NONE,
        "assert 801 == 0",
        {
            "test_mem_create.py::test_uncached_memory_exists_since_7_0": "",
            "test_mem_get_allocation_granularity.py::test_uncached_and_host_follow_the_release": "",
        },
    ),
    Difference(
        "hipMemCreate of a size that is no multiple of the granularity",
        "passes HIP; the layer below it returns OutOfMemory",
        "InvalidValue",
        "assert 1 == 2",
        {
            "test_mem_create.py::test_half_a_page_passes_hip_and_fails_below_it": "",
            "test_mem_create.py::test_more_than_the_host_s_memory_is_out_of_memory_even_off_the_alignment": "",
        },
    ),
    Difference(
        "hipMemSetAccess over two reservations that happen to touch",
        "InvalidValue",
        "works: the driver does not report where a reservation ends",
        "assert 0 == 1",
        {
            "test_mem_set_access.py::test_the_range_must_be_in_one_reservation": "",
        },
    ),
    Difference(
        "hipMemSetAccess with a bad descriptor behind a good one",
        "the good one stays applied",
        "nothing is applied",
        "assert 0 == 3",
        {
            "test_mem_set_access.py::test_descriptors_before_a_bad_one_stay_applied": "",
        },
    ),
    Difference(
        "hipMemSetAccess for the host, of device memory",
        "works since 7.2",
        "NotSupported",
        "assert 801 == 0",
        {
            "test_mem_set_access.py::test_the_host_may_have_host_memory_only_before_10_0": "",
        },
    ),
    Difference(
        "hipMemAdvise, coarse grain (100, 101)",
        "works",
        COARSE_IS_NONE,
        "assert 801 == 0|hipMemRangeGetAttribute: 801",
        {
            "test_mem_advise.py::test_every_advice_is_taken_for_the_cpu_and_a_device": r"10[01]$",
            "test_mem_advise.py::test_the_flags_do_not_disturb_one_another": "",
        },
    ),
    Difference(
        "hipMemRangeGetAttribute, coherency (100)",
        "fine, coarse or both",
        COARSE_IS_NONE + "; what was in the answer stays",
        r"55|801",
        {
            "test_mem_range_get_attribute.py::test_fresh_memory_has_nothing": "",
            "test_mem_range_get_attribute.py::test_coherency_is_fine_coarse_or_both": "",
            "test_mem_range_get_attribute.py::test_coherency_of_ordinary_memory": "",
        },
    ),
    Difference(
        "hipMemRangeGetAttribute, accessed by, after advice for the CPU",
        "the CPU does not appear",
        "-1, behind the devices",
        r"\[-1, -2\] == \[-2, -2\]",
        {
            "test_mem_range_get_attribute.py::test_the_cpu_does_not_appear_in_accessed_by": "",
        },
    ),
    Difference(
        "hipMemAdvise, UnsetAccessedBy for the CPU",
        "takes the first device away",
        "takes the CPU away, as it says",
        r"assert \[0, 1, -2\] == \[1, -2, -2\]",
        {
            "test_mem_range_get_attribute.py::test_advice_that_the_cpu_does_not_access_takes_the_first_device_away": "",
        },
    ),
    Difference(
        "hipMemRangeGetAttribute, accessed by, after advice for a part of the range",
        "only devices advised for the whole range",
        "a device advised for its first half appeared too, in one run of three",
        r"\[0, 1\] == \[0, -2\]",
        {
            "test_mem_range_get_attribute.py::test_accessed_by_counts_devices_on_the_whole_range_only": "",
        },
        always=False,
    ),
    Difference(
        "hipMemPrefetchAsync of memory that is not managed",
        "hipMalloc's passes, the caller's own is NotSupported",
        "InvalidValue",
        "assert 1 == (0|801)",
        {
            "test_mem_prefetch_async.py::test_ordinary_device_memory_passes_and_nothing_happens": "",
            "test_mem_prefetch_async.py::test_pageable_memory_to_a_device_is_not_supported_without_xnack": "",
        },
    ),
    Difference(
        "hipHostMalloc, uncached together with a coherency flag",
        "InvalidValue since 7.0",
        "works: the bit is ignored",
        "assert 0 == 1",
        {
            "test_host_malloc.py::test_uncached_with_either_is_invalid_since_7_0": "",
        },
    ),
    Difference(
        "hipHostGetFlags",
        "the flags given",
        "CUDA's: Mapped is always among them, coherency never",
        r"assert [23] == (0|1|1073741824)",
        {
            "test_host_malloc.py::test_the_flags_are_reported": r"(^|-)(0|1|1073741824)$",
        },
    ),
    Difference(
        "hipPointerGetAttributes, allocationFlags of registered memory",
        "the flags given",
        "Mapped is always among them",
        r", 3\) == \(.*, 1\)",
        {
            "test_pointer_get_attributes.py::test_registered_memory": "",
        },
    ),
    Difference(
        "hipHostRegister of registered memory",
        "Success, and the first record is lost",
        "HostMemoryAlreadyRegistered (712)",
        r"assert \[0, 712, 0, 713\] == ",
        {
            "test_host_register.py::test_the_same_pointer_again_is_a_success_and_one_registration": "",
        },
    ),
    Difference(
        "hipHostRegister, not coherent",
        "works since 7.0",
        UNCACHED_IS_NONE,
        "assert 801 == 0",
        {
            "test_host_register.py::test_non_coherent_came_with_7_0": "",
        },
    ),
    Difference(
        "hipHostRegister of more memory than exists",
        "InvalidValue",
        "NotSupported",
        "assert 801 == 1",
        {
            "test_host_register.py::test_what_cannot_be_pinned_is_invalid": "",
        },
    ),
    Difference(
        "hipMemcpy's kind",
        "must fit the addresses",
        "only its range is checked: the addresses decide",
        "assert 0 == 1",
        {
            "test_memcpy.py::test_a_device_kind_between_host_pointers_is_invalid": "",
        },
    ),
    Difference(
        "hipGetDevicePropertiesR0600",
        "every field",
        "name, uuid, totalGlobalMem, gcnArchName (`sm_90`); zeros elsewhere",
        r"\(0, 0\) == \(\d+, \d+\)",
        {
            "test_devices.py::test_properties_agree_with_the_single_questions": "",
        },
    ),
)


def declared(rows: Iterable[Difference], test: str) -> Difference | None:
    """The row of a test: `file.py::name[parameters]`."""
    name, _, parameters = test.partition("[")
    result = (row for row in rows if name in row.tests and re.search(row.tests[name], parameters.rstrip("]")))
    return next(result, None)


def as_declared(row: Difference, message: str) -> bool:
    """Whether a failed assertion shows the row's answer."""
    return re.search(row.answer, message) is not None


def table(rows: Iterable[Difference], whose: str) -> str:
    """For a page of docs/."""
    lines = [f"| call | HIP | {whose} |", "|---|---|---|"]
    for row in rows:
        of = f" ({' and '.join(row.releases)})" if row.releases else ""
        lines.append(f"| {row.call} | {row.hip} | {row.here}{of} |")
    return "\n".join(lines)
