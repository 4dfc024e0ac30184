// Waits for devices on a thread of its own.
//
// hipDeviceSynchronize cannot be cancelled, and never returns while a kernel hangs. So another thread calls
// it: the caller can handle signals meanwhile, and can abandon the wait, which leaves that thread running.
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
  /// Begins to wait, for one device after the other; one that fails does not stop the others. If no thread
  /// can be started, it waits in the constructor.
  idle_wait(runtime_ptr runtime, std::vector<device_id> devices);

  /// Returns true when all are idle or have failed, false at the time limit. Always true in a forked child.
  [[nodiscard]] bool wait_until(std::chrono::steady_clock::time_point until) const;
  /// The index in the list of the device that it waits for now, if any.
  [[nodiscard]] std::optional<std::size_t> busy() const;
  /// The failures so far, with the devices' index in the list.
  [[nodiscard]] std::vector<std::pair<std::size_t, hip::hip_error>> failures() const;
  /// Calls repeated because the driver returned NotReady.
  [[nodiscard]] std::uint64_t retried() const;

 private:
  struct progress;
  std::shared_ptr<progress> progress_;  // the thread's too: it may outlive this object
};

}  // namespace hipplan
