#include "filler.hpp"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "scoped_device.hpp"
#include "without_signals.hpp"

namespace hipplan {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t large_piece_bytes = std::size_t{256} << 20;  // what needs no staging: for progress only
constexpr std::size_t host_piece_bytes = std::size_t{8} << 20;
constexpr std::size_t host_lanes = 4;
constexpr std::size_t small_bytes = std::size_t{4} << 20;

std::byte* bytes_at(std::uintptr_t address) { return reinterpret_cast<std::byte*>(address); }

void read_exactly(const file_rows& file, std::uint64_t offset, std::byte* to, std::size_t size_bytes) {
  while (size_bytes > 0) {
    const auto got = pread(file.descriptor, to, size_bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw std::system_error(errno, std::generic_category(), "reading");
    if (got == 0) throw std::invalid_argument("the file became shorter while it was read");
    const auto count = static_cast<std::size_t>(got);
    to += count;
    offset += count;
    size_bytes -= count;
  }
}

void write_exactly(const file_rows& file, std::uint64_t offset, const std::byte* from,
                   std::size_t size_bytes) {
  while (size_bytes > 0) {
    const auto put = pwrite(file.descriptor, from, size_bytes, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw std::system_error(errno, std::generic_category(), "writing");
    const auto count = static_cast<std::size_t>(put);
    from += count;
    offset += count;
    size_bytes -= count;
  }
}

/// Calls use(offset in the file, offset in the part, bytes) for each run of bytes of a part of the rows.
template <class Use>
void for_each_run(const file_rows& rows, std::size_t at, std::size_t size_bytes, Use use) {
  at += rows.begin_bytes;
  for (std::size_t done = 0; done < size_bytes;) {
    const auto row = (at + done) / rows.row_bytes;
    const auto column = (at + done) % rows.row_bytes;
    const auto run = std::min(rows.row_bytes - column, size_bytes - done);
    use(rows.offset + row * rows.stride_bytes + column, done, run);
    done += run;
  }
}

/// Repeats the pattern: what is there already is copied behind itself, so it doubles.
void repeat(std::byte* to, const std::string& pattern, std::size_t size_bytes) {
  auto done = std::min(pattern.size(), size_bytes);
  std::memcpy(to, pattern.data(), done);
  while (done < size_bytes) {
    const auto more = std::min(done, size_bytes - done);
    std::memcpy(to + done, to, more);
    done += more;
  }
}

bool one_byte(const std::string& pattern) {
  return pattern.find_first_not_of(pattern.front()) == std::string::npos;
}

}  // namespace

void filler::add_lane(device_id device, hip::hipStream_t stream, std::uintptr_t staging,
                      std::size_t piece_bytes) {
  lanes_.push_back({device, stream, bytes_at(staging), piece_bytes, std::make_shared<std::mutex>()});
}

void filler::load(std::string name, device_id device, std::uintptr_t address, std::size_t size_bytes,
                  file_rows from) {
  jobs_.push_back({kind::load, std::move(name), device, address, size_bytes, from, {}});
}

void filler::save(std::string name, device_id device, std::uintptr_t address, std::size_t size_bytes,
                  file_rows to) {
  jobs_.push_back({kind::save, std::move(name), device, address, size_bytes, to, {}});
}

void filler::fill(std::string name, device_id device, std::uintptr_t address, std::size_t size_bytes,
                  std::string pattern) {
  if (pattern.empty()) throw std::invalid_argument("an empty pattern");
  jobs_.push_back({kind::fill, std::move(name), device, address, size_bytes, {}, std::move(pattern)});
}

void filler::copy(std::string name, device_id device, std::uintptr_t to, device_id from_device,
                  std::uintptr_t from, std::size_t size_bytes, bool staged) {
  const bool to_host = device == cpu_device;
  // A device's lane does it; its own memory is the other side.
  if (to_host) std::swap(device, from_device);
  jobs_.push_back(
      {kind::copy, std::move(name), device, to, size_bytes, {}, {}, from_device, from, staged, to_host});
}

std::uint64_t filler::total_bytes() const noexcept {
  std::uint64_t total = 0;
  for (const auto& one : jobs_) total += one.size_bytes;
  return total;
}

std::vector<filler::lane> filler::lanes_of(device_id device) const {
  if (device == cpu_device) {
    return std::vector<lane>(host_lanes, lane{cpu_device, nullptr, nullptr, host_piece_bytes});
  }
  std::vector<lane> out;
  std::ranges::copy_if(lanes_, std::back_inserter(out),
                       [&](const lane& one) { return one.device == device; });
  if (out.empty()) throw std::invalid_argument("no lane for " + text(device));
  return out;
}

void filler::cut(queue& out, std::size_t piece_bytes) const {
  for (const auto& one : jobs_) {
    if (one.device != out.device) continue;
    const bool staged =
        one.staged || one.what == kind::load || one.what == kind::save || one.device == cpu_device;
    const auto step = staged ? piece_bytes : large_piece_bytes;
    for (std::size_t at = 0; at < one.size_bytes; at += step) {
      out.pieces.push_back({&one, at, std::min(step, one.size_bytes - at)});
    }
  }
}

void filler::run(const std::function<void(std::uint64_t)>& tick) {
  done_bytes_ = 0;
  stop_ = false;
  error_ = nullptr;
  if (total_bytes() <= small_bytes) return run_here(tick);
  std::vector<device_id> devices;
  devices.reserve(jobs_.size());
  for (const auto& one : jobs_) devices.push_back(one.device);
  std::ranges::sort(devices);
  devices.erase(std::unique(devices.begin(), devices.end()),
                devices.end());  // clang 15 knows no ranges::unique

  const struct forget {
    std::vector<job>& jobs;
    ~forget() { jobs.clear(); }
  } at_the_end{jobs_};  // after the lanes have ended, however they do
  std::deque<queue> queues;
  std::mutex mutex;
  std::condition_variable finished;
  std::size_t running = 0;
  {
    std::vector<std::jthread> threads;
    try {
      for (const auto device : devices) {
        const without_signals started;
        auto lanes = lanes_of(device);
        auto& pieces = queues.emplace_back();
        pieces.device = device;
        cut(pieces, lanes.front().piece_bytes);
        lanes.resize(std::min(lanes.size(), pieces.pieces.size()), lanes.front());
        for (const auto& on : lanes) {
          const std::lock_guard lock(mutex);
          threads.emplace_back([this, on, &pieces, &mutex, &finished, &running] {
            work(on, pieces);
            const std::lock_guard done(mutex);
            --running;
            finished.notify_one();
          });
          ++running;
        }
      }
      std::unique_lock lock(mutex);
      while (!finished.wait_for(lock, 50ms, [&] { return running == 0; })) {
        lock.unlock();
        tick(done_bytes_);
        lock.lock();
      }
    } catch (...) {
      stop_ = true;  // the lanes end with the piece they are at, and are waited for
      throw;
    }
  }
  if (error_) std::rethrow_exception(error_);
  tick(done_bytes_);
}

void filler::run_here(const std::function<void(std::uint64_t)>& tick) {
  const auto jobs = std::exchange(jobs_, {});
  for (const auto& one : jobs) {
    const auto on = lanes_of(one.device).front();
    std::optional<scoped_device> current;
    if (one.device != cpu_device) current.emplace(*runtime_, one.device);
    const auto step = std::min(on.piece_bytes, one.size_bytes);
    for (std::size_t at = 0; at < one.size_bytes; at += step) {
      do_piece(on, {&one, at, std::min(step, one.size_bytes - at)});
    }
    done_bytes_ += one.size_bytes;
  }
  tick(done_bytes_);
}

void filler::work(const lane& on, queue& pieces) {
  try {
    if (on.device != cpu_device) {
      runtime_->check(runtime_->hipSetDevice(on.device.value), "hipSetDevice", text(on.device));
    }
    while (!stop_) {
      const auto number = pieces.next++;
      if (number >= pieces.pieces.size()) return;
      do_piece(on, pieces.pieces[number]);
      done_bytes_ += pieces.pieces[number].size_bytes;
    }
  } catch (...) {
    stop_ = true;
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void filler::do_piece(const lane& on, const piece& part) {
  const auto& whole = *part.whose;
  if (whole.staged && whole.from_device != cpu_device && whole.from_device != on.device) {
    const auto other = partner_of(on, whole.from_device);
    const std::scoped_lock both(*on.in_use, *other.in_use);
    return copy_through(on, other, part);
  }
  const auto own = on.in_use ? std::unique_lock(*on.in_use) : std::unique_lock<std::mutex>();
  switch (part.whose->what) {
    case kind::load:
      return load_piece(on, part);
    case kind::save:
      return save_piece(on, part);
    case kind::fill:
      return fill_piece(on, part);
    case kind::copy:
      return copy_piece(on, part);
  }
}

void filler::load_piece(const lane& on, const piece& part) {
  const auto& whole = *part.whose;
  const bool staged = on.device != cpu_device;
  std::byte* const to = staged ? on.staging : bytes_at(whole.address + part.at);
  for_each_run(whole.rows, part.at, part.size_bytes, [&](auto offset, auto at, auto size_bytes) {
    read_exactly(whole.rows, offset, to + at, size_bytes);
  });
  if (!staged) return;
  move(on, part, whole.address + part.at, reinterpret_cast<std::uintptr_t>(to), part.size_bytes);
  await(on, part);
}

void filler::save_piece(const lane& on, const piece& part) {
  const auto& whole = *part.whose;
  const bool staged = on.device != cpu_device;
  std::byte* const from = staged ? on.staging : bytes_at(whole.address + part.at);
  if (staged) {
    move(on, part, reinterpret_cast<std::uintptr_t>(from), whole.address + part.at, part.size_bytes);
    await(on, part);
  }
  for_each_run(whole.rows, part.at, part.size_bytes, [&](auto offset, auto at, auto size_bytes) {
    write_exactly(whole.rows, offset, from + at, size_bytes);
  });
}

void filler::fill_piece(const lane& on, const piece& part) {
  const auto& whole = *part.whose;
  const auto address = whole.address + part.at;
  if (on.device == cpu_device) return repeat(bytes_at(address), whole.pattern, part.size_bytes);
  if (one_byte(whole.pattern)) {
    const auto value = static_cast<unsigned char>(whole.pattern.front());
    const auto words = [&] {
      return std::pair("'" + whole.name + "'",
                       "dst=" + hexadecimal(address) + ", size=" + std::to_string(part.size_bytes));
    };
    runtime_->check(runtime_->hipMemsetAsync(bytes_at(address), value, part.size_bytes, on.stream),
                    "hipMemsetAsync", words);
    return await(on, part);
  }
  auto done = std::min(on.piece_bytes, part.size_bytes);
  repeat(on.staging, whole.pattern, done);
  move(on, part, address, reinterpret_cast<std::uintptr_t>(on.staging), done);
  while (done < part.size_bytes) {
    const auto more = std::min(done, part.size_bytes - done);
    move(on, part, address + done, address, more);
    done += more;
  }
  await(on, part);
}

void filler::copy_piece(const lane& on, const piece& part) {
  const auto& whole = *part.whose;
  const auto to = whole.address + part.at;
  const auto from = whole.from + part.at;
  if (on.device == cpu_device) {
    std::memcpy(bytes_at(to), bytes_at(from), part.size_bytes);
    return;
  }
  if (whole.staged && whole.from_device == cpu_device) return copy_staged(on, part);
  if (whole.from_device == cpu_device || whole.from_device == on.device) {
    move(on, part, to, from, part.size_bytes);
  } else {
    const auto result = runtime_->hipMemcpyPeerAsync(bytes_at(to), on.device.value, bytes_at(from),
                                                     whole.from_device.value, part.size_bytes, on.stream);
    runtime_->check(result, "hipMemcpyPeerAsync", [&] {
      return std::pair("'" + whole.name + "'", "dst=" + hexadecimal(to) + ", src=" + hexadecimal(from) +
                                                   ", size=" + std::to_string(part.size_bytes));
    });
  }
  await(on, part);
}

void filler::copy_staged(const lane& on, const piece& part) {
  const auto& whole = *part.whose;
  const auto to = whole.address + part.at;
  const auto from = whole.from + part.at;
  const auto between = reinterpret_cast<std::uintptr_t>(on.staging);
  if (!whole.to_host) std::memcpy(on.staging, bytes_at(from), part.size_bytes);
  move(on, part, whole.to_host ? between : to, whole.to_host ? from : between, part.size_bytes);
  await(on, part);
  if (whole.to_host) std::memcpy(bytes_at(to), on.staging, part.size_bytes);
}

void filler::copy_through(const lane& on, const lane& other, const piece& part) {
  const auto& whole = *part.whose;
  {
    const scoped_device current(*runtime_, other.device);
    move(other, part, reinterpret_cast<std::uintptr_t>(other.staging), whole.from + part.at, part.size_bytes);
    await(other, part);
  }
  std::memcpy(on.staging, other.staging, part.size_bytes);
  move(on, part, whole.address + part.at, reinterpret_cast<std::uintptr_t>(on.staging), part.size_bytes);
  await(on, part);
}

filler::lane filler::partner_of(const lane& on, device_id device) const {
  const auto mine = lanes_of(on.device);
  const auto theirs = lanes_of(device);
  const auto number = std::ranges::find(mine, on.staging, &lane::staging) - mine.begin();
  return theirs.at(static_cast<std::size_t>(number) % theirs.size());
}

void filler::move(const lane& on, const piece& part, std::uintptr_t to, std::uintptr_t from,
                  std::size_t size_bytes) {
  const auto result =
      runtime_->hipMemcpyAsync(bytes_at(to), bytes_at(from), size_bytes, hip::hipMemcpyDefault, on.stream);
  runtime_->check(result, "hipMemcpyAsync", [&] {
    return std::pair("'" + part.whose->name + "'", "dst=" + hexadecimal(to) + ", src=" + hexadecimal(from) +
                                                       ", size=" + std::to_string(size_bytes));
  });
}

void filler::await(const lane& on, const piece& part) {
  runtime_->check(runtime_->hipStreamSynchronize(on.stream), "hipStreamSynchronize",
                  [&] { return std::pair("'" + part.whose->name + "'", std::string()); });
}

}  // namespace hipplan
