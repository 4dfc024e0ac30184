// The words of plans and profiles for HIP's numbers; the only place that has both.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "hip/runtime.hpp"
#include "host_memory.hpp"

namespace hipplan {

struct word {
  std::string_view text;
  std::uint64_t number;
};

inline constexpr std::array access_words{
    word{"none", hip::hipMemAccessFlagsProtNone},
    word{"r", hip::hipMemAccessFlagsProtRead},
    word{"rw", hip::hipMemAccessFlagsProtReadWrite},
};
inline constexpr std::array allocation_type_words{
    word{"pinned", hip::hipMemAllocationTypePinned},
    word{"uncached", hip::hipMemAllocationTypeUncached},
};
inline constexpr std::array location_words{
    word{"device", hip::hipMemLocationTypeDevice},
    word{"host", hip::hipMemLocationTypeHost},
    word{"host_numa", hip::hipMemLocationTypeHostNuma},
};
inline constexpr std::array handle_type_words{
    word{"none", hip::hipMemHandleTypeNone},
    word{"posix_fd", hip::hipMemHandleTypePosixFileDescriptor},
};
inline constexpr std::array pinned_words{
    word{"portable", hip::hipHostMallocPortable},
    word{"mapped", hip::hipHostMallocMapped},
    word{"write_combined", hip::hipHostMallocWriteCombined},
    word{"uncached", hip::hipHostMallocUncached},
    word{"numa_user", hip::hipHostMallocNumaUser},
    word{"coherent", hip::hipHostMallocCoherent},
    word{"non_coherent", hip::hipHostMallocNonCoherent},
};
inline constexpr std::array registered_words{
    word{"portable", hip::hipHostRegisterPortable},
    word{"mapped", hip::hipHostRegisterMapped},
    word{"read_only", hip::hipHostRegisterReadOnly},
};
inline constexpr std::array huge_pages_words{
    word{"none", static_cast<std::uint64_t>(huge_pages::none)},
    word{"transparent", static_cast<std::uint64_t>(huge_pages::transparent)},
    word{"2MiB", static_cast<std::uint64_t>(huge_pages::two_mib)},
    word{"1GiB", static_cast<std::uint64_t>(huge_pages::one_gib)},
};
inline constexpr std::array attach_words{
    word{"global", hip::hipMemAttachGlobal},
    word{"host", hip::hipMemAttachHost},
    word{"single", hip::hipMemAttachSingle},
};
inline constexpr std::array advice_words{
    word{"read_mostly", hip::hipMemAdviseSetReadMostly},
    word{"unset_read_mostly", hip::hipMemAdviseUnsetReadMostly},
    word{"preferred_location", hip::hipMemAdviseSetPreferredLocation},
    word{"unset_preferred_location", hip::hipMemAdviseUnsetPreferredLocation},
    word{"accessed_by", hip::hipMemAdviseSetAccessedBy},
    word{"unset_accessed_by", hip::hipMemAdviseUnsetAccessedBy},
    word{"coarse_grain", hip::hipMemAdviseSetCoarseGrain},
    word{"unset_coarse_grain", hip::hipMemAdviseUnsetCoarseGrain},
};
inline constexpr std::array range_attribute_words{
    word{"read_mostly", hip::hipMemRangeAttributeReadMostly},
    word{"preferred_location", hip::hipMemRangeAttributePreferredLocation},
    word{"last_prefetch", hip::hipMemRangeAttributeLastPrefetchLocation},
    word{"coarse_grain", hip::hipMemRangeAttributeCoherencyMode},
};
inline constexpr std::array memory_kind_words{
    word{"unregistered", hip::hipMemoryTypeUnregistered},
    word{"host", hip::hipMemoryTypeHost},
    word{"device", hip::hipMemoryTypeDevice},
    word{"managed", hip::hipMemoryTypeManaged},
};
inline constexpr std::array device_attribute_words{
    word{"concurrent_managed", hip::hipDeviceAttributeConcurrentManagedAccess},
    word{"integrated", hip::hipDeviceAttributeIntegrated},
    word{"managed", hip::hipDeviceAttributeManagedMemory},
    word{"multiprocessors", hip::hipDeviceAttributeMultiprocessorCount},
    word{"xnack", hip::hipDeviceAttributePageableMemoryAccess},
    word{"vmm", hip::hipDeviceAttributeVirtualMemoryManagementSupported},
    word{"rdma", hip::hipDeviceAttributeGPUDirectRDMAWithHipVMM},
    word{"large_bar", hip::hipDeviceAttributeIsLargeBar},
};

inline constexpr std::array link_words{
    // HSA's numbers, which hipExtGetLinkTypeAndHopCount returns
    word{"hypertransport", 0}, word{"qpi", 1}, word{"pcie", 2}, word{"infiniband", 3}, word{"xgmi", 4},
};

/// Throws std::invalid_argument, which lists the known words.
[[nodiscard]] std::uint64_t number_of(std::span<const word> known, std::string_view text);

/// The number as text where it has no word.
[[nodiscard]] std::string text_of(std::span<const word> known, std::uint64_t number);

}  // namespace hipplan
