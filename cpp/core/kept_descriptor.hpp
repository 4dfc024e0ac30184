// A file descriptor that stays open as long as its owner, and not in a forked child: there it would keep the
// memory behind it alive when the parent has given it back.
#pragma once

namespace hipplan {

class kept_descriptor {
 public:
  /// Empty.
  kept_descriptor();
  kept_descriptor(const kept_descriptor&) = delete;
  kept_descriptor& operator=(const kept_descriptor&) = delete;
  ~kept_descriptor();
  /// Takes it over.
  void keep(int descriptor) noexcept;
  [[nodiscard]] int value() const noexcept { return value_; }

 private:
  struct list;
  static list& all();

  int value_ = -1;
  kept_descriptor* next_;  ///< of all in this process
  kept_descriptor* previous_ = nullptr;
};

/// Another descriptor of the same file, closed on exec. Throws std::system_error.
[[nodiscard]] int duplicate(int descriptor);

}  // namespace hipplan
