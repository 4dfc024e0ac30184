// hipDeviceGetAttribute and both layouts of the device properties.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "calls/support.hpp"
#include "hip/parse.hpp"

namespace hipsim::calls {
namespace {

constexpr unsigned int image_support = 10014, number_of_xccs = 10018, pci_chip_id = 10020;

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
    {2, 8},         {5, 2'100'000},  {8, 1},          {10, 1},          {11, 1},       {12, 1},
    {14, 1},        {19, 4'194'304}, {20, 1},         {26, 1024},       {27, 1024},    {28, 1024},
    {29, no_limit}, {30, 65536},     {31, 65536},     {56, 1024},       {57, 2048},    {58, no_limit},
    {59, 8192},     {60, 1'300'000}, {70, 4'194'304}, {71, 131'072},    {72, 131'072}, {74, 65536},
    {75, 65536},    {76, 65536},     {78, 1},         {79, 256},        {81, 256},     {82, 256},
    {83, no_limit}, {93, 1},         {10002, 65536},  {10007, 1},       {10008, 1},    {10009, 1},
    {10010, 1},     {10012, 1},      {10013, 1},      {10017, 100'000}, {10019, 512},
};
// Only for devices with image instructions, which gfx942 and gfx950 do not have.
constexpr constant image_limits[] = {
    {32, 16384}, {39, 16384}, {41, no_limit}, {42, no_limit}, {43, 16384},
    {44, 16384}, {49, 16384}, {50, 16384},    {51, 8192},
};
// The PCI device ids of AMD's Instinct GPUs.
constexpr std::pair<const char*, int> chip_ids[] = {
    {"gfx906", 0x66a1}, {"gfx908", 0x738c}, {"gfx90a", 0x740f}, {"gfx942", 0x74a1}, {"gfx950", 0x75a3}};
// In the headers, but no release supports them.
constexpr unsigned int unsupported[] = {21, 33, 34, 35, 36, 37, 38, 40,    45,    46,    47,   48,
                                        52, 54, 55, 64, 77, 80, 86, 10000, 10001, 10003, 10004};

bool has_images(const device_profile& shape) {
  return !shape.arch.starts_with("gfx942") && !shape.arch.starts_with("gfx950");
}

// gfx942 -> 942, gfx90a -> 910.
int arch_number(const std::string& arch) {
  const auto [major, minor] = capability(arch);
  const auto name = arch.substr(0, arch.find(':'));
  const auto stepping = name.empty() ? std::string{} : name.substr(name.size() - 1);
  return major * 100 + minor * 10 + static_cast<int>(std::strtol(stepping.c_str(), nullptr, 16));
}

int chip_id(const std::string& arch) {
  for (const auto& [prefix, id] : chip_ids)
    if (arch.starts_with(prefix)) return id;
  return 0;
}

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
  if (attribute == image_support) return has_images(shape);
  if (attribute == pci_chip_id) return chip_id(shape.arch);
  if (const auto limit = listed(image_limits, attribute)) return has_images(shape) ? *limit : 0;
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
constexpr std::size_t arch_number_in_r0000 = 392;

// Where a field is in each layout; 0: not there.
struct place {
  std::size_t in_r0000, in_r0600;
  bool is_long = false;
};
// The fields that have the same value as an attribute of hipDeviceGetAttribute.
struct field {
  unsigned int attribute;
  place at;
};
constexpr field fields[] = {
    {2, {0, 600}},
    {3, {388, 400}},
    {5, {308, 348}},
    {8, {360, 576}},
    {9, {780, 676}},
    {10, {656, 688}},
    {11, {660, 692}},
    {12, {0, 384}},
    {14, {0, 632}},
    {15, {0, 664}},
    {16, {652, 396}},
    {19, {340, 616}},
    {20, {0, 636}},
    {23, {328, 360}},
    {24, {772, 652}},
    {25, {0, 712}},
    {26, {284, 324}},
    {27, {288, 328}},
    {28, {292, 332}},
    {29, {296, 336}},
    {30, {300, 340}},
    {31, {304, 344}},
    {39, {668, 408}},
    {41, {664, 416}},
    {42, {0, 412}},
    {43, {672, 420}},
    {44, {676, 424}},
    {49, {680, 456}},
    {50, {684, 460}},
    {51, {688, 464}},
    {56, {280, 320}},
    {57, {344, 624}},
    {58, {712, 312, true}},
    {59, {316, 612}},
    {60, {312, 608}},
    {61, {332, 364}},
    {63, {336, 388}},
    {65, {784, 672}},
    {66, {0, 704}},
    {67, {368, 584}},
    {68, {372, 588}},
    {69, {364, 592}},
    {70, {0, 620}},
    {71, {272, 304}},
    {72, {0, 648}},
    {74, {264, 296, true}},
    {75, {0, 696, true}},
    {76, {0, 640, true}},
    {78, {0, 628}},
    {79, {0, 568, true}},
    {81, {720, 368, true}},
    {82, {728, 376, true}},
    {83, {320, 352, true}},
    {87, {276, 308}},
    {88, {0, 744}},
    {90, {0, 728}},
    {91, {0, 760}},
    {10002, {376, 1416, true}},
    {10007, {748, 1448}},
    {10008, {752, 1452}},
    {10009, {756, 1456}},
    {10010, {760, 1460}},
    {hipDeviceAttributeIsLargeBar, {764, 1464}},
    {10012, {768, 1468}},
};
// Fields that are no attributes, with AMD's numbers.
struct constant_field {
  int value;
  place at;
};
constexpr constant_field constant_fields[] = {
    {1'000'000, {352, 1424}},  // the rate of the clock that kernels read
    {0x97ff, {356, 1428}},     // features: hipDeviceArch_t
    {1, {0, 768}},             // events between processes
};
// Limits of images in several layers, and of surfaces, where a device has image instructions.
constexpr constant_field image_fields[] = {
    {16384, {0, 484}}, {8192, {0, 488}},  {16384, {0, 492}}, {16384, {0, 496}},
    {8192, {0, 500}},  {16384, {0, 512}}, {16384, {0, 516}}, {16384, {0, 520}},
    {16384, {0, 524}}, {16384, {0, 528}}, {8192, {0, 532}},  {16384, {0, 536}},
    {8192, {0, 540}},  {16384, {0, 544}}, {16384, {0, 548}}, {8192, {0, 552}},
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
  const auto set = [&](const place& where, int value) {
    const auto offset = newer ? where.in_r0600 : where.in_r0000;
    if (offset == 0) return;
    if (where.is_long) {
      put(prop, offset, static_cast<std::size_t>(value));
    } else {
      put(prop, offset, value);
    }
  };
  for (const auto& entry : fields)
    set(entry.at, value_of(*m, static_cast<hipDeviceAttribute_t>(entry.attribute), device));
  for (const auto& entry : constant_fields) set(entry.at, entry.value);
  if (has_images(shape)) {
    for (const auto& entry : image_fields) set(entry.at, entry.value);
  }
  if (!newer) put(prop, arch_number_in_r0000, arch_number(shape.arch));
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
