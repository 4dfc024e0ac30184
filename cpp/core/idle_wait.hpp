// Waiting for devices on a thread of its own.
//
// hipDeviceSynchronize does not return while a kernel runs that never ends, and nobody can call it off. So
// the caller waits for the waiting: he can answer signals meanwhile, and give up, which leaves the thread
// behind.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "owned.hpp"

namespace hipplan {

class idle_wait {
 public:
  /// Begins to wait, for one device after the other; one that fails does not stop the others. Where no thread
  /// can be had, it waits here and now.
  idle_wait(runtime_ptr runtime, std::vector<device_id> devices);

  /// Returns when all are idle or have failed (true), or at a time (false). A forked child waits for nothing.
  [[nodiscard]] bool wait_until(std::chrono::steady_clock::time_point until) const;
  /// The place in the list of the device that is waited for; none when there is none left.
  [[nodiscard]] std::optional<std::size_t> busy() const;
  /// What failed so far, by the place in the list.
  [[nodiscard]] std::vector<std::pair<std::size_t, hip::hip_error>> failures() const;
  /// Calls repeated because the driver returned NotReady.
  [[nodiscard]] std::uint64_t retried() const;

 private:
  struct progress;
  std::shared_ptr<progress> progress_;  // the thread's too: it may outlive this object
};

}  // namespace hipplan
