// A filler's work on a thread of its own, after the work that a stream already holds.
#pragma once

#include <chrono>
#include <memory>

#include "filler.hpp"

namespace hipplan {

class background {
 public:
  /// The work begins when all that is in `stream` of `device` now is done. Throws std::system_error or
  /// std::bad_alloc if no thread can be started.
  background(runtime_ptr runtime, std::shared_ptr<filler> work, device_id device, hip::hipStream_t stream);
  background(const background&) = delete;
  background& operator=(const background&) = delete;
  /// Stops the work, and waits for the pieces under way.
  ~background();

  /// Whether the work has ended. Throws the error that stopped it, at each call.
  [[nodiscard]] bool done() const;
  /// Ends the work after the pieces under way; done() throws then, unless all of it was done.
  void stop();

 private:
  struct progress;
  std::shared_ptr<progress> progress_;
};

}  // namespace hipplan
