#include "queued_work.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "scoped_device.hpp"

namespace hipplan {
namespace {

constexpr auto look_pause = std::chrono::microseconds(200);

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

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
  for (const auto& one : copies) work->enqueue(one);
  for (const auto& one : fills) work->enqueue(one);
  work->mark();
  return work;
}

queued_work::~queued_work() {
  if (!marked_) give_up();
  while (!done_ && runtime_->may_call()) {
    try {
      if (done()) return;
      std::this_thread::sleep_for(look_pause);
    } catch (const std::exception&) {
      give_up();
    }
  }
}

void queued_work::begun(hip::hipError_t result, const char* call, std::uintptr_t to, std::uintptr_t from,
                        std::size_t size_bytes) {
  runtime_->check(result, call, [&] {
    return std::pair("'" + event_.name() + "'", "dst=" + hexadecimal(to) + ", src=" + hexadecimal(from) +
                                                    ", size=" + std::to_string(size_bytes));
  });
}

void queued_work::enqueue(const copy& one) {
  auto* const to = pointer(one.to);
  auto* const from = pointer(one.from);
  const bool of_one =
      one.to_device == one.from_device || one.to_device == cpu_device || one.from_device == cpu_device;
  if (of_one) {
    begun(runtime_->hipMemcpyAsync(to, from, one.size_bytes, hip::hipMemcpyDefault, stream_),
          "hipMemcpyAsync", one.to, one.from, one.size_bytes);
  } else {
    begun(runtime_->hipMemcpyPeerAsync(to, one.to_device.value, from, one.from_device.value, one.size_bytes,
                                       stream_),
          "hipMemcpyPeerAsync", one.to, one.from, one.size_bytes);
  }
}

void queued_work::enqueue(const fill& one) {
  if (one.pattern.find_first_not_of(one.pattern.front()) == std::string::npos) {
    const auto value = static_cast<unsigned char>(one.pattern.front());
    return begun(runtime_->hipMemsetAsync(pointer(one.address), value, one.size_bytes, stream_),
                 "hipMemsetAsync", one.address, 0, one.size_bytes);
  }
  const auto& bytes = patterns_.emplace_back(one.pattern);
  auto done = std::min(bytes.size(), one.size_bytes);
  enqueue(copy{one.address, device_, reinterpret_cast<std::uintptr_t>(bytes.data()), cpu_device, done});
  while (done < one.size_bytes) {  // on the device itself, doubling
    const auto more = std::min(done, one.size_bytes - done);
    enqueue(copy{one.address + done, device_, one.address, device_, more});
    done += more;
  }
}

void queued_work::mark() {
  runtime_->check(runtime_->hipEventRecord(event_.get(), stream_), "hipEventRecord",
                  [&] { return std::pair(event_.identify(), std::string()); });
  marked_ = true;
}

bool queued_work::done() {
  if (!done_ && runtime_->may_call()) {
    const auto result = runtime_->hipEventQuery(event_.get());
    if (result != hip::hipSuccess) runtime_->forget_last_error();
    if (result == hip::hipErrorNotReady) return false;
    if (result != hip::hipSuccess) {
      failure_.emplace(result, "hipEventQuery", "'" + event_.name() + "'");
      give_up();  // whether the work is done is not known
    }
    done_ = true;
    release_event();
  }
  if (failure_) throw hip::hip_error(*failure_);
  return done_;
}

/// What is in the stream may be reading and writing still. Whatever the driver says: nothing more can be
/// done.
void queued_work::give_up() noexcept {
  if (done_) return;
  done_ = true;
  if (event_.empty() || !runtime_->may_call()) return;
  if (runtime_->hipStreamSynchronize(stream_) != hip::hipSuccess) runtime_->forget_last_error();
}

void queued_work::release_event() noexcept {
  try {
    event_.release();
  } catch (const std::exception& error) {
    report_leak(error.what());
    event_.told();
  }
}

}  // namespace hipplan
