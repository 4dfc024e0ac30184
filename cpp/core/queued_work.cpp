#include "queued_work.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "scoped_device.hpp"

namespace hipplan {
namespace {

constexpr auto poll_pause = std::chrono::microseconds(200);

}  // namespace

queued_work::queued_work(runtime_ptr runtime, std::string name, device_id device, hip::hipStream_t stream)
    : runtime_(std::move(runtime)),
      event_(*runtime_, plan_name(std::move(name))),
      device_(device),
      stream_(stream) {}

std::unique_ptr<queued_work> queued_work::begin(runtime_ptr runtime, std::string name, device_id device,
                                                hip::hipStream_t stream, const std::vector<copy>& copies,
                                                const std::vector<fill>& fills) {
  std::unique_ptr<queued_work> work(new queued_work(std::move(runtime), std::move(name), device, stream));
  const scoped_device current(*work->runtime_, device);
  work->event_.make(device);
  for (const auto& item : copies) work->enqueue(item);
  for (const auto& item : fills) work->enqueue(item);
  work->mark();
  return work;
}

queued_work::~queued_work() {
  if (!marked_) wait_anyway();
  while (!done_ && runtime_->may_call()) {
    try {
      if (done()) return;
      std::this_thread::sleep_for(poll_pause);
    } catch (const std::exception&) {
      wait_anyway();
    }
  }
}

void queued_work::check_enqueued(hip::hipError_t result, const char* call, std::uintptr_t to,
                                 std::uintptr_t from, std::size_t size_bytes) {
  runtime_->check(result, call, [&] {
    return std::pair("'" + event_.name() + "'", "dst=" + hexadecimal(to) + ", src=" + hexadecimal(from) +
                                                    ", size=" + std::to_string(size_bytes));
  });
}

void queued_work::enqueue(const copy& item) {
  auto* const to = pointer_at(item.to);
  auto* const from = pointer_at(item.from);
  const bool on_one_device =
      item.to_device == item.from_device || item.to_device == cpu_device || item.from_device == cpu_device;
  if (on_one_device) {
    check_enqueued(runtime_->hipMemcpyAsync(to, from, item.size_bytes, hip::hipMemcpyDefault, stream_),
                   "hipMemcpyAsync", item.to, item.from, item.size_bytes);
  } else {
    check_enqueued(runtime_->hipMemcpyPeerAsync(to, item.to_device.value, from, item.from_device.value,
                                                item.size_bytes, stream_),
                   "hipMemcpyPeerAsync", item.to, item.from, item.size_bytes);
  }
}

void queued_work::enqueue(const fill& item) {
  if (item.pattern.find_first_not_of(item.pattern.front()) == std::string::npos) {
    const auto value = static_cast<unsigned char>(item.pattern.front());
    return check_enqueued(runtime_->hipMemsetAsync(pointer_at(item.address), value, item.size_bytes, stream_),
                          "hipMemsetAsync", item.address, 0, item.size_bytes);
  }
  const auto& bytes = patterns_.emplace_back(item.pattern);
  auto done = std::min(bytes.size(), item.size_bytes);
  enqueue(copy{item.address, device_, reinterpret_cast<std::uintptr_t>(bytes.data()), cpu_device, done});
  while (done < item.size_bytes) {  // copies on the device: the filled part doubles each time
    const auto more = std::min(done, item.size_bytes - done);
    enqueue(copy{item.address + done, device_, item.address, device_, more});
    done += more;
  }
}

void queued_work::mark() {
  runtime_->check(runtime_->hipEventRecord(event_.get(), stream_), "hipEventRecord",
                  [&] { return std::pair(event_.identify(), std::string()); });
  marked_ = true;
}

bool queued_work::done() {
  const std::unique_lock asks(asks_, std::try_to_lock);
  if (!asks) return false;
  if (!done_ && runtime_->may_call()) {
    const auto result = runtime_->hipEventQuery(event_.get());
    if (result != hip::hipSuccess) runtime_->forget_last_error();
    if (result == hip::hipErrorNotReady) return false;
    if (result != hip::hipSuccess) {
      failure_.emplace(result, "hipEventQuery", "'" + event_.name() + "'");
      wait_anyway();  // it is unknown whether the work is done
    }
    done_ = true;
    release_event();
  }
  if (failure_) throw hip::hip_error(*failure_);
  return done_;
}

/// Waits for the whole stream, whose work may still access the memory. Errors are ignored: nothing more can
/// be done about them.
void queued_work::wait_anyway() noexcept {
  if (done_) return;
  done_ = true;
  if (event_.empty() || !runtime_->may_call()) return;
  if (runtime_->hipStreamSynchronize(stream_) != hip::hipSuccess) runtime_->forget_last_error();
}

void queued_work::release_event() noexcept {
  try {
    event_.release();
  } catch (const std::exception& error) {
    report_leak(std::string_view(error.what()));
    event_.mark_reported();
  }
}

}  // namespace hipplan
