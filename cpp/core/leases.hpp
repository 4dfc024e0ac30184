// Who still looks at a layout's memory.
//
// A view handed to NumPy, PyTorch or CuPy holds a lease, which the view's own deleter gives back: from any
// thread, at any time, without Python's GIL and without a driver call. Memory that is about to go away is
// barred first, which is refused while leases on it are out; one lock decides who comes first.
//
// A layout that changes in place goes on living, and may get new memory at the same addresses. So a bar that
// is settled stands only against who began to look before: each layer of a layout has a number, its age.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace hipplan {

/// No new view may use this memory.
class lease_refused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What a lease is on.
struct leased {
  std::string name;  ///< the plan's name for the object
  std::uintptr_t address;
  std::size_t size_bytes;

  [[nodiscard]] bool overlaps(std::uintptr_t at, std::size_t bytes) const noexcept {
    return address < at + bytes && at < address + size_bytes;
  }
};

class lease;

class lease_book : public std::enable_shared_from_this<lease_book> {
 public:
  lease_book();
  /// How many times bars were settled. A view of memory found now has this age.
  [[nodiscard]] std::uint64_t age() const;
  /// Throws lease_refused where a part of the range is barred, or was after `age`.
  [[nodiscard]] lease take(std::string name, std::uintptr_t address, std::size_t size_bytes,
                           std::uint64_t age);
  [[nodiscard]] std::vector<leased> overlapping(std::uintptr_t address, std::size_t size_bytes) const;
  /// Bars a range unless leases on it are out; those are the answer. `force` bars it all the same.
  std::vector<leased> bar(std::uintptr_t address, std::size_t size_bytes, bool force);
  /// Takes the latest bar of exactly this range back, if there is one that is not settled.
  void unbar(std::uintptr_t address, std::size_t size_bytes);
  /// What is barred has gone: from now on bars stand only against those who are older. A new age begins.
  void settle() noexcept;
  [[nodiscard]] std::size_t size() const;

 private:
  friend class lease;
  struct bar_on {
    std::uintptr_t address;
    std::size_t size_bytes;
    std::uint64_t against;  ///< who is of this age or older
    bool settled;
    bool replaced = false;  ///< by a newer one, and to go

    [[nodiscard]] bool overlaps(std::uintptr_t at, std::size_t bytes) const noexcept {
      return address < at + bytes && at < address + size_bytes;
    }
    [[nodiscard]] bool covers(const bar_on& other) const noexcept {
      return address <= other.address && other.address + other.size_bytes <= address + size_bytes;
    }
  };

  void give_back(std::list<leased>::iterator which) noexcept;

  const unsigned process_;  ///< whose book this is
  mutable std::mutex mutex_;
  std::list<leased> out_;  // a list: giving back neither throws nor moves the others
  std::vector<bar_on> barred_;
  std::uint64_t age_ = 0;
};

/// Moves only; given back by the destructor.
class lease {
 public:
  lease(lease&& other) noexcept : book_(std::move(other.book_)), which_(other.which_) {}
  lease& operator=(lease&&) = delete;
  ~lease() {
    if (book_) book_->give_back(which_);
  }

 private:
  friend class lease_book;
  lease(std::shared_ptr<lease_book> book, std::list<leased>::iterator which)
      : book_(std::move(book)), which_(which) {}

  std::shared_ptr<lease_book> book_;
  std::list<leased>::iterator which_;
};

}  // namespace hipplan
