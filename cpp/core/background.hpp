// Work of a filler on a thread of its own, behind what a stream has to do.
#pragma once

#include <chrono>
#include <memory>

#include "filler.hpp"

namespace hipplan {

class background {
 public:
  /// The work begins when all that is in `stream` of `device` now is done. Throws std::system_error or
  /// std::bad_alloc where there is no thread for it.
  background(runtime_ptr runtime, std::shared_ptr<filler> work, device_id device, hip::hipStream_t stream);
  background(const background&) = delete;
  background& operator=(const background&) = delete;
  /// Stops the work, and waits for what is under way.
  ~background();

  /// Throws what stopped the work, each time; it is done then.
  [[nodiscard]] bool done() const;
  /// It ends after the pieces that it is at; done() throws then, unless all was done.
  void stop();

 private:
  struct progress;
  std::shared_ptr<progress> progress_;
};

}  // namespace hipplan
