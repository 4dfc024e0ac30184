// Host memory to register: hipplan's own pages, or the caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace hipplan {

/// Kept by the registering owner until it is unregistered.
class host_memory {
 public:
  host_memory(void* address, std::size_t size_bytes) noexcept : address_(address), size_bytes_(size_bytes) {}
  host_memory(const host_memory&) = delete;
  host_memory& operator=(const host_memory&) = delete;
  virtual ~host_memory() = default;

  [[nodiscard]] std::uintptr_t address() const noexcept { return reinterpret_cast<std::uintptr_t>(address_); }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  /// Keeps it until the process ends: a device may still reach it.
  void stay() noexcept { stay_ = true; }

 protected:
  [[nodiscard]] void* pointer() const noexcept { return address_; }
  [[nodiscard]] bool stays() const noexcept { return stay_; }

 private:
  void* address_;
  std::size_t size_bytes_;
  bool stay_ = false;
};

enum class huge_pages { none, transparent, two_mib, one_gib };

/// Maps a file privately (writes stay in this process), or shared when read_only: CUDA and HIP can register
/// both. size_bytes 0: the whole file. Throws std::system_error, std::invalid_argument (empty, or too short).
[[nodiscard]] std::shared_ptr<host_memory> map_file(const std::string& path, std::size_t size_bytes,
                                                    bool read_only);
/// Maps zeroed memory. numa_node -1: the kernel chooses. Throws std::system_error.
[[nodiscard]] std::shared_ptr<host_memory> map_anonymous(std::size_t size_bytes, int numa_node,
                                                         huge_pages pages);

}  // namespace hipplan
