// A piece of a layout's memory as views see it: the native base of Python's hipplan.Piece.
//
// It holds no lease itself. Each export takes one: a DLPack capsule, a buffer of the buffer protocol, and the
// array interface of Python's Piece.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings.hpp"
#include "core/leases.hpp"
#include "hip/runtime.hpp"

namespace hipplan {

struct window {
  std::shared_ptr<lease_book> book;
  std::string name;
  std::uintptr_t address;
  std::vector<std::int64_t> shape;
  std::int64_t item_bytes;
  std::string format;  ///< of the struct module; empty: no buffer, for the reason in no_buffer
  std::string no_buffer;
  bool read_only;
  std::uint64_t age;  ///< the book's age when the memory was current

  [[nodiscard]] std::size_t size_bytes() const noexcept;
  [[nodiscard]] lease take(bool by_cpu = true) const {
    return book->take(name, address, size_bytes(), age, by_cpu);
  }
  /// C order; in items, or in bytes.
  [[nodiscard]] std::vector<std::int64_t> strides(std::int64_t unit) const;
};

/// The device and the element type of a capsule, as DLPack's numbers.
struct capsule_kind {
  int device_type;
  int device_id;
  int code;
  int bits;
  bool read_only;
  bool versioned;
};

/// A capsule of the window itself. Throws lease_refused.
[[nodiscard]] py::capsule make_capsule(const window& self, const capsule_kind& kind);
/// A capsule of a copy in ordinary host memory. Throws hip_error, std::bad_alloc, lease_refused.
[[nodiscard]] py::capsule copy_to_host(const window& self, const capsule_kind& kind, hip::runtime& runtime);

/// CPython's functions of the buffer protocol: py::buffer_info has no place for a lease.
int get_buffer(PyObject* object, Py_buffer* view, int flags);
void release_buffer(PyObject* object, Py_buffer* view);

}  // namespace hipplan
