// Host memory that hipplan maps itself so that it can be registered. mmap / munmap.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace hipplan {

enum class huge_pages { none, transparent, two_mib, one_gib };

/// Mapped pages, unmapped by whoever has them last.
class host_pages {
 public:
  host_pages(void* address, std::size_t size_bytes) noexcept : address_(address), size_bytes_(size_bytes) {}
  host_pages(const host_pages&) = delete;
  host_pages& operator=(const host_pages&) = delete;
  ~host_pages();
  /// Until the process ends: a device may still reach them.
  void stay() noexcept { stay_ = true; }
  [[nodiscard]] void* address() const noexcept { return address_; }

 private:
  void* address_;
  std::size_t size_bytes_;
  bool stay_ = false;
};

/// Not an owner of a HIP object, but one of the journal's all the same.
class host_region {
 public:
  /// A file, privately (writes stay in this process), or shared when read_only: what CUDA and HIP register.
  /// size_bytes 0: all of it. Throws std::system_error, std::invalid_argument (empty, or shorter than asked).
  [[nodiscard]] static host_region map_file(std::string name, const std::string& path, std::size_t size_bytes,
                                            bool read_only);
  /// Fresh zeroed memory. numa_node -1: wherever the kernel likes. Throws std::system_error.
  [[nodiscard]] static host_region map_anonymous(std::string name, std::size_t size_bytes, int numa_node,
                                                 huge_pages pages);
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::uintptr_t address() const noexcept {
    return reinterpret_cast<std::uintptr_t>(pages_->address());
  }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] const std::shared_ptr<host_pages>& pages() const noexcept { return pages_; }

 private:
  host_region(std::string name, std::shared_ptr<host_pages> pages, std::size_t size_bytes)
      : name_(std::move(name)), pages_(std::move(pages)), size_bytes_(size_bytes) {}

  std::string name_;
  std::shared_ptr<host_pages> pages_;
  std::size_t size_bytes_;
};

}  // namespace hipplan
