// hipDeviceGetAttribute and both layouts of the device properties.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "calls/support.hpp"
#include "hip/parse.hpp"

namespace hipsim::calls {
namespace {

constexpr unsigned int number_of_xccs = 10018;

// The compute capability: gfx90a -> 9.0, gfx942 -> 9.4, gfx1100 -> 11.0.
std::pair<int, int> capability(const std::string& arch) {
  const auto digits = arch.starts_with("gfx") ? arch.substr(3, arch.find(':') - 3) : std::string{};
  if (digits.size() < 3) return {0, 0};
  const auto minor = digits.substr(digits.size() - 2, 1);
  return {hip::parse_number<int>(digits.substr(0, digits.size() - 2)).value_or(0),
          static_cast<int>(std::strtol(minor.c_str(), nullptr, 16))};
}

std::string arch_name(const machine& m, int device) {
  const auto& arch = m.shape(device).arch;
  const bool can_xnack = arch == "gfx90a" || arch == "gfx942" || arch == "gfx950";
  if (!can_xnack) return arch;
  return arch + ":sramecc+" + (m.shape(device).xnack ? ":xnack+" : ":xnack-");
}

int pci_part(const std::string& pci, std::size_t at, std::size_t digits) {
  return static_cast<int>(std::strtol(pci.substr(at, digits).c_str(), nullptr, 16));
}

int warp_size(const machine& m, int device) { return capability(m.shape(device).arch).first >= 10 ? 32 : 64; }

// How many dies a device has: one of an MI300 has 38 multiprocessors, one of an MI350 has 32. In CPX mode a
// device is a single die.
int dies(const machine& m, int device) {
  const auto& shape = m.shape(device);
  const int each = shape.arch.starts_with("gfx942") ? 38 : shape.arch.starts_with("gfx950") ? 32 : 0;
  return each == 0 ? 1 : std::max(1, shape.multiprocessors / each);
}

// Attributes that the simulator does not use, but programs print: AMD's numbers for gfx942 and gfx90a.
struct constant {
  unsigned int attribute;
  int value;
};
constexpr int no_limit = 2147483647;
constexpr constant constants[] = {
    {2, 8},         {5, 2'100'000},  {8, 1},          {10, 1},       {11, 1},       {12, 1},
    {14, 1},        {19, 4'194'304}, {20, 1},         {26, 1024},    {27, 1024},    {28, 1024},
    {29, no_limit}, {30, 65536},     {31, 65536},     {56, 1024},    {57, 2048},    {58, no_limit},
    {59, 8192},     {60, 1'300'000}, {70, 4'194'304}, {71, 131'072}, {72, 131'072}, {74, 65536},
    {75, 65536},    {76, 65536},     {78, 1},         {79, 256},     {81, 256},     {82, 256},
    {83, no_limit}, {93, 1},         {10002, 65536},  {10007, 1},    {10008, 1},    {10009, 1},
    {10010, 1},     {10012, 1},      {10013, 1},      {10019, 512},
};
// Only for devices with image instructions, which gfx942 and gfx950 do not have.
constexpr constant image_limits[] = {
    {32, 16384}, {39, 16384}, {41, no_limit}, {42, no_limit}, {43, 16384},
    {44, 16384}, {49, 16384}, {50, 16384},    {51, 8192},
};
// In the headers, but no release supports them.
constexpr unsigned int unsupported[] = {21, 33, 34, 35, 36, 37, 38, 40,    45,    46,    47,   48,
                                        52, 54, 55, 64, 77, 80, 86, 10000, 10001, 10003, 10004};

template <std::size_t Count>
std::optional<int> listed(const constant (&list)[Count], unsigned int attribute) {
  for (const auto& entry : list) {
    if (entry.attribute == attribute) return entry.value;
  }
  return std::nullopt;
}

std::optional<int> compute_limit(const machine& m, unsigned int attribute, int device) {
  const auto& shape = m.shape(device);
  const bool early = !m.rules.keeps_only_errors;  // up to 6.x
  if (attribute == 25) return early ? 2 : 32;     // blocks per multiprocessor
  if (attribute == 76 && early) return 65536 * shape.multiprocessors;
  if (attribute == 10015) return shape.multiprocessors;
  const bool images = !shape.arch.starts_with("gfx942") && !shape.arch.starts_with("gfx950");
  if (const auto limit = listed(image_limits, attribute)) return images ? *limit : 0;
  return listed(constants, attribute);
}

std::optional<int> memory_attribute(const machine& m, hipDeviceAttribute_t attribute, int device) {
  const auto& shape = m.shape(device);
  switch (attribute) {
    case hipDeviceAttributeCanMapHostMemory:
    case hipDeviceAttributeUnifiedAddressing:
    case hipDeviceAttributeHostRegisterSupported:
    case hipDeviceAttributeHostNativeAtomicSupported:
      return 1;
    case hipDeviceAttributeFineGrainSupport:
      return !shape.arch.starts_with("gfx90a");
    case hipDeviceAttributeIsLargeBar:
      return shape.host_visible;
    case hipDeviceAttributeConcurrentManagedAccess:
    case hipDeviceAttributeManagedMemory:
      return m.has_hmm();
    case hipDeviceAttributePageableMemoryAccess:
      return m.has_xnack();
    case hipDeviceAttributeDirectManagedMemAccessFromHost:
    case hipDeviceAttributePageableMemoryAccessUsesHostPageTables:
    case hipDeviceAttributeIntegrated:
      return shape.integrated;
    case hipDeviceAttributeVirtualMemoryManagementSupported:
    case hipDeviceAttributeGPUDirectRDMAWithHipVMM:
      return shape.vmm && m.profile.reports_vmm;
    // The simulator has hipMallocAsync, but no user-defined pools.
    case hipDeviceAttributeMemoryPoolsSupported:
    case hipDeviceAttributeMemoryPoolSupportedHandleTypes:
      return 0;
    case hipDeviceAttributeTotalGlobalMem:
      return static_cast<int>(std::min<std::uint64_t>(shape.memory_bytes, 2147483647));
    default:
      return std::nullopt;
  }
}

std::optional<int> identity_attribute(const machine& m, hipDeviceAttribute_t attribute, int device) {
  const auto& shape = m.shape(device);
  switch (attribute) {
    case hipDeviceAttributeComputeCapabilityMajor:
      return capability(shape.arch).first;
    case hipDeviceAttributeComputeCapabilityMinor:
      return capability(shape.arch).second;
    case hipDeviceAttributeMultiprocessorCount:
      return shape.multiprocessors;
    case hipDeviceAttributePciDomainID:
      return pci_part(shape.pci, 0, 4);
    case hipDeviceAttributePciBusId:
      return pci_part(shape.pci, 5, 2);
    case hipDeviceAttributePciDeviceId:
      return pci_part(shape.pci, 8, 2);
    case hipDeviceAttributeWarpSize:
      return warp_size(m, device);
    default:
      return std::nullopt;
  }
}

// Whether this release has an attribute. Those without a value of their own are 0.
bool is_attribute(const machine& m, unsigned int attribute) {
  if (std::find(std::begin(unsupported), std::end(unsupported), attribute) != std::end(unsupported))
    return false;
  return attribute <= m.rules.last_attribute ||
         (attribute >= 10000 && attribute <= m.rules.last_amd_attribute);
}

template <class Value>
void put(void* base, std::size_t offset, Value value) {
  std::memcpy(static_cast<char*>(base) + offset, &value, sizeof value);
}

void put_text(void* base, std::size_t offset, const std::string& text) {
  std::strncpy(static_cast<char*>(base) + offset, text.c_str(), 255);
}

// Offsets in both layouts of the struct, in bytes, from the headers.
struct layout {
  std::size_t size, total, arch;
};
constexpr layout r0000{792, 256, 396};
constexpr layout r0600{1472, 288, 1160};

// The fields that have the same value as an attribute of hipDeviceGetAttribute.
struct field {
  unsigned int attribute;
  std::size_t in_r0000, in_r0600;
  bool is_long = false;
};
constexpr field fields[] = {
    {3, 388, 400},        {5, 308, 348},
    {8, 360, 576},        {9, 780, 676},
    {16, 652, 396},       {19, 340, 616},
    {23, 328, 360},       {24, 772, 652},
    {26, 284, 324},       {27, 288, 328},
    {28, 292, 332},       {29, 296, 336},
    {30, 300, 340},       {31, 304, 344},
    {56, 280, 320},       {57, 344, 624},
    {59, 316, 612},       {60, 312, 608},
    {58, 712, 312, true}, {61, 332, 364},
    {63, 336, 388},       {65, 784, 672},
    {67, 368, 584},       {68, 372, 588},
    {69, 364, 592},       {71, 272, 304},
    {74, 264, 296, true}, {81, 720, 368, true},
    {82, 728, 376, true}, {83, 320, 352, true},
    {87, 276, 308},       {hipDeviceAttributeIsLargeBar, 764, 1464},
};

int value_of(const machine& m, hipDeviceAttribute_t attribute, int device) {
  if (attribute == number_of_xccs) return dies(m, device);
  auto value = memory_attribute(m, attribute, device);
  if (!value) value = identity_attribute(m, attribute, device);
  if (!value) value = compute_limit(m, attribute, device);
  return value.value_or(0);
}

hipError_t fill(void* prop, int device, const layout& at) {
  if (!prop) return hipErrorInvalidValue;
  const reading m;
  if (!m->is_device(device)) return hipErrorInvalidDevice;
  const auto& shape = m->shape(device);
  std::memset(prop, 0, at.size);
  put_text(prop, 0, shape.name);
  put_text(prop, at.arch, arch_name(*m, device));
  put<std::size_t>(prop, at.total, shape.memory_bytes);
  const bool newer = at.size == r0600.size;
  for (const auto& entry : fields) {
    const int value = value_of(*m, static_cast<hipDeviceAttribute_t>(entry.attribute), device);
    const auto offset = newer ? entry.in_r0600 : entry.in_r0000;
    if (entry.is_long) {
      put(prop, offset, static_cast<std::size_t>(value));
    } else {
      put(prop, offset, value);
    }
  }
  if (newer) std::memcpy(static_cast<char*>(prop) + 256, shape.uuid.data(), 16);
  return hipSuccess;
}

}  // namespace

hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device) {
  if (!value) return hipErrorInvalidValue;
  const reading m;
  if (!m->is_device(device)) return hipErrorInvalidDevice;
  if (!is_attribute(*m, attribute)) return hipErrorInvalidValue;
  *value = value_of(*m, attribute, device);
  return hipSuccess;
}

hipError_t hipDeviceComputeCapability(int* major, int* minor, hipDevice_t device) {
  if (!major || !minor) return hipErrorInvalidValue;
  const reading m;
  if (!m->is_device(device)) return hipErrorInvalidDevice;
  std::tie(*major, *minor) = capability(m->shape(device).arch);
  return hipSuccess;
}

hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* prop, int device) {
  return fill(prop, device, r0600);
}

hipError_t hipGetDeviceProperties(hipDeviceProp_tR0000* prop, int device) {
  return fill(prop, device, r0000);
}

}  // namespace hipsim::calls
