#include "kept_descriptor.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <system_error>
#include <utility>

namespace hipplan {

/// Never destroyed: owners may outlive main().
struct kept_descriptor::list {
  std::mutex mutex;
  kept_descriptor* first = nullptr;
};

kept_descriptor::list& kept_descriptor::all() {
  static list* const here = [] {
    pthread_atfork([] { all().mutex.lock(); }, [] { all().mutex.unlock(); },
                   [] {
                     for (auto* kept = all().first; kept; kept = kept->next_) {
                       if (kept->value_ >= 0) close(std::exchange(kept->value_, -1));
                     }
                     all().mutex.unlock();
                   });
    return new list;
  }();
  return *here;
}

kept_descriptor::kept_descriptor() {
  const std::lock_guard lock(all().mutex);
  next_ = std::exchange(all().first, this);
  if (next_) next_->previous_ = this;
}

kept_descriptor::~kept_descriptor() {
  const std::lock_guard lock(all().mutex);
  (previous_ ? previous_->next_ : all().first) = next_;
  if (next_) next_->previous_ = previous_;
  if (value_ >= 0) close(value_);
}

void kept_descriptor::keep(int descriptor) noexcept {
  const std::lock_guard lock(all().mutex);
  (void)fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  value_ = descriptor;
}

int duplicate(int descriptor) {
  const int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) throw std::system_error(errno, std::generic_category(), "duplicating a descriptor");
  return copy;
}

}  // namespace hipplan
