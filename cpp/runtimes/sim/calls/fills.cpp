// hipMemset and its variants for larger elements.
#include "access.hpp"
#include "calls/support.hpp"

namespace hipsim::calls {
namespace {

hipError_t fill(const char* function, void* dst, std::uint32_t value, int width, std::size_t count,
                hipStream_t stream) {
  // As on AMD, the product may overflow, even to 0.
  const std::uint64_t bytes = count * static_cast<std::size_t>(width);
  if (bytes == 0) return hipSuccess;
  if (!dst) return hipErrorInvalidValue;
  wait_for_stream(stream);
  const reading m;
  int engine = 0;
  if (const auto code = stream_device(function, *m, stream, engine); code != hipSuccess) return code;
  const auto to = address_of(dst);
  // A GPU kernel fills, so it cannot access the program's own memory.
  if (!is_known(*m, to) || wraps(to, bytes) || bytes > room_at(*m, to)) return hipErrorInvalidValue;
  // The stream's GPU fills; since 7.0 the owner, if that GPU has no access.
  const bool owned = m->rules.keeps_only_errors && !is_created_on_host(*m, to);
  const int owner = owned ? device_at(*m, to) : engine;
  const auto engines = std::uint64_t{1} << engine | std::uint64_t{1} << owner;
  if (const auto problem = copy_refusal(*m, to, bytes, true, engines); !problem.empty()) {
    return gpu_fault(function, *m, problem);
  }
  fill_bytes(*m, to, bytes, value, width);
  return hipSuccess;
}

std::uint32_t byte_of(int value) { return static_cast<unsigned char>(value); }

}  // namespace

hipError_t hipMemset(void* dst, int value, std::size_t sizeBytes) {
  return fill("hipMemset", dst, byte_of(value), 1, sizeBytes, nullptr);
}

hipError_t hipMemsetAsync(void* dst, int value, std::size_t sizeBytes, hipStream_t stream) {
  return fill("hipMemsetAsync", dst, byte_of(value), 1, sizeBytes, stream);
}

hipError_t hipMemsetD8(hipDeviceptr_t dst, unsigned char value, std::size_t count) {
  return fill("hipMemsetD8", dst, value, 1, count, nullptr);
}

hipError_t hipMemsetD8Async(hipDeviceptr_t dst, unsigned char value, std::size_t count, hipStream_t stream) {
  return fill("hipMemsetD8Async", dst, value, 1, count, stream);
}

hipError_t hipMemsetD16(hipDeviceptr_t dst, unsigned short value, std::size_t count) {
  return fill("hipMemsetD16", dst, value, 2, count, nullptr);
}

hipError_t hipMemsetD16Async(hipDeviceptr_t dst, unsigned short value, std::size_t count,
                             hipStream_t stream) {
  return fill("hipMemsetD16Async", dst, value, 2, count, stream);
}

hipError_t hipMemsetD32(hipDeviceptr_t dst, int value, std::size_t count) {
  return fill("hipMemsetD32", dst, static_cast<std::uint32_t>(value), 4, count, nullptr);
}

hipError_t hipMemsetD32Async(hipDeviceptr_t dst, int value, std::size_t count, hipStream_t stream) {
  return fill("hipMemsetD32Async", dst, static_cast<std::uint32_t>(value), 4, count, stream);
}

}  // namespace hipsim::calls
