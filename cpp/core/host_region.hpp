// Host memory that hipplan maps itself so that it can be registered. mmap / munmap.
#pragma once

#include <cstdint>
#include <string>

namespace hipplan {

enum class huge_pages { none, transparent, two_mib, one_gib };

/// Not an owner of a HIP object, but one of the journal's all the same: moves only, unmapped once.
class host_region {
 public:
  /// A file, privately (writes stay in this process), or shared when read_only: what CUDA and HIP register.
  /// size_bytes 0: all of it. Throws std::system_error, std::invalid_argument (empty, or shorter than asked).
  [[nodiscard]] static host_region map_file(std::string name, const std::string& path, std::size_t size_bytes,
                                            bool read_only);
  /// Fresh zeroed memory. numa_node -1: wherever the kernel likes. Throws std::system_error.
  [[nodiscard]] static host_region map_anonymous(std::string name, std::size_t size_bytes, int numa_node,
                                                 huge_pages pages);
  host_region(host_region&& other) noexcept;
  host_region& operator=(host_region&&) = delete;
  ~host_region();

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::uintptr_t address() const noexcept { return address_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }

 private:
  host_region(std::string name, void* address, std::size_t size_bytes, std::size_t mapped_bytes);

  std::string name_;
  std::uintptr_t address_;
  std::size_t size_bytes_;
  std::size_t mapped_bytes_;
};

}  // namespace hipplan
