// Whose turn it is to search for addresses: one thread of the process at a time.
//
// A search keeps addresses that another thread may want. That thread waits, and is not refused. The thread
// that has the turn may take it again: while it searches, a signal's handler may make a layout.
#pragma once

#include <chrono>

namespace hipplan {

class search_turn {
 public:
  search_turn() = default;
  search_turn(const search_turn&) = delete;
  search_turn& operator=(const search_turn&) = delete;
  ~search_turn() { end(); }

  /// Waits for the turn; returns whether this object has it.
  [[nodiscard]] bool take(std::chrono::steady_clock::time_point until);
  /// From any thread. In a forked child it only forgets the turn, which is the parent's.
  void end() noexcept;

 private:
  struct shared;
  shared* from_ = nullptr;  ///< null: it is not ours
};

}  // namespace hipplan
