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
        "hipFree of registered memory",
        "InvalidValue",
        "works: it is unregistered",
        "assert 0 == 1",
        {"test_free.py::test_registered_memory_is_invalid": "hipFree$"},
        releases=("7.2",),
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
        "A copy over pieces of several devices",
        "works",
        "is run by one GPU, which faults where it has no access",
        ABORTS,
        {"test_mem_map.py::test_one_reservation_holds_pieces_of_several_devices": ""},
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
        "hipDevicePrimaryCtxGetState after hipDevicePrimaryCtxRetain",
        "active",
        "not active",
        "assert 0 == 1",
        {"test_contexts.py::test_retain_and_release_show_in_the_state": ""},
    ),
    Difference(
        "hipCtxSynchronize",
        "Success",
        "NotSupported",
        "assert 801 == 0",
        {"test_contexts.py::test_setting_a_context_current_chooses_its_device": ""},
    ),
    Difference(
        "hipGetProcAddress of null",
        "InvalidValue",
        "aborts",
        ABORTS,
        {"test_devices.py::test_a_function_by_name": ""},
    ),
    Difference(
        "hipExtGetLastError a second time",
        "the same error",
        "Success: it is returned once",
        "assert 0 == 101",
        {"test_errors.py::test_ext_is_the_last_command_s_own_result_since_7_0": ""},
        releases=("7.2",),
    ),
    Difference(
        "hipHostGetFlags of registered memory",
        "the flags given",
        "InvalidValue",
        "hipHostGetFlags: 1",
        {"test_host_register.py::test_registered_memory_has_a_device_pointer_and_flags": ""},
    ),
    Difference(
        "hipMemPrefetchAsync_v2 to an unknown type of location",
        "InvalidValue",
        "Success",
        "assert 0 == 1",
        {"test_mem_prefetch_async.py::test_v2_refuses_flags_and_unknown_locations": ""},
        releases=("7.2",),
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
    Difference(
        "hipMemSetAccess for the host, of device memory",
        "InvalidValue before 10.0",
        "Success",
        "assert 0 == 1",
        {"test_mem_set_access.py::test_the_host_may_have_host_memory_only_before_10_0": ""},
        releases=("7.2",),
    ),
    Difference(
        "hipMemcpyAsync of nothing with an unknown kind",
        "Success",
        "InvalidMemcpyDirection",
        "assert 21 == 0",
        {"test_memcpy.py::test_nothing_is_a_success_before_all_checks": "hipMemcpyAsync$"},
    ),
    Difference(
        "hipExtGetLinkTypeAndHopCount of devices that are not linked",
        "InvalidHandle",
        "Success, type 0xFFFFFFFF",
        "assert 0 == 400",
        {"test_peer_access.py::test_no_link_is_an_invalid_handle": ""},
    ),
    Difference(
        "hipDeviceGetP2PAttribute of devices that are not linked: native atomics",
        "0",
        "what the driver says of the way over PCIe",
        r"\[0, 1, 0\] == \[0, 0, 0\]",
        {"test_peer_access.py::test_p2p_of_devices_that_are_not_linked": ""},
    ),
    Difference(
        "hipPointerGetAttributes of null into null",
        "Success since 7.0",
        "InvalidValue",
        "assert 1 == 0",
        {"test_pointer_get_attributes.py::test_null_is_invalid_up_to_6_x_and_a_success_since_7_0": ""},
        releases=("7.2",),
    ),
    Difference(
        "hipMemPtrGetInfo of null",
        "InvalidValue",
        "crashes",
        CRASHES,
        {"test_pointer_get_attributes.py::test_the_size_of_an_allocation": ""},
        releases=("6.4",),
    ),
    Difference(
        "hipMemPtrGetInfo of null",
        "InvalidValue",
        "Success",
        "assert 0 == 1",
        {"test_pointer_get_attributes.py::test_the_size_of_an_allocation": ""},
        releases=("7.2",),
    ),
)
"""Of Debian's builds of 6.4.3 and 7.2.4."""
