// The differences between HIP releases, derived from the version: documented behaviour. Defects of a release
// are in machine_profile::quirks.
#pragma once

#include <cstdint>

#include "memory_file.hpp"
#include "profile.hpp"

namespace hipsim {

struct personality {
  explicit personality(const hip_version& v)
      : keeps_only_errors(v.at_least(7, 0)),
        one_last_error(!v.at_least(6, 4)),
        checks_streams(!v.at_least(7, 0)),
        reserve_bad_size_code(v.at_least(7, 0) ? 1 : 2),
        create_bad_device_code(v.at_least(7, 0) ? 101 : 1),
        address_free_reports_use(v.at_least(6, 3)),
        exports_descriptors(v.at_least(6, 2)),
        range_handles(v.at_least(7, 0)),
        imports_know_handle_type(v.at_least(6, 3)),
        imports_know_owner(v.at_least(7, 15)),
        fabric_handles(v.at_least(7, 14)),
        discards(v.at_least(7, 14)),
        uncached_type(v.at_least(7, 0)),
        host_location(v.at_least(7, 1)),
        numa_locations(v.at_least(7, 15)),
        whole_pieces_only(v.at_least(7, 0)),
        host_access_to_device_memory(v.at_least(7, 2)),
        free_takes_registered(v.at_least(7, 2)),
        free_async_takes_null(v.at_least(7, 0)),
        host_granularity_recommended(v.at_least(7, 15) ? 2 << 20 : page_bytes),
        retain_counts(v.at_least(7, 12)),
        location_calls(v.at_least(7, 1)),
        advise_checks_device_first(!v.at_least(7, 1)),
        register_again_code(v.at_least(7, 15) ? 712 : 0),
        register_too_much_code(v.at_least(7, 15) ? 712 : 1),
        copy_kind_must_fit(v.at_least(7, 15)),
        register_any_low_flags(!v.at_least(7, 0)),
        register_io_memory(!v.at_least(7, 0) || v.at_least(7, 2)),
        uncached_host_flag(v.at_least(7, 0)),
        null_pointer_attributes(v.at_least(7, 0)),
        opens_memory_once(v.at_least(7, 0)),
        pooled_memory_is_virtual(v.at_least(7, 0)),
        single_allocation_within_host_memory(!v.at_least(7, 0)),
        reserve_alignment_in_granules(!v.at_least(6, 2)),
        last_attribute(v.at_least(7, 14)   ? 95
                       : v.at_least(7, 13) ? 94
                       : v.at_least(7, 12) ? 93
                       : v.at_least(7, 0)  ? 92
                                           : 91),
        last_amd_attribute(v.at_least(7, 0) ? 10020 : 10017) {}

  bool keeps_only_errors;  ///< a success leaves the thread's last error unchanged
  bool one_last_error;     ///< hipExtGetLastError is hipGetLastError under another name
  bool checks_streams;     ///< an unknown stream is ContextIsDestroyed instead of undefined
  std::uint32_t reserve_bad_size_code;
  std::uint32_t create_bad_device_code;
  bool address_free_reports_use;  ///< freeing a range that holds mappings fails instead of leaking
  bool exports_descriptors;
  bool range_handles;  ///< hipMemGetHandleForAddressRange exists
  bool imports_know_handle_type;
  bool imports_know_owner;
  bool fabric_handles;  ///< can be requested, but neither exported nor imported
  bool discards;        ///< hipMemDiscardBatchAsync
  bool uncached_type;
  bool host_location;
  bool numa_locations;
  bool whole_pieces_only;  ///< SetAccess and Unmap take whole, and several, pieces
  bool host_access_to_device_memory;
  bool free_takes_registered;  ///< hipFree ends a registration; before, it ends the process
  bool free_async_takes_null;
  std::uint64_t host_granularity_recommended;
  bool retain_counts;
  bool location_calls;  ///< hipMemAdvise_v2 and hipMemPrefetchAsync_v2
  bool advise_checks_device_first;
  std::uint32_t register_again_code;
  std::uint32_t register_too_much_code;
  bool copy_kind_must_fit;  ///< the device's side of a copy must be memory that HIP knows
  bool register_any_low_flags;
  bool register_io_memory;
  bool uncached_host_flag;
  bool null_pointer_attributes;
  bool opens_memory_once;  ///< hipIpcOpenMemHandle of memory that is open returns the same address
  bool pooled_memory_is_virtual;
  bool single_allocation_within_host_memory;
  bool reserve_alignment_in_granules;
  std::uint32_t last_attribute;      ///< the last number shared with CUDA
  std::uint32_t last_amd_attribute;  ///< the last number from 10000 on
};

}  // namespace hipsim
