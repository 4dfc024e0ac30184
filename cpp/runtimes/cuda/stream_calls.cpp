// Streams and events. A hipStream_t is a CUstream; null is the legacy default stream of the current device.
#include "calls.hpp"

namespace hipcuda {

void hipStreamCreateWithFlags(hipStream_t* stream, unsigned int flags) {
  require(stream && (flags == hipStreamDefault || flags == hipStreamNonBlocking));
  CUstream created = nullptr;
  check(driver().cuStreamCreate(&created, flags));
  *stream = reinterpret_cast<hipStream_t>(created);
}

void hipStreamDestroy(hipStream_t stream) { check(driver().cuStreamDestroy_v2(to_cuda(stream))); }

void hipStreamSynchronize(hipStream_t stream) { check(driver().cuStreamSynchronize(to_cuda(stream))); }

void hipEventCreateWithFlags(hipEvent_t* event, unsigned int flags) {
  require(event && (flags == 0 || flags == hipEventDisableTiming));  // CUDA's number too
  CUevent created = nullptr;
  check(driver().cuEventCreate(&created, flags));
  *event = reinterpret_cast<hipEvent_t>(created);
}

void hipEventRecord(hipEvent_t event, hipStream_t stream) {
  check(driver().cuEventRecord(to_cuda(event), to_cuda(stream)));
}

void hipEventQuery(hipEvent_t event) { check(driver().cuEventQuery(to_cuda(event))); }

void hipEventDestroy(hipEvent_t event) { check(driver().cuEventDestroy_v2(to_cuda(event))); }

}  // namespace hipcuda
