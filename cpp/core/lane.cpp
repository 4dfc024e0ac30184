#include "lane.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "scoped_device.hpp"

namespace hipplan {
namespace {

using kind = transfer_job::kind;

std::byte* bytes_at(std::uintptr_t address) { return reinterpret_cast<std::byte*>(address); }
std::uintptr_t address_of(const std::byte* bytes) { return reinterpret_cast<std::uintptr_t>(bytes); }

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

bool transfer_job::uses_staging() const noexcept {
  return device != cpu_device && (staged || what == kind::load || what == kind::save);
}

lane::~lane() {
  if (under_way_ && runtime_.may_call()) (void)runtime_.hipStreamSynchronize(memory_.stream);
}

void lane::next(const transfer_piece& part) {
  if (memory_.device == cpu_device) {
    if (do_on_host(part)) done_bytes_ += part.size_bytes;
    return;
  }
  auto* const own = memory_.staging + (second_ ? memory_.piece_bytes : 0);
  if (!prepare(part, own)) return;
  end(part, own);
  if (memory_.in_use == nullptr) {
    second_ = !second_;
  } else {
    finish();
  }
}

void lane::finish() {
  if (under_way_) end(std::nullopt, nullptr);
}

void lane::end(std::optional<transfer_piece> next, std::byte* own) {
  if (under_way_) wait_for(memory_.stream, *under_way_);
  const auto done = std::exchange(under_way_, next);
  const auto* const arrived = std::exchange(staging_, own);
  if (next) enqueue(*next);
  if (!done) return;
  if (settle(*done, arrived)) done_bytes_ += done->size_bytes;
}

bool lane::prepare(const transfer_piece& part, std::byte* own) {
  const auto& whole = *part.whose;
  switch (whole.what) {
    case kind::load:
      return read_rows(whole.rows, part.at, own, part.size_bytes, stop_);
    case kind::fill:
      if (!one_byte(whole.pattern)) {
        repeat(own, whole.pattern, std::min(memory_.piece_bytes, part.size_bytes));
      }
      return true;
    case kind::copy:
      if (whole.passes_two()) {
        fetch_through(part, own);
      } else if (whole.staged && !whole.to_host && whole.from_device == cpu_device) {
        std::memcpy(own, bytes_at(whole.from + part.at), part.size_bytes);
      }
      return true;
    case kind::save:
      return true;
  }
  return true;
}

void lane::enqueue(const transfer_piece& part) {
  const auto& whole = *part.whose;
  const auto place = whole.address + part.at;
  const auto own = address_of(staging_);
  switch (whole.what) {
    case kind::load:
      return move(part, place, own, part.size_bytes, memory_.stream);
    case kind::save:
      return move(part, own, place, part.size_bytes, memory_.stream);
    case kind::fill:
      return fill(part);
    case kind::copy:
      break;
  }
  const auto from = whole.from + part.at;
  const bool through_own = whole.staged && whole.from_device != memory_.device;
  if (through_own) {
    move(part, whole.to_host ? own : place, whole.to_host ? from : own, part.size_bytes, memory_.stream);
  } else if (whole.from_device == cpu_device || whole.from_device == memory_.device) {
    move(part, place, from, part.size_bytes, memory_.stream);
  } else {
    const auto result = runtime_.hipMemcpyPeerAsync(bytes_at(place), memory_.device.value, bytes_at(from),
                                                    whole.from_device.value, part.size_bytes, memory_.stream);
    runtime_.check(result, "hipMemcpyPeerAsync", [&] {
      return std::pair("'" + whole.name + "'", "dst=" + hexadecimal(place) + ", src=" + hexadecimal(from) +
                                                   ", size=" + std::to_string(part.size_bytes));
    });
  }
}

bool lane::settle(const transfer_piece& part, const std::byte* arrived) {
  const auto& whole = *part.whose;
  if (whole.what == kind::save) return write_rows(whole.rows, part.at, arrived, part.size_bytes, stop_);
  if (whole.staged && whole.to_host) {
    std::memcpy(bytes_at(whole.address + part.at), arrived, part.size_bytes);
  }
  return true;
}

bool lane::do_on_host(const transfer_piece& part) {
  const auto& whole = *part.whose;
  auto* const place = bytes_at(whole.address + part.at);
  switch (whole.what) {
    case kind::load:
      return read_rows(whole.rows, part.at, place, part.size_bytes, stop_);
    case kind::save:
      return write_rows(whole.rows, part.at, place, part.size_bytes, stop_);
    case kind::fill:
      repeat(place, whole.pattern, part.size_bytes);
      break;
    case kind::copy:
      std::memcpy(place, bytes_at(whole.from + part.at), part.size_bytes);
      break;
  }
  return true;
}

void lane::fill(const transfer_piece& part) {
  const auto& whole = *part.whose;
  const auto address = whole.address + part.at;
  if (one_byte(whole.pattern)) {
    const auto result =
        runtime_.hipMemsetAsync(bytes_at(address), static_cast<unsigned char>(whole.pattern.front()),
                                part.size_bytes, memory_.stream);
    return runtime_.check(result, "hipMemsetAsync", [&] {
      return std::pair("'" + whole.name + "'",
                       "dst=" + hexadecimal(address) + ", size=" + std::to_string(part.size_bytes));
    });
  }
  auto done = std::min(memory_.piece_bytes, part.size_bytes);
  move(part, address, address_of(staging_), done, memory_.stream);
  while (done < part.size_bytes) {  // on the device itself, doubling
    const auto more = std::min(done, part.size_bytes - done);
    move(part, address + done, address, more, memory_.stream);
    done += more;
  }
}

void lane::fetch_through(const transfer_piece& part, std::byte* own) {
  const auto& whole = *part.whose;
  const auto& other = partner_(whole.from_device);
  auto* const theirs = other.staging + other.piece_bytes;
  const std::lock_guard alone(*other.in_use);
  const scoped_device current(runtime_, other.device);
  move(part, address_of(theirs), whole.from + part.at, part.size_bytes, other.stream);
  wait_for(other.stream, part);
  std::memcpy(own, theirs, part.size_bytes);
}

void lane::move(const transfer_piece& part, std::uintptr_t to, std::uintptr_t from, std::size_t size_bytes,
                hip::hipStream_t stream) {
  const auto result =
      runtime_.hipMemcpyAsync(bytes_at(to), bytes_at(from), size_bytes, hip::hipMemcpyDefault, stream);
  runtime_.check(result, "hipMemcpyAsync", [&] {
    return std::pair("'" + part.whose->name + "'", "dst=" + hexadecimal(to) + ", src=" + hexadecimal(from) +
                                                       ", size=" + std::to_string(size_bytes));
  });
}

void lane::wait_for(hip::hipStream_t stream, const transfer_piece& part) {
  runtime_.check(runtime_.hipStreamSynchronize(stream), "hipStreamSynchronize",
                 [&] { return std::pair("'" + part.whose->name + "'", std::string()); });
}

}  // namespace hipplan
