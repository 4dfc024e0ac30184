#include "profile.hpp"

#include <functional>
#include <stdexcept>

#include "hip/parse.hpp"

namespace hipsim {
namespace {

using hip::parse_number;
using hip::trimmed;

template <class Number>
Number number(std::string_view text) {
  if (const auto value = parse_number<Number>(text); value && *value >= 0) return *value;
  throw std::invalid_argument("'" + std::string(text) + "' is not a number in range");
}

bool flag(std::string_view text) {
  if (text == "0" || text == "1") return text == "1";
  throw std::invalid_argument("'" + std::string(text) + "' is neither 0 nor 1");
}

std::uint64_t granule(std::string_view text) {
  const auto bytes = number<std::uint64_t>(text);
  if (bytes < 4096 || (bytes & (bytes - 1)) != 0) {
    throw std::invalid_argument("a granularity is a power of two of at least 4096 bytes");
  }
  return bytes;
}

hip_version version_from(std::string_view text) {
  hip_version out{0, 0, 0};
  int* const parts[] = {&out.major, &out.minor, &out.patch};
  for (int* part : parts) {
    const auto dot = text.find('.');
    *part = number<int>(text.substr(0, dot));
    text = dot == text.npos ? std::string_view{} : text.substr(dot + 1);
    if (text.empty()) break;
  }
  if (!text.empty() || out.minor > 99 || out.patch > 99'999) {
    throw std::invalid_argument("a HIP version is written major.minor.patch");
  }
  if (!out.at_least(6, 1) || out.major > 7) {
    throw std::invalid_argument("the simulator offers the ABI of HIP 6.1 to 7.x only");
  }
  return out;
}

// 32 hex digits are the bytes; a shorter text is used as it is, as ROCm does with its unique ids.
std::string uuid_from(std::string_view text) {
  std::string bytes;
  if (text.size() == 32) {
    for (std::size_t i = 0; i < text.size(); i += 2) {
      const auto byte = parse_number<unsigned char>(text.substr(i, 2), 16);
      if (!byte) throw std::invalid_argument("a UUID is 32 hex digits or at most 16 characters");
      bytes += static_cast<char>(*byte);
    }
  } else if (text.size() <= 16) {
    bytes = text;
  } else {
    throw std::invalid_argument("a UUID is 32 hex digits or at most 16 characters");
  }
  bytes.resize(16);
  return bytes;
}

std::string pci_from(std::string_view text) {
  const auto part = [&](std::size_t at, std::size_t digits) {
    return text.size() >= at + digits && parse_number<unsigned>(text.substr(at, digits), 16).has_value();
  };
  if (text.size() != 12 || text[4] != ':' || text[7] != ':' || text[10] != '.' || !part(0, 4) ||
      !part(5, 2) || !part(8, 2) || !part(11, 1)) {
    throw std::invalid_argument("a PCI address is written dddd:bb:dd.f");
  }
  return std::string(text);
}

link_profile link_from(std::string_view text) {
  const auto comma = text.find(',');
  const auto type = text.substr(0, comma);
  link_profile out;
  if (type == "xgmi")
    out.type = link_type::xgmi;
  else if (type == "pcie")
    out.type = link_type::pcie;
  else if (type == "nvlink")
    out.type = link_type::nvlink;
  else if (type != "none")
    throw std::invalid_argument("a link is xgmi, nvlink, pcie or none");
  out.hops = comma == text.npos ? 1 : number<int>(text.substr(comma + 1));
  return out;
}

using device_setter = std::function<void(device_profile&, std::string_view)>;

const std::map<std::string_view, device_setter>& device_keys() {
  static const std::map<std::string_view, device_setter> keys = {
      {"name", [](auto& d, auto v) { d.name = v; }},
      {"arch", [](auto& d, auto v) { d.arch = v; }},
      {"pci", [](auto& d, auto v) { d.pci = pci_from(v); }},
      {"uuid", [](auto& d, auto v) { d.uuid = uuid_from(v); }},
      {"memory", [](auto& d, auto v) { d.memory_bytes = number<std::uint64_t>(v); }},
      {"in_use", [](auto& d, auto v) { d.in_use_bytes = number<std::uint64_t>(v); }},
      {"multiprocessors", [](auto& d, auto v) { d.multiprocessors = number<int>(v); }},
      {"vmm", [](auto& d, auto v) { d.vmm = flag(v); }},
      {"managed", [](auto& d, auto v) { d.managed = flag(v); }},
      {"xnack", [](auto& d, auto v) { d.xnack = flag(v); }},
      {"host_visible", [](auto& d, auto v) { d.host_visible = flag(v); }},
      {"integrated", [](auto& d, auto v) { d.integrated = flag(v); }},
      {"granularity_minimum", [](auto& d, auto v) { d.granularity_minimum = granule(v); }},
      {"granularity_recommended", [](auto& d, auto v) { d.granularity_recommended = granule(v); }},
  };
  return keys;
}

// The n of "device.n.key" or "link.n.m": less than 64, so that a set of devices fits in a word.
int ordinal(std::string_view text) {
  const int value = number<int>(text);
  if (value >= 64) throw std::invalid_argument("the simulator knows devices 0 to 63");
  return value;
}

bool is_quirk(std::string_view name) {
  for (const auto& quirk : known_quirks()) {
    if (quirk.name == name) return true;
  }
  return false;
}

void set_device_key(machine_profile& machine, std::string_view rest, std::string_view value) {
  const auto dot = rest.find('.');
  if (dot == rest.npos) throw std::invalid_argument("expected device.N.KEY");
  const auto setter = device_keys().find(rest.substr(dot + 1));
  if (setter == device_keys().end()) throw std::invalid_argument("unknown device key");
  const auto index = static_cast<std::size_t>(ordinal(rest.substr(0, dot)));
  if (index > machine.devices.size())
    throw std::invalid_argument("devices are listed from 0 on, without gaps");
  if (index == machine.devices.size()) machine.devices.emplace_back();
  setter->second(machine.devices[index], value);
}

void set_link(machine_profile& machine, std::string_view rest, std::string_view value) {
  const auto dot = rest.find('.');
  if (dot == rest.npos) throw std::invalid_argument("expected link.FROM.TO");
  const std::pair ends(ordinal(rest.substr(0, dot)), ordinal(rest.substr(dot + 1)));
  const auto link = link_from(value);
  if (link.type == link_type::none) {
    machine.links.erase(ends);
  } else {
    machine.links[ends] = link;
  }
}

void set_key(machine_profile& machine, std::string_view key, std::string_view value) {
  if (key == "hip_version") {
    machine.version = version_from(value);
  } else if (key == "host_memory") {
    machine.host_memory_bytes = number<std::uint64_t>(value);
  } else if (key == "numa_nodes") {
    machine.numa_nodes = number<int>(value);
  } else if (key == "limit.mappings") {
    machine.mappings_max = number<std::uint64_t>(value);
  } else if (key == "option.max_allocation_percent") {
    machine.max_allocation_percent = number<std::uint64_t>(value);
  } else if (key == "option.gpu_fault_aborts") {
    machine.gpu_fault_aborts = flag(value);
  } else if (key.starts_with("quirk.")) {
    const std::string quirk(key.substr(6));
    if (!is_quirk(quirk)) throw std::invalid_argument("there is no quirk " + quirk);
    if (flag(value)) {
      machine.quirks.insert(quirk);
    } else {
      machine.quirks.erase(quirk);
    }
  } else if (key.starts_with("device.")) {
    set_device_key(machine, key.substr(7), value);
  } else if (key.starts_with("link.")) {
    set_link(machine, key.substr(5), value);
  } else {
    throw std::invalid_argument("unknown key");
  }
}

// Sets what the text omits: identities that differ from device to device, granularity by HIP version.
void fill_defaults(machine_profile& machine) {
  for (std::size_t i = 0; i < machine.devices.size(); ++i) {
    auto& device = machine.devices[i];
    char text[32];
    if (device.uuid.empty()) {
      std::snprintf(text, sizeof text, "51a0000000000%03zx", i);
      device.uuid = std::string(text, 16);
    }
    if (device.pci == device_profile{}.pci) {
      std::snprintf(text, sizeof text, "0000:%02zx:00.0", i + 1);
      device.pci = text;
    }
    if (device.granularity_minimum == 0) device.granularity_minimum = 4096;
    if (device.granularity_recommended == 0) {
      device.granularity_recommended = machine.version.at_least(7, 11) ? std::uint64_t{2} << 20 : 4096;
    }
    if (device.granularity_recommended < device.granularity_minimum) {
      device.granularity_recommended = device.granularity_minimum;
    }
  }
  for (const auto& [ends, link] : machine.links) {
    const auto last = std::max(ends.first, ends.second);
    if (static_cast<std::size_t>(last) >= machine.devices.size() || ends.first == ends.second) {
      throw std::invalid_argument("link." + std::to_string(ends.first) + "." + std::to_string(ends.second) +
                                  " does not join two devices of this machine");
    }
  }
}

}  // namespace

std::string device_profile::uuid_in_hex() const {
  std::string out;
  char digits[3];
  for (const unsigned char byte : uuid) {
    std::snprintf(digits, sizeof digits, "%02x", byte);
    out += digits;
  }
  return out;
}

machine_profile parse_profile(std::string_view text) {
  machine_profile machine;
  for (int line_number = 1; !text.empty(); ++line_number) {
    const auto end = text.find('\n');
    auto line = text.substr(0, end);
    text = end == text.npos ? std::string_view{} : text.substr(end + 1);
    line = trimmed(line.substr(0, line.find('#') == 0 ? 0 : line.npos));
    if (line.empty()) continue;
    const auto equals = line.find('=');
    try {
      if (equals == line.npos) throw std::invalid_argument("expected key=value");
      // A comment at the end of a line follows two blanks; names may contain a '#'.
      const auto value = line.substr(equals + 1, line.find("  #", equals) - equals - 1);
      set_key(machine, trimmed(line.substr(0, equals)), trimmed(value));
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument("profile line " + std::to_string(line_number) + " '" + std::string(line) +
                                  "': " + error.what());
    }
  }
  fill_defaults(machine);
  return machine;
}

machine_profile default_profile() {
  machine_profile machine;
  machine.version = {7, 2, 53211};
  machine.devices.resize(2);
  machine.links[{0, 1}] = machine.links[{1, 0}] = {link_type::xgmi, 1};
  fill_defaults(machine);
  return machine;
}

}  // namespace hipsim
