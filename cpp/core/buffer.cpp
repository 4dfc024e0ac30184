#include "buffer.hpp"

namespace hipplan {

std::string described_buffer(const char* kind, const std::string& name, std::size_t size_bytes) {
  return std::string(kind) + " buffer '" + name + "' of " + std::to_string(size_bytes) + " bytes";
}

std::string described_buffer(const char* kind, const buffer& owner) {
  return described_buffer(kind, owner.name(), owner.size_bytes()) + " at " + hexadecimal(owner.address());
}

std::string sized(std::size_t size_bytes, device_id device) {
  return "size=" + std::to_string(size_bytes) + " on " + text(device);
}

}  // namespace hipplan
