// The leases on a layout's memory: which views of it exist.
//
// A view handed to NumPy, PyTorch or CuPy holds a lease, which the view's own deleter ends: from any thread,
// at any time, without Python's GIL and without a driver call. Before memory is freed it is barred from new
// leases, which is refused while there are leases on it. One lock decides which comes first.
//
// A layout that changes in place may get new memory at the same addresses. So a bar that is settled refuses
// only handles from before: each state of a layout has a number, its age.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace hipplan {

/// The memory is barred, or another process's: no new view may use it.
class lease_refused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The memory of a lease.
struct leased {
  std::string name;  ///< the plan's name for the object
  std::uintptr_t address;
  std::size_t size_bytes;
  bool by_cpu;  ///< the CPU uses it; else a device

  [[nodiscard]] bool overlaps(std::uintptr_t at, std::size_t bytes) const noexcept {
    return address < at + bytes && at < address + size_bytes;
  }
};

class lease;

class lease_book : public std::enable_shared_from_this<lease_book> {
 public:
  lease_book();
  /// How many times bars were settled. A handle to memory as it is now has this age.
  [[nodiscard]] std::uint64_t age() const;
  /// Throws lease_refused if a part of the range is barred, or was freed after `age`, and in a forked child.
  [[nodiscard]] lease take(std::string name, std::uintptr_t address, std::size_t size_bytes,
                           std::uint64_t age, bool by_cpu = true);
  [[nodiscard]] std::vector<leased> overlapping(std::uintptr_t address, std::size_t size_bytes) const;
  /// Returns the leases on a range, and bars the range if there are none, or with `force`.
  /// spares_devices: leases of devices stay, and are not counted.
  std::vector<leased> bar(std::uintptr_t address, std::size_t size_bytes, bool force,
                          bool spares_devices = false);
  /// Removes the latest bar of exactly this range that is not settled, if any.
  void unbar(std::uintptr_t address, std::size_t size_bytes);
  /// The barred memory was freed: from now on the bars refuse only older handles. A new age begins.
  void settle() noexcept;
  [[nodiscard]] std::size_t size() const;

 private:
  friend class lease;
  struct bar_on {
    std::uintptr_t address;
    std::size_t size_bytes;
    std::uint64_t against = 0;  ///< once it is settled: refuses handles of this age or older

    [[nodiscard]] bool overlaps(std::uintptr_t at, std::size_t bytes) const noexcept {
      return address < at + bytes && at < address + size_bytes;
    }
    [[nodiscard]] bool covers(const bar_on& other) const noexcept {
      return address <= other.address && other.address + other.size_bytes <= address + size_bytes;
    }
  };

  void end_lease(std::list<leased>::iterator which) noexcept;

  const unsigned process_;  ///< that owns the book
  mutable std::mutex mutex_;
  std::list<leased> out_;       // a list: erasing neither throws nor moves the others
  std::vector<bar_on> barred_;  ///< not settled; few, but for a change that frees much
  std::vector<bar_on> freed_;   ///< settled, the oldest first
  std::uint64_t age_ = 0;
};

/// Move-only; the destructor ends it.
class lease {
 public:
  lease(lease&& other) noexcept : book_(std::move(other.book_)), which_(other.which_) {}
  lease& operator=(lease&&) = delete;
  ~lease() {
    if (book_) book_->end_lease(which_);
  }

 private:
  friend class lease_book;
  lease(std::shared_ptr<lease_book> book, std::list<leased>::iterator which)
      : book_(std::move(book)), which_(which) {}

  std::shared_ptr<lease_book> book_;
  std::list<leased>::iterator which_;
};

}  // namespace hipplan
