#include "host_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <system_error>
#include <utility>

#include "numa.hpp"

namespace hipplan {
namespace {

constexpr int map_huge_shift = 26;  // linux/mman.h

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

class mapped_pages : public host_memory {
 public:
  /// mapped_bytes: at least size_bytes; huge pages are rounded up.
  mapped_pages(void* address, std::size_t size_bytes, std::size_t mapped_bytes) noexcept
      : host_memory(address, size_bytes), mapped_bytes_(mapped_bytes) {}
  ~mapped_pages() override {
    // Correct in a forked child too: it has its own copy of the mapping.
    if (!stays()) munmap(pointer(), mapped_bytes_);
  }

 private:
  std::size_t mapped_bytes_;
};

/// mmap, with an owner. Throws std::system_error.
std::shared_ptr<host_memory> map_pages(const std::string& what, std::size_t size_bytes,
                                       std::size_t mapped_bytes, int protection, int flags, int file) {
  void* const address = mmap(nullptr, mapped_bytes, protection, flags, file, 0);
  if (address == MAP_FAILED) fail(what);
  try {
    return std::make_shared<mapped_pages>(address, size_bytes, mapped_bytes);
  } catch (...) {
    munmap(address, mapped_bytes);
    throw;
  }
}

std::size_t round_up(std::size_t size_bytes, std::size_t step) {
  return (size_bytes + step - 1) / step * step;
}

struct descriptor {
  int value;
  ~descriptor() {
    if (value >= 0) close(value);
  }
};

}  // namespace

std::shared_ptr<host_memory> map_file(const std::string& path, std::size_t size_bytes, bool read_only) {
  // O_NONBLOCK: otherwise opening a FIFO, which is refused below, would wait for a writer.
  const descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.value < 0) fail(path);
  struct stat facts {};
  if (fstat(file.value, &facts) != 0) fail(path);
  if (!S_ISREG(facts.st_mode)) throw std::invalid_argument(path + " is not a regular file");
  const auto there = static_cast<std::size_t>(facts.st_size);
  if (size_bytes == 0) size_bytes = there;
  if (there == 0) throw std::invalid_argument(path + " is empty");
  if (size_bytes > there) {
    throw std::invalid_argument(path + " has " + std::to_string(there) + " bytes, fewer than the " +
                                std::to_string(size_bytes) + " asked for");
  }
  return map_pages("mmap of " + path, size_bytes, size_bytes, read_only ? PROT_READ : PROT_READ | PROT_WRITE,
                   read_only ? MAP_SHARED : MAP_PRIVATE, file.value);
}

std::shared_ptr<host_memory> map_anonymous(std::size_t size_bytes, int numa_node, huge_pages pages) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  std::size_t whole = size_bytes;
  if (pages == huge_pages::two_mib || pages == huge_pages::one_gib) {
    const int page_bits = pages == huge_pages::two_mib ? 21 : 30;
    flags |= MAP_HUGETLB | page_bits << map_huge_shift;
    whole = round_up(size_bytes, std::size_t{1} << page_bits);
  }
  auto mapped = map_pages("mmap of " + std::to_string(whole) + " bytes", size_bytes, whole,
                          PROT_READ | PROT_WRITE, flags, -1);
  void* const address = reinterpret_cast<void*>(mapped->address());
  if (pages == huge_pages::transparent && madvise(address, whole, MADV_HUGEPAGE) != 0) fail("madvise");
  if (numa_node >= 0) bind_to_node(address, whole, numa_node);
  return mapped;
}

}  // namespace hipplan
