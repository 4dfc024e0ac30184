#include "background.hpp"

#include <atomic>
#include <condition_variable>
#include <stdexcept>

#include "spare_thread.hpp"

namespace hipplan {

struct background::progress {
  runtime_ptr runtime;
  std::shared_ptr<filler> work;
  device_id device;
  hip::hipStream_t stream;
  std::atomic<bool> stopped{false};
  std::uint64_t total_bytes = 0;
  std::atomic<bool> done{false};
  std::mutex mutex;
  std::condition_variable changed;
  std::exception_ptr failure;

  /// The current device is not restored: the thread belongs to this work.
  void move() {
    runtime->check(runtime->hipSetDevice(device.value), "hipSetDevice", text(device));
    runtime->check(runtime->hipStreamSynchronize(stream), "hipStreamSynchronize", text(device));
    check_stopped(0);
    work->run([this](std::uint64_t so_far) { check_stopped(so_far); });
  }

  void check_stopped(std::uint64_t so_far) const {
    if (stopped && so_far < total_bytes) throw std::runtime_error("the layout was closed meanwhile");
  }

  void run() noexcept {
    try {
      move();
    } catch (...) {
      failure = std::current_exception();
    }
    work.reset();
    {
      const std::lock_guard lock(mutex);
      done = true;
    }
    changed.notify_all();
  }
};

background::background(runtime_ptr runtime, std::shared_ptr<filler> work, device_id device,
                       hip::hipStream_t stream)
    : progress_(std::make_shared<progress>()) {
  progress_->runtime = std::move(runtime);
  progress_->total_bytes = work->total_bytes();
  progress_->work = std::move(work);
  progress_->device = device;
  progress_->stream = stream;
  run_on_spare_thread([shared = progress_] { shared->run(); });
}

background::~background() {
  if (!progress_->runtime->may_call())
    return;  // the thread belongs to the parent process, or the process ends
  stop();
  std::unique_lock lock(progress_->mutex);
  progress_->changed.wait(lock, [&] { return progress_->done.load(); });
}

bool background::done() const {
  if (!progress_->done.load()) return false;
  if (progress_->failure) std::rethrow_exception(progress_->failure);
  return true;
}

void background::stop() { progress_->stopped = true; }

}  // namespace hipplan
