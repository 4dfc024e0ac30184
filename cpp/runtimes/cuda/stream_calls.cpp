// Streams. A hipStream_t is a CUstream; null is the legacy default stream of the current device.
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

}  // namespace hipcuda
