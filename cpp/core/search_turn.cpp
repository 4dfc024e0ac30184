#include "search_turn.hpp"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "this_process.hpp"

namespace hipplan {

struct search_turn::shared {
  std::mutex mutex;
  std::condition_variable ended;
  std::thread::id owner;
  std::size_t times = 0;  ///< that the owner has taken it
};

bool search_turn::take(std::chrono::steady_clock::time_point until) {
  if (from_) return true;
  auto& all = of_this_process<shared>();
  const auto self = std::this_thread::get_id();
  std::unique_lock lock(all.mutex);
  if (!all.ended.wait_until(lock, until, [&] { return all.times == 0 || all.owner == self; })) return false;
  all.owner = self;
  ++all.times;
  from_ = &all;
  return true;
}

void search_turn::end() noexcept {
  if (!from_) return;
  if (from_ == &of_this_process<shared>()) {
    const std::lock_guard lock(from_->mutex);
    --from_->times;
    from_->ended.notify_one();
  }
  from_ = nullptr;
}

}  // namespace hipplan
