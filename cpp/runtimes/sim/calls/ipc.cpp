// Sharing of hipMalloc's memory, and of events, between processes by handles of 64 bytes.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "calls/support.hpp"

namespace hipsim::calls {
namespace {

constexpr std::uint64_t memory_magic = 0x6d65'6d2d'6d69'7368;  // of any other library: no handle of ours
constexpr std::uint64_t event_magic = 0x7665'2d6d'6973'2d68;
constexpr unsigned int lazy_peer_access = 1;  // hipIpcMemLazyEnablePeerAccess, the only flag

// What a handle contains. As AMD's, it is of the whole allocation, wherever in it the pointer was.
struct shared_memory {
  std::uint64_t magic = 0;
  shared_file file;
  std::uint64_t bytes = 0;
};

struct shared_event {
  std::uint64_t magic = 0;
  pid_t process = 0;
  std::uint32_t flags = 0;
};

template <class Contents>
void pack(hipIpcHandle* handle, const Contents& contents) {
  static_assert(sizeof contents <= sizeof handle->reserved);
  std::memset(handle->reserved, 0, sizeof handle->reserved);
  std::memcpy(handle->reserved, &contents, sizeof contents);
}

template <class Contents>
Contents unpacked(const hipIpcHandle& handle) {
  Contents contents;
  std::memcpy(&contents, handle.reserved, sizeof contents);
  return contents;
}

// A block that was opened from the same handle; only releases that open memory once look for it.
auto opened_before(machine& m, const shared_memory& wanted) {
  return std::find_if(m.blocks.begin(), m.blocks.end(), [&](const auto& entry) {
    return entry.second.foreign && entry.second.memory.file()->identity() == wanted.file.identity;
  });
}

}  // namespace

hipError_t hipIpcGetMemHandle(hipIpcHandle* handle, void* ptr) {
  if (!handle || !ptr) return hipErrorInvalidValue;
  writing m;
  const auto address = address_of(ptr);
  if (containing(m->mappings, address) != m->mappings.end()) {
    return undefined("hipIpcGetMemHandle", hex(address) + " is mapped virtual memory");
  }
  const auto found = containing(m->blocks, address);
  if (found == m->blocks.end() || found->second.kind == block_kind::managed) return hipErrorInvalidValue;
  auto& owner = found->second;
  if (owner.kind != block_kind::device) {
    return undefined("hipIpcGetMemHandle", hex(address) + " is memory of the host");
  }
  if (owner.pooled && m->rules.pooled_memory_is_virtual) return hipErrorInvalidValue;
  pack(handle, shared_memory{memory_magic, m->own_file(found->first, owner).name(), owner.bytes});
  return hipSuccess;
}

hipError_t hipIpcOpenMemHandle(void** ptr, hipIpcHandle handle, unsigned int flags) {
  const auto wanted = unpacked<shared_memory>(handle);
  if (!ptr || flags != lazy_peer_access || wanted.magic != memory_magic) return hipErrorInvalidValue;
  if (wanted.file.process == getpid()) return hipErrorInvalidContext;
  writing m;
  if (m->rules.opens_memory_once) {
    if (const auto again = opened_before(*m, wanted); again != m->blocks.end()) {
      ++again->second.opened;
      *ptr = pointer_to(again->first);
      return hipSuccess;
    }
  }
  auto file = memory_file::open(wanted.file);
  if (!file || file->bytes() < wanted.bytes) {
    note("hipIpcOpenMemHandle", "the process that shared this memory has freed it, or has ended");
    return hipErrorInvalidDevicePointer;
  }
  block fresh;
  fresh.bytes = wanted.bytes;
  fresh.device = current_device();
  fresh.foreign = true;
  fresh.opened = 1;
  const auto bytes = file->bytes();
  fresh.memory = extent(std::move(file), 0, bytes);
  const auto address = m->show_device_memory(fresh);
  if (address == 0) return hipErrorOutOfMemory;
  *ptr = pointer_to(address);
  return hipSuccess;
}

hipError_t hipIpcCloseMemHandle(void* ptr) {
  if (!ptr) return hipErrorInvalidValue;
  writing m;
  const auto found = containing(m->blocks, address_of(ptr));
  if (found == m->blocks.end() || !found->second.foreign) return hipErrorInvalidValue;
  if (--found->second.opened == 0) m->drop_block(found);
  return hipSuccess;
}

hipError_t hipIpcGetEventHandle(hipIpcHandle* handle, hipEvent_t event) {
  if (!handle) return hipErrorInvalidValue;
  const reading m;
  const auto found = m->events.find(id_of(event));
  if (found == m->events.end()) return undefined("hipIpcGetEventHandle", hex(id_of(event)) + " is no event");
  if ((found->second.flags & hipEventInterprocess) == 0) return hipErrorInvalidConfiguration;
  pack(handle, shared_event{event_magic, getpid(), found->second.flags});
  return hipSuccess;
}

// Work is done before the call that asks for it returns, so no process has to wait for another's event.
hipError_t hipIpcOpenEventHandle(hipEvent_t* event, hipIpcHandle handle) {
  const auto wanted = unpacked<shared_event>(handle);
  if (!event || wanted.magic != event_magic) return hipErrorInvalidValue;
  if (wanted.process == getpid()) return hipErrorInvalidContext;
  return hipEventCreateWithFlags(event, wanted.flags);
}

}  // namespace hipsim::calls
