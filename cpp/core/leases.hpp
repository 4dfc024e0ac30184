// Who still looks at a layout's memory.
//
// A view handed to NumPy, PyTorch or CuPy holds a lease, which the view's own deleter gives back: from any
// thread, at any time, without Python's GIL and without a driver call. Memory that is about to go away is
// barred first, which is refused while leases on it are out; one lock decides who comes first.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace hipplan {

/// Nobody may look there any more.
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
  /// Throws lease_refused where a part of the range is barred.
  [[nodiscard]] lease take(std::string name, std::uintptr_t address, std::size_t size_bytes);
  [[nodiscard]] std::vector<leased> overlapping(std::uintptr_t address, std::size_t size_bytes) const;
  /// Bars a range unless leases on it are out; those are the answer. `force` bars it all the same.
  std::vector<leased> bar(std::uintptr_t address, std::size_t size_bytes, bool force);
  /// Takes the latest bar of exactly this range back.
  void unbar(std::uintptr_t address, std::size_t size_bytes);
  [[nodiscard]] std::size_t size() const;

 private:
  friend class lease;
  void give_back(std::list<leased>::iterator which) noexcept;

  mutable std::mutex mutex_;
  std::list<leased> out_;  // a list: giving back neither throws nor moves the others
  std::vector<leased> barred_;
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
