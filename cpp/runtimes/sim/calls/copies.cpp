// hipMemcpy and all its relatives: one rule book, many names.
#include "access.hpp"
#include "calls/support.hpp"

namespace hipsim::calls {
namespace {

std::uint64_t bit(int device) { return device == host_device ? 0 : std::uint64_t{1} << device; }

// AMD's runtime picks the engine by owner, stream or current device; a right of any of them is enough.
hipError_t copy_checked(const char* function, const machine& m, void* dst, const void* src, std::size_t bytes,
                        int engine) {
  const auto to = address_of(dst);
  const auto from = address_of(src);
  if (wraps(to, bytes) || wraps(from, bytes)) return hipErrorInvalidValue;
  if (bytes > room_at(m, to) || bytes > room_at(m, from)) {
    note(function,
         std::to_string(bytes) + " bytes run past the memory known at " + hex(to) + " or " + hex(from));
    return hipErrorInvalidValue;
  }
  const auto engines = bit(engine) | bit(owner_of(m, to)) | bit(owner_of(m, from));
  auto problem = copy_refusal(m, from, bytes, false, engines);
  if (problem.empty()) problem = copy_refusal(m, to, bytes, true, engines);
  if (!problem.empty()) {
    note(function, problem);
    return hipErrorInvalidValue;
  }
  copy_bytes(m, to, from, bytes);
  return hipSuccess;
}

hipError_t copy(const char* function, void* dst, const void* src, std::size_t bytes, hipMemcpyKind kind,
                hipStream_t stream) {
  if (bytes == 0) return hipSuccess;
  if (!dst || !src) return hipErrorInvalidValue;
  const unsigned int direction = kind;
  if (direction > hipMemcpyDefault && direction != hipMemcpyDeviceToDeviceNoCU)
    return hipErrorInvalidMemcpyDirection;
  const reading m;
  int engine = 0;
  if (const auto code = stream_device(function, *m, stream, engine); code != hipSuccess) return code;
  if (dst == src && kind == hipMemcpyDefault) return hipSuccess;
  const bool both_foreign = !is_known(*m, address_of(dst)) && !is_known(*m, address_of(src));
  const bool names_a_device = kind != hipMemcpyHostToHost && kind != hipMemcpyDefault;
  if (both_foreign && names_a_device && !m->has_xnack()) return hipErrorInvalidValue;
  return copy_checked(function, *m, dst, src, bytes, engine);
}

hipError_t copy_between(const char* function, void* dst, int dst_device, const void* src, int src_device,
                        std::size_t bytes, hipStream_t stream) {
  const reading m;
  if (!m->is_device(dst_device) || !m->is_device(src_device)) return hipErrorInvalidDevice;
  if (bytes == 0) return hipSuccess;
  if (!dst || !src) return hipErrorInvalidValue;
  int engine = 0;
  if (const auto code = stream_device(function, *m, stream, engine); code != hipSuccess) return code;
  return copy_checked(function, *m, dst, src, bytes, engine);
}

}  // namespace

hipError_t hipMemcpy(void* dst, const void* src, std::size_t sizeBytes, hipMemcpyKind kind) {
  return copy("hipMemcpy", dst, src, sizeBytes, kind, nullptr);
}

hipError_t hipMemcpyAsync(void* dst, const void* src, std::size_t sizeBytes, hipMemcpyKind kind,
                          hipStream_t stream) {
  return copy("hipMemcpyAsync", dst, src, sizeBytes, kind, stream);
}

hipError_t hipMemcpyWithStream(void* dst, const void* src, std::size_t sizeBytes, hipMemcpyKind kind,
                               hipStream_t stream) {
  return copy("hipMemcpyWithStream", dst, src, sizeBytes, kind, stream);
}

hipError_t hipMemcpyHtoD(hipDeviceptr_t dst, const void* src, std::size_t sizeBytes) {
  return copy("hipMemcpyHtoD", dst, src, sizeBytes, hipMemcpyHostToDevice, nullptr);
}

hipError_t hipMemcpyDtoH(void* dst, hipDeviceptr_t src, std::size_t sizeBytes) {
  return copy("hipMemcpyDtoH", dst, src, sizeBytes, hipMemcpyDeviceToHost, nullptr);
}

hipError_t hipMemcpyDtoD(hipDeviceptr_t dst, hipDeviceptr_t src, std::size_t sizeBytes) {
  return copy("hipMemcpyDtoD", dst, src, sizeBytes, hipMemcpyDeviceToDevice, nullptr);
}

hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t dst, const void* src, std::size_t sizeBytes,
                              hipStream_t stream) {
  return copy("hipMemcpyHtoDAsync", dst, src, sizeBytes, hipMemcpyHostToDevice, stream);
}

hipError_t hipMemcpyDtoHAsync(void* dst, hipDeviceptr_t src, std::size_t sizeBytes, hipStream_t stream) {
  return copy("hipMemcpyDtoHAsync", dst, src, sizeBytes, hipMemcpyDeviceToHost, stream);
}

hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t dst, hipDeviceptr_t src, std::size_t sizeBytes,
                              hipStream_t stream) {
  return copy("hipMemcpyDtoDAsync", dst, src, sizeBytes, hipMemcpyDeviceToDevice, stream);
}

hipError_t hipMemcpyPeer(void* dst, int dstDevice, const void* src, int srcDevice, std::size_t sizeBytes) {
  return copy_between("hipMemcpyPeer", dst, dstDevice, src, srcDevice, sizeBytes, nullptr);
}

hipError_t hipMemcpyPeerAsync(void* dst, int dstDevice, const void* src, int srcDevice, std::size_t sizeBytes,
                              hipStream_t stream) {
  return copy_between("hipMemcpyPeerAsync", dst, dstDevice, src, srcDevice, sizeBytes, stream);
}

}  // namespace hipsim::calls
