// Which files the machine of KFDSIM_MACHINE has in place of this one's.
//
// The folder has the driver's files under their own paths (<folder>/sys/class/drm/card0 ...), and a list of
// the paths that it answers for: what is at or below one of them is there, or nowhere.
#pragma once

#include <string>

namespace kfdsim {

/// A path as it is to be opened: in the folder, or unchanged.
class redirected {
 public:
  explicit redirected(const char* path);
  [[nodiscard]] const char* path() const { return path_; }
  /// Whether it is in the folder, which the program must not change.
  [[nodiscard]] bool inside() const { return path_ == there_.c_str(); }

 private:
  std::string there_;
  const char* path_;
};

/// Which of the driver's files a path names: control, a GPU, or not_driver.
[[nodiscard]] int driver_at(const char* path);

}  // namespace kfdsim
