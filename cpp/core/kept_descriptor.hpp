// A file descriptor that is open as long as its owner lives, but is closed in a forked child: there it would
// keep the memory alive after the parent has freed it.
#pragma once

namespace hipplan {

class kept_descriptor {
 public:
  /// Empty.
  kept_descriptor();
  kept_descriptor(const kept_descriptor&) = delete;
  kept_descriptor& operator=(const kept_descriptor&) = delete;
  ~kept_descriptor();
  /// Takes ownership.
  void keep(int descriptor) noexcept;
  [[nodiscard]] int value() const noexcept { return value_; }

 private:
  struct list;
  static list& all();

  int value_ = -1;
  kept_descriptor* next_;  ///< in the list of all in this process
  kept_descriptor* previous_ = nullptr;
};

/// Another descriptor of the same file, closed on exec. Throws std::system_error.
[[nodiscard]] int duplicate(int descriptor);

}  // namespace hipplan
