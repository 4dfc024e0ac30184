#include "filler.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "processors.hpp"
#include "scoped_device.hpp"
#include "without_signals.hpp"

namespace hipplan {
namespace {

using namespace std::chrono_literals;

constexpr auto tick_time = 25ms;
constexpr std::size_t mib = std::size_t{1} << 20;
constexpr std::size_t small_bytes = 4 * mib;
constexpr std::size_t unstaged_piece_bytes = 64 * mib;  // for progress only
constexpr std::size_t host_piece_bytes = 8 * mib;
constexpr std::size_t least_piece_bytes = mib / 2;
constexpr std::size_t lanes_max = 16;  // of a device
constexpr std::size_t page_bytes = 4096;
constexpr std::size_t element_bytes = 16;  // the largest

}  // namespace

void filler::add_device(device_id device, std::vector<hip::hipStream_t> streams, std::uintptr_t staging,
                        std::size_t staging_bytes) {
  if (streams.empty() || staging_bytes < 2 * element_bytes)
    throw std::invalid_argument("a device without lanes");
  devices_.push_back({device, std::move(streams), reinterpret_cast<std::byte*>(staging), staging_bytes});
}

void filler::load(std::string name, device_id device, std::uintptr_t address, std::size_t size_bytes,
                  file_rows from, std::optional<std::size_t> sum, std::size_t each_bytes) {
  transfer_job job{transfer_job::kind::load, std::move(name), device, address, size_bytes, from, {}};
  job.sum = sum;
  add(job, each_bytes);
}

void filler::save(std::string name, device_id device, std::uintptr_t address, std::size_t size_bytes,
                  file_rows to, std::optional<std::size_t> sum, std::size_t each_bytes) {
  transfer_job job{transfer_job::kind::save, std::move(name), device, address, size_bytes, to, {}};
  job.sum = sum;
  add(job, each_bytes);
}

void filler::sum(std::string name, std::uintptr_t address, std::size_t size_bytes, file_rows from,
                 std::size_t sum, std::size_t each_bytes) {
  transfer_job job{transfer_job::kind::sum, std::move(name), cpu_device, address, size_bytes, from, {}};
  job.sum = sum;
  add(job, each_bytes);
}

void filler::add(const transfer_job& job, std::size_t each_bytes) {
  const auto step = each_bytes == 0 ? std::max<std::size_t>(1, job.size_bytes) : each_bytes;
  auto sum = job.sum;
  for (std::size_t at = 0; at == 0 || at < job.size_bytes; at += step) {
    auto& part = jobs_.emplace_back(job);
    part.address += at;
    part.size_bytes = std::min(step, job.size_bytes - at);
    part.rows.begin_bytes += at;
    part.sum = sum;
    if (sum) sums_.reserve((*sum)++);
  }
}

void filler::fill(std::string name, device_id device, std::uintptr_t address, std::size_t size_bytes,
                  std::string pattern) {
  if (pattern.empty()) throw std::invalid_argument("an empty pattern");
  jobs_.push_back(
      {transfer_job::kind::fill, std::move(name), device, address, size_bytes, {}, std::move(pattern)});
}

void filler::copy(std::string name, device_id device, std::uintptr_t to, device_id from_device,
                  std::uintptr_t from, std::size_t size_bytes, bool staged) {
  const bool to_host = device == cpu_device;
  // A device's lane copies to the host, so `device` is always the one whose lane works.
  if (to_host) std::swap(device, from_device);
  jobs_.push_back({transfer_job::kind::copy,
                   std::move(name),
                   device,
                   to,
                   size_bytes,
                   {},
                   {},
                   from_device,
                   from,
                   staged,
                   to_host});
}

std::uint64_t filler::total_bytes() const noexcept {
  std::uint64_t total = 0;
  for (const auto& job : jobs_) total += job.size_bytes;
  return total;
}

std::vector<lane_memory> filler::lanes_to(const device_resources& to, std::size_t count_max,
                                          bool lends) const {
  const auto count = std::clamp<std::size_t>(to.staging_bytes / (2 * least_piece_bytes), 1, count_max);
  const auto room = to.staging_bytes / (2 * count);
  const auto piece_bytes =
      room / page_bytes > 0 ? room / page_bytes * page_bytes : room / element_bytes * element_bytes;
  std::vector<lane_memory> out;
  out.reserve(count);
  for (std::size_t number = 0; number < count; ++number) {
    out.push_back({to.device, to.streams[number % to.streams.size()], to.staging + number * 2 * piece_bytes,
                   piece_bytes, lends ? std::make_shared<std::mutex>() : nullptr});
  }
  return out;
}

void filler::add_pieces(device_work& out) const {
  for (const auto& job : jobs_) {
    if (job.device != out.device) continue;
    const bool direct = !job.uses_staging() && job.device != cpu_device;
    const auto step = direct ? unstaged_piece_bytes : out.lanes.front().piece_bytes;
    for (std::size_t at = 0; at < job.size_bytes; at += step) {
      out.pieces.push_back({&job, at, std::min(step, job.size_bytes - at)});
    }
  }
  // A file takes one write at a time: so those into several files alternate between them.
  const auto place = [](const transfer_piece& piece) {
    return piece.job->rows.offset + piece.job->rows.begin_bytes + piece.at;
  };
  const bool only_saves = std::ranges::all_of(
      out.pieces, [](const auto& piece) { return piece.job->what == transfer_job::kind::save; });
  if (only_saves) std::ranges::sort(out.pieces, {}, place);
}

std::deque<filler::device_work> filler::work_by_device() const {
  std::vector<device_id> busy;
  busy.reserve(jobs_.size());
  for (const auto& job : jobs_) busy.push_back(job.device);
  std::ranges::sort(busy);
  busy.erase(std::unique(busy.begin(), busy.end()), busy.end());  // clang 15 has no ranges::unique
  const auto processors = processors_ == 0 ? usable_processors() : processors_;
  const auto each = std::clamp<std::size_t>(processors / std::max<std::size_t>(1, busy.size()), 2, lanes_max);
  const bool lends = std::ranges::any_of(jobs_, &transfer_job::passes_two);

  std::deque<device_work> out;
  for (const auto& to : devices_) out.emplace_back(to.device).lanes = lanes_to(to, each, lends);
  out.emplace_back(cpu_device).lanes.assign(each, {cpu_device, nullptr, nullptr, host_piece_bytes});
  if (lends) {  // a piece that passes through the staging of two devices has to fit both
    auto least = host_piece_bytes;
    for (const auto& queue : out) least = std::min(least, queue.lanes.front().piece_bytes);
    for (auto& queue : out) {
      for (auto& lane : queue.lanes) lane.piece_bytes = least;
    }
  }
  for (const auto device : busy) {
    const auto at = std::ranges::find(out, device, &device_work::device);
    if (at == out.end()) throw std::invalid_argument("no lane for " + text(device));
    add_pieces(*at);
  }
  return out;
}

void filler::run(const std::function<void(std::uint64_t)>& tick) {
  done_bytes_ = 0;
  stop_ = false;
  error_ = nullptr;
  const struct forget {
    std::vector<transfer_job>& jobs;
    ~forget() { jobs.clear(); }
  } at_the_end{jobs_};  // after the lanes have ended, with or without an error
  auto all = work_by_device();
  if (total_bytes() <= small_bytes) return run_here(all, tick);
  std::mutex mutex;
  std::condition_variable finished;
  std::size_t running = 0;
  {
    std::vector<std::jthread> threads;
    try {
      for (auto& queue : all) {
        const without_signals started;
        for (std::size_t number = 0; number < std::min(queue.lanes.size(), queue.pieces.size()); ++number) {
          const std::lock_guard lock(mutex);
          threads.emplace_back([this, &all, &queue, number, &mutex, &finished, &running] {
            run_lane(all, queue, number);
            const std::lock_guard done(mutex);
            --running;
            finished.notify_one();
          });
          ++running;
        }
      }
      std::unique_lock lock(mutex);
      while (!finished.wait_for(lock, tick_time, [&] { return running == 0; })) {
        lock.unlock();
        tick(done_bytes_);
        lock.lock();
      }
    } catch (...) {
      stop_ = true;  // the lanes end after their current call; ~jthread waits for them
      throw;
    }
  }
  if (error_) std::rethrow_exception(error_);
  tick(done_bytes_);
}

void filler::run_here(std::deque<device_work>& all, const std::function<void(std::uint64_t)>& tick) {
  for (const auto& job : jobs_) {
    auto& queue = *std::ranges::find(all, job.device, &device_work::device);
    std::optional<scoped_device> current;
    if (job.device != cpu_device) current.emplace(*runtime_, job.device);
    lane on(*runtime_, queue.lanes.front(), partner(all, 0), stop_, done_bytes_, sums_);
    for (; queue.next < queue.pieces.size() && queue.pieces[queue.next].job == &job; ++queue.next) {
      on.next(queue.pieces[queue.next]);
    }
    on.finish();
  }
  tick(done_bytes_);
}

void filler::run_lane(const std::deque<device_work>& all, device_work& queue, std::size_t number) {
  try {
    if (queue.device != cpu_device) {
      runtime_->check(runtime_->hipSetDevice(queue.device.value), "hipSetDevice", text(queue.device));
    }
    lane on(*runtime_, queue.lanes[number], partner(all, number), stop_, done_bytes_, sums_);
    while (!stop_) {
      const auto next = queue.next++;
      if (next >= queue.pieces.size()) return on.finish();
      on.next(queue.pieces[next]);
    }
  } catch (...) {
    stop_ = true;
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

lane::partner_of filler::partner(const std::deque<device_work>& all, std::size_t number) {
  return [&all, number](device_id device) -> const lane_memory& {
    const auto at = std::ranges::find(all, device, &device_work::device);
    if (at == all.end()) throw std::invalid_argument("no lane for " + text(device));
    return at->lanes[number % at->lanes.size()];
  };
}

}  // namespace hipplan
