// Which devices of the machine a process sees: ROCR_, HIP_ and CUDA_VISIBLE_DEVICES.
#include <algorithm>
#include <optional>

#include "hip/parse.hpp"
#include "profile.hpp"

namespace hipsim {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

// "2" or "GPU-<uuid>", the uuid as hex or as the text that ROCm prints.
std::optional<int> position(std::string_view entry, const std::vector<device_profile>& devices,
                            const std::vector<int>& shown) {
  if (entry.starts_with("GPU-")) {
    const auto wanted = lower(entry.substr(4));
    for (std::size_t i = 0; i < shown.size(); ++i) {
      const auto& device = devices[static_cast<std::size_t>(shown[i])];
      if (wanted == device.uuid_in_hex() || wanted == lower(device.uuid)) return static_cast<int>(i);
    }
    return std::nullopt;
  }
  const auto value = hip::parse_number<int>(entry);
  const bool shows = value && *value >= 0 && static_cast<std::size_t>(*value) < shown.size();
  return shows ? value : std::nullopt;
}

void apply_mask(const char* mask, const std::vector<device_profile>& devices, std::vector<int>& shown) {
  if (!mask) return;
  std::vector<int> out;
  std::string_view rest = mask;
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const auto at = position(rest.substr(0, comma), devices, shown);
    if (!at) break;
    const int device = shown[static_cast<std::size_t>(*at)];
    if (std::find(out.begin(), out.end(), device) != out.end()) break;
    out.push_back(device);
    rest = comma == rest.npos ? std::string_view{} : rest.substr(comma + 1);
  }
  shown = std::move(out);
}

}  // namespace

machine_profile visible_part(const machine_profile& machine, const char* rocr_mask, const char* hip_mask,
                             const char* cuda_mask) {
  std::vector<int> shown(machine.devices.size());
  for (std::size_t i = 0; i < shown.size(); ++i) shown[i] = static_cast<int>(i);
  apply_mask(rocr_mask, machine.devices, shown);
  const char* mask = hip_mask && *hip_mask ? hip_mask : cuda_mask;
  if (mask && *mask) apply_mask(mask, machine.devices, shown);  // HIP ignores an empty mask

  machine_profile out = machine;
  out.devices.clear();
  out.links.clear();
  for (std::size_t i = 0; i < shown.size(); ++i) {
    out.devices.push_back(machine.devices[static_cast<std::size_t>(shown[i])]);
    for (std::size_t j = 0; j < shown.size(); ++j) {
      const auto link = machine.links.find({shown[i], shown[j]});
      if (link != machine.links.end()) out.links[{static_cast<int>(i), static_cast<int>(j)}] = link->second;
    }
  }
  return out;
}

}  // namespace hipsim
