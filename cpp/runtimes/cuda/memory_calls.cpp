// Ordinary, pinned and registered memory; copies and fills.
#include <cstdint>
#include <initializer_list>
#include <map>
#include <mutex>
#include <utility>

#include "calls.hpp"
#include "host_pages.hpp"
#include "pointers.hpp"

namespace hipcuda {
namespace {

/// HIP runs a copy or fill on the device that has the memory; CUDA's null stream uses only the current
/// context, and returns InvalidValue for memory that it cannot access. Then this tries the contexts of the
/// memory's devices. CUDA does not order the null streams of two devices, so this waits for both. (Other
/// streams belong to a context.)
template <class Call>
void run_on_null_stream(std::initializer_list<const void*> pointers, Call call) {
  CUresult result = call();
  for (const void* ptr : pointers) {
    if (result != CUDA_ERROR_INVALID_VALUE) break;
    const int owner = ask_about(ptr).device;
    if (!is_device(owner) || owner == current_device()) continue;
    check(driver().cuStreamSynchronize(nullptr));
    const context_scope scope(owner);
    result = call();
    if (result == CUDA_SUCCESS) result = driver().cuStreamSynchronize(nullptr);
  }
  check(result);
}

/// Checks the kind of a copy, which is not used otherwise: CUDA finds the direction from the addresses.
void require_kind(hipMemcpyKind kind) {
  require(kind <= hipMemcpyDefault || kind == hipMemcpyDeviceToDeviceNoCU, hipErrorInvalidMemcpyDirection);
}

/// Checks the arguments. Returns false if there is nothing to copy.
bool is_copy(const void* dst, const void* src, std::size_t bytes, hipMemcpyKind kind) {
  if (bytes == 0) return false;
  require(dst && src);
  require_kind(kind);
  return true;
}

/// The memory that hipHostRegister registered: no CUDA query distinguishes it from hipHostMalloc's.
class registrations {
 public:
  void add(void* ptr, std::size_t size, unsigned int flags) {
    const std::scoped_lock lock(mutex_);
    const auto [at, is_new] = sizes_.try_emplace(to_address(ptr), size);
    const CUresult result = driver().cuMemHostRegister_v2(ptr, size, flags);
    if (result != CUDA_SUCCESS && is_new) sizes_.erase(at);
    check(result);
  }

  void remove(void* ptr) {
    const std::scoped_lock lock(mutex_);
    const CUresult result = driver().cuMemHostUnregister(ptr);
    require(result != CUDA_ERROR_INVALID_VALUE, hipErrorHostMemoryNotRegistered);  // pinned, not registered
    check(result);
    sizes_.erase(to_address(ptr));
  }

  [[nodiscard]] bool begin_at(const void* ptr) {
    const std::scoped_lock lock(mutex_);
    return sizes_.contains(to_address(ptr));
  }

  [[nodiscard]] bool hold(const void* ptr) {
    const std::scoped_lock lock(mutex_);
    const auto next = sizes_.upper_bound(to_address(ptr));
    return next != sizes_.begin() && to_address(ptr) - std::prev(next)->first < std::prev(next)->second;
  }

 private:
  std::mutex mutex_;
  std::map<CUdeviceptr, std::size_t> sizes_;
};

registrations& registered() {
  static auto& all = *new registrations;  // never destroyed: memory may be freed while the process exits
  return all;
}

/// What hipMalloc made. From another device's context, and where PyTorch ran before, the driver shows only
/// the block of 2 MiB that a small buffer lies in; HIP names the buffer (seen on H100, driver 580).
class allocations {
 public:
  using sizes = std::map<CUdeviceptr, std::size_t>;

  /// Nothing here allocates: the memory exists already.
  void add(sizes::node_type entry) noexcept {
    const std::scoped_lock lock(mutex_);
    const auto there = sizes_.find(entry.key());
    if (there != sizes_.end()) sizes_.erase(there);  // other code freed that one
    sizes_.insert(std::move(entry));
  }

  void remove(const void* ptr) noexcept {
    const std::scoped_lock lock(mutex_);
    sizes_.erase(to_address(ptr));
  }

  /// Narrows a block of the driver to the buffer in it that holds an address.
  void narrow(CUdeviceptr address, CUdeviceptr& base, std::size_t& size) {
    const std::scoped_lock lock(mutex_);
    const auto next = sizes_.upper_bound(address);
    if (next == sizes_.begin()) return;
    const auto& [begin, bytes] = *std::prev(next);
    if (address - begin >= bytes || begin < base || begin + bytes > base + size) return;
    base = begin;
    size = bytes;
  }

 private:
  std::mutex mutex_;
  sizes sizes_;
};

allocations& allocated() {
  static auto& all = *new allocations;  // as registered()
  return all;
}

/// Frees memory of any kind: hipFree and hipHostFree accept each other's memory.
void free_any(void* ptr) {
  if (!ptr || pinned().remove(ptr)) return;
  const pointer_facts facts = ask_about(ptr);
  const bool on_host = facts.type == CU_MEMORYTYPE_HOST && !facts.is_managed;
  check(on_host ? driver().cuMemFreeHost(ptr) : driver().cuMemFree_v2(to_address(ptr)));
  allocated().remove(ptr);
}

}  // namespace

void hipMalloc(void** ptr, std::size_t size) {
  require(ptr);
  *ptr = nullptr;
  if (size == 0) return;
  allocations::sizes made{{0, size}};
  auto entry = made.extract(made.begin());
  check(driver().cuMemAlloc_v2(&entry.key(), size));
  *ptr = to_pointer(entry.key());
  allocated().add(std::move(entry));
}

// All of CUDA's memory is coherent, as AMD's is with flag 1. The others have no counterpart.
void hipExtMallocWithFlags(void** ptr, std::size_t size, unsigned int flags) {
  require(ptr && flags <= 4);
  require(flags <= 1, hipErrorNotSupported);
  hipMalloc(ptr, size);
}

void hipFree(void* ptr) {
  if (registered().begin_at(ptr)) return registered().remove(ptr);
  free_any(ptr);
}

void hipHostMalloc(void** ptr, std::size_t size, unsigned int flags) {
  require(ptr);
  *ptr = nullptr;
  if (size == 0) return;
  const auto wanted = host_malloc_flags(flags);
  const bool by_threads = pinned_pages::are_for(size) && (wanted & hipHostMallocWriteCombined) == 0;
  if (by_threads) *ptr = pinned().make(size, wanted);
  if (!*ptr) check(driver().cuMemHostAlloc(ptr, size, wanted));
}

void hipHostFree(void* ptr) { free_any(ptr); }

void hipHostRegister(void* hostPtr, std::size_t sizeBytes, unsigned int flags) {
  require(hostPtr && sizeBytes != 0);
  registered().add(hostPtr, sizeBytes, host_register_flags(flags));
}

void hipHostUnregister(void* hostPtr) {
  require(hostPtr);
  require(!pinned().at(hostPtr), hipErrorHostMemoryNotRegistered);
  registered().remove(hostPtr);
}

void hipHostGetDevicePointer(void** devPtr, void* hostPtr, unsigned int flags) {
  require(devPtr && hostPtr && flags == 0);
  CUdeviceptr address = 0;
  check(driver().cuMemHostGetDevicePointer_v2(&address, hostPtr, flags));
  *devPtr = to_pointer(address);
}

void hipHostGetFlags(unsigned int* flags, void* hostPtr) {
  require(flags && hostPtr && !registered().hold(hostPtr));
  if (const auto block = pinned().at(hostPtr)) {
    *flags = block->flags;
    return;
  }
  check(driver().cuMemHostGetFlags(flags, hostPtr));
}

void hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* ptr) {
  require(attributes);
  const pointer_facts facts = ptr ? ask_about(ptr) : pointer_facts{};
  *attributes = {};
  attributes->type = to_hip(static_cast<CUmemorytype>(facts.type), facts.is_managed != 0);
  attributes->device = hipInvalidDeviceId;
  if (attributes->type == hipMemoryTypeUnregistered) return;
  attributes->device = facts.device;
  // CUDA hides the device pointer if the current device has no access; HIP returns it, and it equals ptr.
  attributes->devicePointer = facts.on_device ? to_pointer(facts.on_device) : const_cast<void*>(ptr);
  attributes->hostPointer = facts.on_host;
  attributes->isManaged = facts.is_managed != 0;
  if (const auto block = pinned().at(ptr)) {
    attributes->allocationFlags = block->flags;
  } else if (attributes->type == hipMemoryTypeHost) {
    const auto result = driver().cuMemHostGetFlags(&attributes->allocationFlags, const_cast<void*>(ptr));
    if (result != CUDA_ERROR_INVALID_VALUE)
      check(result);  // registered memory: the driver does not know its flags
  }
}

void hipMemGetAddressRange(void** base, std::size_t* size, void* ptr) {
  CUdeviceptr found = 0;
  std::size_t bytes = 0;
  const CUresult result = driver().cuMemGetAddressRange_v2(&found, &bytes, to_address(ptr));
  const bool hidden = result == CUDA_ERROR_NOT_FOUND || result == CUDA_ERROR_INVALID_VALUE ||
                      (result == CUDA_SUCCESS && found == 0);
  if (hidden) {  // a mapping that the current device may not access, or one of host memory
    const auto piece = piece_at(to_address(ptr));
    if (!piece) fail(hipErrorNotFound);
    found = piece->base;
    bytes = piece->size;
  } else {
    check(result);
  }
  allocated().narrow(to_address(ptr), found, bytes);
  if (base) *base = to_pointer(found);
  if (size) *size = bytes;
}

void hipMemGetHandleForAddressRange(void* handle, void* dptr, std::size_t size,
                                    hipMemRangeHandleType handleType, unsigned long long flags) {
  require(handle && dptr && size != 0 && flags == 0 && handleType == hipMemRangeHandleTypeDmaBufFd);
  require(driver().cuMemGetHandleForAddressRange != nullptr, hipErrorNotSupported);
  check(driver().cuMemGetHandleForAddressRange(handle, to_address(dptr), size,
                                               CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
}

void hipMemcpy(void* dst, const void* src, std::size_t sizeBytes, hipMemcpyKind kind) {
  if (!is_copy(dst, src, sizeBytes, kind)) return;
  const auto call = [&] { return driver().cuMemcpy(to_address(dst), to_address(src), sizeBytes); };
  run_on_null_stream({dst, src}, call);
}

void hipMemcpyAsync(void* dst, const void* src, std::size_t sizeBytes, hipMemcpyKind kind,
                    hipStream_t stream) {
  require_kind(kind);  // also if there is nothing to copy
  if (!is_copy(dst, src, sizeBytes, kind)) return;
  const auto call = [&] {
    return driver().cuMemcpyAsync(to_address(dst), to_address(src), sizeBytes, to_cuda(stream));
  };
  if (stream) return check(call());
  run_on_null_stream({dst, src}, call);
}

namespace {

// CUDA starts a fill that runs past the end or over a hole; it faults, and the context is lost. HIP returns
// InvalidValue, as this does.
void require_memory(void* dst, std::size_t size) {
  const auto start = to_address(dst);
  require(size <= ~start);  // must not wrap around the end of the address space
  auto next = start;
  for (auto piece = piece_at(next); piece; piece = piece_at(next)) {
    next = piece->base + piece->size;
    if (next - start >= size) return;
  }
  require(next == start);  // otherwise it begins in a mapping and continues in a hole
  require_inside_allocation(dst, size);
}

}  // namespace

void hipMemset(void* dst, int value, std::size_t sizeBytes) {
  if (sizeBytes == 0) return;
  require(dst);
  require_memory(dst, sizeBytes);
  const auto byte = static_cast<unsigned char>(value);
  run_on_null_stream({dst}, [&] { return driver().cuMemsetD8_v2(to_address(dst), byte, sizeBytes); });
}

void hipMemsetAsync(void* dst, int value, std::size_t sizeBytes, hipStream_t stream) {
  if (sizeBytes == 0) return;
  require(dst);
  require_memory(dst, sizeBytes);
  const auto byte = static_cast<unsigned char>(value);
  const auto call = [&] {
    return driver().cuMemsetD8Async(to_address(dst), byte, sizeBytes, to_cuda(stream));
  };
  if (stream) return check(call());
  run_on_null_stream({dst}, call);
}

}  // namespace hipcuda
