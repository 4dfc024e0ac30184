// The machine profile as the simulator reads it: one key=value per line. Pure data, no HIP types.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hipsim {

struct hip_version {
  int major = 7;
  int minor = 2;
  int patch = 0;

  /// What hipRuntimeGetVersion returns, such as 70253211.
  [[nodiscard]] int number() const { return major * 10'000'000 + minor * 100'000 + patch; }
  [[nodiscard]] bool at_least(int other_major, int other_minor) const {
    return std::pair(major, minor) >= std::pair(other_major, other_minor);
  }
};

struct device_profile {
  std::string name = "Simulated GPU";
  std::string arch = "gfx942";
  std::string pci = "0000:00:00.0";
  std::string uuid;  ///< exactly 16 bytes
  [[nodiscard]] std::string uuid_in_hex() const;
  std::uint64_t memory_bytes = std::uint64_t{64} << 30;
  std::uint64_t in_use_bytes = 0;  ///< used by other processes
  int multiprocessors = 304;
  bool vmm = true;
  bool managed = true;  ///< the driver has HMM
  bool xnack = false;
  bool host_visible = false;  ///< the CPU can access device memory
  bool integrated = false;
  std::uint64_t granularity_minimum = 0;  ///< 0: that of the HIP version
  std::uint64_t granularity_recommended = 0;
};

enum class link_type { none, pcie, xgmi, nvlink };

struct link_profile {
  link_type type = link_type::none;
  int hops = 0;
};

struct machine_profile {
  hip_version version;
  std::uint64_t host_memory_bytes = std::uint64_t{512} << 30;
  int numa_nodes = 1;  ///< of the host
  std::vector<device_profile> devices;
  std::map<std::pair<int, int>, link_profile> links;  ///< directed; absent: not reachable
  std::uint64_t mappings_max = 0;                     ///< 0: no limit
  std::set<std::string> quirks;
  std::uint64_t max_allocation_percent = 100;  ///< largest hipMalloc, in percent of the device's memory
  bool gpu_fault_aborts = false;               ///< a GPU fault ends the process, as on hardware
  bool reports_vmm = true;                     ///< false with HIP_VMEM_MANAGE_SUPPORT=0: the attribute is 0
  std::uint64_t hidden_free_bytes = 0;         ///< HIP_HIDDEN_FREE_MEM: not reported by hipMemGetInfo

  [[nodiscard]] bool linked(int from, int to) const { return links.contains({from, to}); }
};

/// Defects of real releases that a profile can switch on, each with its description in the manual.
struct quirk_description {
  const char* name;
  const char* meaning;
};
[[nodiscard]] const std::vector<quirk_description>& known_quirks();

/// Reads a profile. Throws std::invalid_argument, with the line and the error.
[[nodiscard]] machine_profile parse_profile(std::string_view text);

/// Two linked generic devices of 64 GiB, HIP 7.2.
[[nodiscard]] machine_profile default_profile();

/// The devices that a process sees with ROCR_VISIBLE_DEVICES, then HIP_VISIBLE_DEVICES (or, if that is unset
/// or empty, CUDA_VISIBLE_DEVICES). A null mask shows all; entries from the first invalid one on are ignored.
[[nodiscard]] machine_profile visible_part(const machine_profile& machine, const char* rocr_mask,
                                           const char* hip_mask, const char* cuda_mask);

}  // namespace hipsim
