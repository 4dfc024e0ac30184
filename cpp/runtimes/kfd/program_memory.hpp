// The memory of the program, which may not be there: read and written as the kernel does, with EFAULT in
// place of a signal.
#pragma once

#include <cerrno>
#include <cstdio>
#include <vector>

#include "abi.hpp"

namespace kfdsim {

/// Copies from the program's memory; false if some of it is not there.
[[nodiscard]] bool read_program(void* to, u64 from, u64 size);
/// Copies into the program's memory; false if some of it is not there, or cannot be written.
[[nodiscard]] bool write_program(u64 to, const void* from, u64 size);

/// Reads an array of the program's. Returns 0, EFAULT, or ENOMEM for an array larger than the kernel would
/// copy.
template <class T>
[[nodiscard]] int read_array(std::vector<T>* out, u64 from, u64 count) {
  constexpr u64 bytes_max = 4 << 20;  // of a kmalloc
  if (count > bytes_max / sizeof(T)) return ENOMEM;
  out->resize(count);
  return read_program(out->data(), from, count * sizeof(T)) ? 0 : EFAULT;
}

/// How many of the bytes from an address on the program has mapped with these PROT_* rights.
[[nodiscard]] u64 accessible(u64 start, u64 size, int protection);

/// A line of /proc/self/maps.
struct map_line {
  u64 begin = 0, end = 0;
  int protection = 0;  ///< PROT_*
  u64 offset = 0;      ///< in its file
  u64 inode = 0;
  const char* path = "";  ///< valid until the next line is read
};

/// Reads /proc/self/maps, whose lines may be of any length.
class map_reader {
 public:
  map_reader();
  ~map_reader();
  map_reader(const map_reader&) = delete;
  map_reader& operator=(const map_reader&) = delete;
  /// Returns false after the last line.
  [[nodiscard]] bool next(map_line* out);

 private:
  std::FILE* file_;
  char* text_ = nullptr;
  std::size_t capacity_ = 0;
};

/// What /proc/self/maps says of a range, which must not wrap around.
struct host_range {
  bool present = true;
  bool readable = true;
  bool writable = true;
  bool of_devices = false;  ///< some of it is a GPU's memory
};
[[nodiscard]] host_range inspect(u64 start, u64 size);

}  // namespace kfdsim
