#include "lane.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "scoped_device.hpp"

namespace hipplan {
namespace {

using kind = transfer_job::kind;

/// Read at a time for a checksum: what stays in the processor's cache.
constexpr std::size_t summed_bytes = std::size_t{512} << 10;

std::byte* bytes_at(std::uintptr_t address) { return reinterpret_cast<std::byte*>(address); }
std::uintptr_t address_of(const std::byte* bytes) { return reinterpret_cast<std::uintptr_t>(bytes); }

/// Repeats a pattern, by copying what is written already: the size doubles with each copy.
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

void lane::next(const transfer_piece& piece) {
  if (memory_.device == cpu_device) {
    if (do_on_host(piece)) done_bytes_ += piece.size_bytes;
    return;
  }
  auto* const own = memory_.staging + (second_ ? memory_.piece_bytes : 0);
  if (!prepare(piece, own)) return;
  end(piece, own);
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

bool lane::prepare(const transfer_piece& piece, std::byte* own) {
  const auto& job = *piece.job;
  switch (job.what) {
    case kind::load:
      return load(piece, own);
    case kind::fill:
      if (!one_byte(job.pattern)) {
        repeat(own, job.pattern, std::min(memory_.piece_bytes, piece.size_bytes));
      }
      return true;
    case kind::copy:
      if (job.passes_two()) {
        fetch_through(piece, own);
      } else if (job.staged && !job.to_host && job.from_device == cpu_device) {
        std::memcpy(own, bytes_at(job.from + piece.at), piece.size_bytes);
      }
      return true;
    case kind::save:
    case kind::sum:
      return true;
  }
  return true;
}

void lane::enqueue(const transfer_piece& piece) {
  const auto& job = *piece.job;
  const auto place = job.address + piece.at;
  const auto own = address_of(staging_);
  switch (job.what) {
    case kind::load:
      return move(piece, place, own, piece.size_bytes, memory_.stream);
    case kind::save:
      return move(piece, own, place, piece.size_bytes, memory_.stream);
    case kind::fill:
      return fill(piece);
    case kind::copy:
    case kind::sum:
      break;
  }
  const auto from = job.from + piece.at;
  const bool through_own = job.staged && job.from_device != memory_.device;
  if (through_own) {
    move(piece, job.to_host ? own : place, job.to_host ? from : own, piece.size_bytes, memory_.stream);
  } else if (job.from_device == cpu_device || job.from_device == memory_.device) {
    move(piece, place, from, piece.size_bytes, memory_.stream);
  } else {
    const auto result = runtime_.hipMemcpyPeerAsync(bytes_at(place), memory_.device.value, bytes_at(from),
                                                    job.from_device.value, piece.size_bytes, memory_.stream);
    runtime_.check(result, "hipMemcpyPeerAsync", [&] {
      return std::pair("'" + job.name + "'", "dst=" + hexadecimal(place) + ", src=" + hexadecimal(from) +
                                                 ", size=" + std::to_string(piece.size_bytes));
    });
  }
}

bool lane::settle(const transfer_piece& piece, const std::byte* arrived) {
  const auto& job = *piece.job;
  if (job.what == kind::save) return save(piece, arrived);
  if (job.staged && job.to_host) {
    std::memcpy(bytes_at(job.address + piece.at), arrived, piece.size_bytes);
  }
  return true;
}

bool lane::do_on_host(const transfer_piece& piece) {
  const auto& job = *piece.job;
  auto* const place = bytes_at(job.address + piece.at);
  switch (job.what) {
    case kind::load:
      return load(piece, place);
    case kind::save:
      return save(piece, place);
    case kind::sum:
      return sum(piece);
    case kind::fill:
      repeat(place, job.pattern, piece.size_bytes);
      break;
    case kind::copy:
      std::memcpy(place, bytes_at(job.from + piece.at), piece.size_bytes);
      break;
  }
  return true;
}

bool lane::load(const transfer_piece& piece, std::byte* to) {
  if (!read_rows(piece.job->rows, piece.at, to, piece.size_bytes, stop_)) return false;
  add(piece, to);
  return true;
}

bool lane::save(const transfer_piece& piece, const std::byte* from) {
  add(piece, from);
  return write_rows(piece.job->rows, piece.at, from, piece.size_bytes, stop_);
}

bool lane::sum(const transfer_piece& piece) {
  const auto& job = *piece.job;
  if (job.rows.descriptor < 0) {
    add(piece, bytes_at(job.address + piece.at));
    return true;
  }
  std::vector<std::byte> read(std::min(piece.size_bytes, summed_bytes));
  for (auto part = piece; part.at < piece.at + piece.size_bytes; part.at += part.size_bytes) {
    part.size_bytes = std::min(read.size(), piece.at + piece.size_bytes - part.at);
    if (!load(part, read.data())) return false;
  }
  return true;
}

void lane::add(const transfer_piece& piece, const std::byte* bytes) {
  const auto& job = *piece.job;
  if (!job.sum) return;
  sums_.add(*job.sum, job.rows.offset + job.rows.begin_bytes + piece.at, bytes, piece.size_bytes);
}

void lane::fill(const transfer_piece& piece) {
  const auto& job = *piece.job;
  const auto address = job.address + piece.at;
  if (one_byte(job.pattern)) {
    const auto result = runtime_.hipMemsetAsync(
        bytes_at(address), static_cast<unsigned char>(job.pattern.front()), piece.size_bytes, memory_.stream);
    return runtime_.check(result, "hipMemsetAsync", [&] {
      return std::pair("'" + job.name + "'",
                       "dst=" + hexadecimal(address) + ", size=" + std::to_string(piece.size_bytes));
    });
  }
  auto done = std::min(memory_.piece_bytes, piece.size_bytes);
  move(piece, address, address_of(staging_), done, memory_.stream);
  while (done < piece.size_bytes) {  // copies on the device: the filled part doubles each time
    const auto more = std::min(done, piece.size_bytes - done);
    move(piece, address + done, address, more, memory_.stream);
    done += more;
  }
}

void lane::fetch_through(const transfer_piece& piece, std::byte* own) {
  const auto& job = *piece.job;
  const auto& other = partner_(job.from_device);
  auto* const partner_staging = other.staging + other.piece_bytes;
  const std::lock_guard alone(*other.in_use);
  const scoped_device current(runtime_, other.device);
  move(piece, address_of(partner_staging), job.from + piece.at, piece.size_bytes, other.stream);
  wait_for(other.stream, piece);
  std::memcpy(own, partner_staging, piece.size_bytes);
}

void lane::move(const transfer_piece& piece, std::uintptr_t to, std::uintptr_t from, std::size_t size_bytes,
                hip::hipStream_t stream) {
  const auto result =
      runtime_.hipMemcpyAsync(bytes_at(to), bytes_at(from), size_bytes, hip::hipMemcpyDefault, stream);
  runtime_.check(result, "hipMemcpyAsync", [&] {
    return std::pair("'" + piece.job->name + "'", "dst=" + hexadecimal(to) + ", src=" + hexadecimal(from) +
                                                      ", size=" + std::to_string(size_bytes));
  });
}

void lane::wait_for(hip::hipStream_t stream, const transfer_piece& piece) {
  runtime_.check(runtime_.hipStreamSynchronize(stream), "hipStreamSynchronize",
                 [&] { return std::pair("'" + piece.job->name + "'", std::string()); });
}

}  // namespace hipplan
