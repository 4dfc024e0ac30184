"""What AMD's own library does that a test cannot expect of it: it ends the process, or the driver decides.

AMD's library says what HIP is: where a test is wrong about it, the test is mended, with the value of each release.
Here is only what is left: calls that abort or crash inside AMD's code, whose tests get a process of their own, and
answers that are the driver's and not the library's.
"""

from __future__ import annotations

from .differences import DIED, Difference

ABORTS, CRASHES = DIED + "SIGABRT", DIED + "SIGSEGV"

AMD = (
    Difference(
        "hipMemAddressFree of a range with a mapping",
        "Unknown, and the range goes on",
        "Unknown, and the range's record is released all the same: the next use of it ends the process",
        CRASHES,
        {
            "test_mem_address_free.py::test_a_range_with_a_mapping_is_in_use": "",
            "test_mem_address_free.py::test_after_the_failure_the_range_still_works": "",
        },
    ),
    Difference(
        "hipFree of registered memory",
        "InvalidValue",
        "aborts",
        ABORTS,
        {"test_free.py::test_registered_memory_is_invalid": "hipFree$"},
        releases=("6.4",),
    ),
    Difference(
        "hipMemExportToShareableHandle into null",
        "InvalidValue",
        "crashes",
        CRASHES,
        {"test_mem_export_to_shareable_handle.py::test_bad_arguments_are_invalid": ""},
        releases=("6.4",),
    ),
    Difference(
        "hipMemPrefetchAsync of device memory",
        "works, and nothing happens",
        "aborts (where assertions are on, as in Debian's build)",
        ABORTS,
        {"test_mem_prefetch_async.py::test_ordinary_device_memory_passes_and_nothing_happens": ""},
    ),
    Difference(
        "hipMemRangeGetAttribute of device memory: last prefetch",
        "InvalidValue",
        "aborts (where assertions are on, as in Debian's build)",
        ABORTS,
        {"test_mem_range_get_attribute.py::test_memory_that_is_not_managed_is_invalid": "-4$"},
    ),
    Difference(
        "hipMemSetAccess for a device out of reach",
        "InvalidValue",
        "left to the driver",
        "assert 0 == 1",
        {"test_mem_set_access.py::test_a_device_out_of_reach_is_invalid": ""},
    ),
    Difference(
        "hipGetProcAddress of null",
        "InvalidValue",
        "aborts",
        ABORTS,
        {"test_devices.py::test_a_function_by_name": ""},
    ),
    Difference(
        "hipMemRangeGetAttribute past the allocation's end",
        "InvalidValue",
        "not checked",
        "assert 0 == 1",
        {"test_mem_range_get_attribute.py::test_more_than_the_allocation_is_invalid": ""},
        always=False,  # it depends on what lies behind
    ),
    Difference(
        "hipMemSetAccess, flags 2, 4 and 8",
        "InvalidValue",
        "Success",
        "assert 0 == 1",
        {"test_mem_set_access.py::test_bad_flags_are_invalid": ""},
        releases=("6.4",),
    ),
)
"""Of Debian's builds of 6.4.3 and 7.2.4."""
