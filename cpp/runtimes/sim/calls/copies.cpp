// hipMemcpy and its variants, with the same rules.
#include <cstdio>
#include <cstdlib>

#include "access.hpp"
#include "calls/support.hpp"

namespace hipsim::calls {
namespace {

// Host memory on a NUMA node has the node's number in its location, which may be any: beyond 63 it is no
// GPU's.
std::uint64_t bit(int device) { return device < 0 || device > 63 ? 0 : std::uint64_t{1} << device; }

// For each side of a copy, the GPUs of which one accesses it (a bit per device).
struct engines {
  std::uint64_t to;
  std::uint64_t from;
};

// The GPU that copies up to 6.x, chosen by the devices of both sides.
int engine_of_6(const machine& m, std::uintptr_t to, std::uintptr_t from, int stream) {
  const int target = device_at(m, to);
  const int source = device_at(m, from);
  if (!is_known(m, to) || !is_known(m, from)) return is_known(m, to) ? target : source;
  if (target == source) return target;
  if (stream != source && !is_of_one_device(m, to)) return source;
  if (stream != target && !is_of_one_device(m, from)) return target;
  return stream;
}

// The GPUs that AMD's library chooses. Since 7.0: the stream's GPU, or a side's owner. What was created on
// the host has no owner: that of hipMalloc's memory on the other side copies it, else the stream's GPU alone.
engines choose_engines(const machine& m, std::uintptr_t to, std::uintptr_t from, int stream) {
  if (!m.rules.keeps_only_errors) {
    const auto engine = bit(engine_of_6(m, to, from, stream));
    return {engine, engine};
  }
  const int target = device_at(m, to);
  const int source = device_at(m, from);
  const bool pageable = !is_known(m, to) || !is_known(m, from);
  if (pageable) return {bit(stream), bit(stream)};
  const bool to_host = is_created_on_host(m, to);
  const bool from_host = is_created_on_host(m, from);
  const auto mapped = [&](std::uintptr_t address) {
    return containing(m.mappings, address) != m.mappings.end();
  };
  const bool of_one_kind = to_host == from_host || !mapped(to) || !mapped(from);
  if (target == source && of_one_kind) return {bit(target), bit(target)};
  const auto on_host = [&](std::uintptr_t other, int owner) {
    return bit(is_of_one_device(m, other) ? owner : stream);
  };
  return {to_host ? on_host(from, source) : bit(stream) | bit(target),
          from_host ? on_host(to, target) : bit(stream) | bit(source)};
}

// The device that owns the memory, if it belongs to one device alone.
int owner_at(const machine& m, std::uintptr_t address) {
  const auto piece = containing(m.mappings, address);
  if (piece != m.mappings.end()) return m.memory_of(piece->second).device;
  return is_of_one_device(m, address) ? device_at(m, address) : host_device;
}

// Devices without a link copy through staging memory, which AMD's library creates only if no two devices at
// all are linked.
bool lacks_staging(const machine& m, std::uintptr_t to, std::uintptr_t from) {
  const int target = owner_at(m, to);
  const int source = owner_at(m, from);
  const bool between = target != host_device && source != host_device && target != source;
  return between && !m.profile.linked(source, target) && !m.profile.links.empty();
}

hipError_t copy_checked(const char* function, const machine& m, void* dst, const void* src, std::size_t bytes,
                        hipMemcpyKind kind, int stream) {
  const auto to = address_of(dst);
  const auto from = address_of(src);
  if (wraps(to, bytes) || wraps(from, bytes)) return hipErrorInvalidValue;
  if (bytes > room_at(m, to) || bytes > room_at(m, from)) {
    note(function,
         std::to_string(bytes) + " bytes run past the memory known at " + hex(to) + " or " + hex(from));
    return hipErrorInvalidValue;
  }
  if (to == from && kind == hipMemcpyDefault) return hipSuccess;
  if (lacks_staging(m, to, from))
    return undefined(function, "the devices of both sides have no link, and others have");
  if (is_known(m, to) || is_known(m, from)) {
    const auto by = choose_engines(m, to, from, stream);
    auto problem = copy_refusal(m, from, bytes, false, by.from);
    if (problem.empty()) problem = copy_refusal(m, to, bytes, true, by.to);
    if (!problem.empty()) return gpu_fault(function, m, problem);
  }
  copy_bytes(m, to, from, bytes);
  return hipSuccess;
}

bool is_direction(hipMemcpyKind kind) {
  return static_cast<unsigned int>(kind) <= hipMemcpyDefault || kind == hipMemcpyDeviceToDeviceNoCU;
}

hipError_t copy(const char* function, const machine& m, void* dst, const void* src, std::size_t bytes,
                hipMemcpyKind kind, hipStream_t stream) {
  if (bytes == 0) return hipSuccess;
  if (!dst || !src) return hipErrorInvalidValue;
  if (!is_direction(kind)) return hipErrorInvalidMemcpyDirection;
  int engine = 0;
  if (const auto code = stream_device(function, m, stream, engine); code != hipSuccess) return code;
  if (m.rules.copy_kind_must_fit) {
    const bool nowhere = kind == hipMemcpyHostToDevice && !is_known(m, address_of(dst));
    const bool from_nowhere = kind == hipMemcpyDeviceToHost && !is_known(m, address_of(src));
    if (nowhere || from_nowhere) return hipErrorInvalidValue;
  }
  const bool both_foreign = !is_known(m, address_of(dst)) && !is_known(m, address_of(src));
  const bool names_a_device = kind != hipMemcpyHostToHost && kind != hipMemcpyDefault;
  if (both_foreign && names_a_device && !m.has_xnack()) return hipErrorInvalidValue;
  return copy_checked(function, m, dst, src, bytes, kind, engine);
}

hipError_t copy(const char* function, void* dst, const void* src, std::size_t bytes, hipMemcpyKind kind,
                hipStream_t stream) {
  wait_for_stream(stream);
  const reading m;
  return copy(function, *m, dst, src, bytes, kind, stream);
}

hipError_t copy_between(const char* function, void* dst, int dst_device, const void* src, int src_device,
                        std::size_t bytes, hipStream_t stream) {
  wait_for_stream(stream);
  const reading m;
  if (!m->is_device(dst_device) || !m->is_device(src_device)) return hipErrorInvalidDevice;
  return copy(function, *m, dst, src, bytes, hipMemcpyDeviceToDevice, stream);
}

}  // namespace

hipError_t gpu_fault(const char* function, const machine& m, const std::string& problem) {
  note(function, "a GPU would fault: " + problem);
  if (m.profile.gpu_fault_aborts) {
    std::fprintf(stderr, "Memory access fault by GPU node (simulated), in %s: %s\n", function,
                 problem.c_str());
    std::abort();
  }
  return hipErrorIllegalAddress;
}

hipError_t hipMemcpy(void* dst, const void* src, std::size_t sizeBytes, hipMemcpyKind kind) {
  return copy("hipMemcpy", dst, src, sizeBytes, kind, nullptr);
}

hipError_t hipMemcpyAsync(void* dst, const void* src, std::size_t sizeBytes, hipMemcpyKind kind,
                          hipStream_t stream) {
  if (!is_direction(kind)) return hipErrorInvalidMemcpyDirection;  // checked even if there is nothing to copy
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
