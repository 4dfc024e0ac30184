#include "connection.hpp"

#include <pthread.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <set>
#include <string_view>

namespace hipplan::c {

/// All connections of this process.
struct connections {
  std::mutex mutex;
  std::set<connection*> all;

  /// Never destroyed: threads may use it while the process ends.
  static connections& here() {
    static auto* const only = [] {
      pthread_atfork([] { here().mutex.lock(); }, [] { here().mutex.unlock(); },
                     [] {
                       for (auto* const open : here().all) open->link_.close();
                       here().mutex.unlock();
                     });
      return new connections;
    }();
    return *only;
  }
};

connection::connection(descriptor link) : link_(std::move(link)) {
  auto& known = connections::here();
  const std::lock_guard lock(known.mutex);
  known.all.insert(this);
}

connection::~connection() {
  auto& known = connections::here();
  const std::lock_guard lock(known.mutex);
  known.all.erase(this);
}

const char* connection::lost() noexcept {
  constexpr int packets_max = 1000;  // a holder sends few
  const std::lock_guard lock(mutex_);
  for (int i = 0; i < packets_max && !is_last_; ++i) {
    std::array<char, 64> packet{};
    const auto size = recv(link_.get(), packet.data(), packet.size(), MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) break;
    const std::string_view sent(packet.data(), size < 0 ? 0 : static_cast<std::size_t>(size));
    is_last_ = sent.empty() || sent == "closed";
    lost_ = sent.empty() ? "ended" : sent == "closed" ? "closed" : sent == "replaced" ? "replaced" : nullptr;
  }
  return lost_;
}

}  // namespace hipplan::c
