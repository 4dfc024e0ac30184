#include "kfd.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "events.hpp"
#include "svm.hpp"

namespace standin {

namespace {

// Memory that the program has: it must be there, and it counts as the host's.
int record_of_registered(kfd_ioctl_alloc_memory_of_gpu_args* wanted, u64 size, u32 gpu, Buffer** made) {
  Machine& here = machine();
  const VirtualMemory memory = look_at(wanted->mmap_offset / kPage * kPage, size);
  if (!memory.present || !memory.readable) return fail(EFAULT);
  if (here.host_used + size > here.host_limit) return fail(ENOMEM);
  here.host_used += size;
  *made = new_record(size, wanted->flags, gpu);
  (*made)->registered = wanted->mmap_offset;
  (*made)->counted = true;
  return 0;
}

int new_memory(u64 size, u32 flags, u32 index, bool shareable, Buffer** made) {
  Machine& here = machine();
  Gpu& gpu = here.gpus[index];
  if (flags & KFD_IOC_ALLOC_MEM_FLAGS_VRAM) {
    if (gpu.used + here.page_tables_take() + size > gpu.vram) return fail(ENOMEM);
    gpu.used += size;
    gpu.used_in_big_pages += round_up(size, kBigPage);
  } else {
    if (here.host_used + size > here.host_limit) return fail(ENOMEM);
    here.host_used += size;
  }
  *made = shareable ? new_record(size, flags, index) : new_buffer(size, flags, index);
  (*made)->counted = true;
  if (shareable && !make_shareable(*made)) {
    put(*made);
    return fail(EMFILE);
  }
  return 0;
}

int allocate(kfd_ioctl_alloc_memory_of_gpu_args* wanted) {
  const int gpu = gpu_of(wanted->gpu_id);
  if (gpu < 0 || !wanted->size) return fail(EINVAL);
  const u64 size = round_up(wanted->size, kPage);
  Buffer* buffer = nullptr;
  if (wanted->flags & KFD_IOC_ALLOC_MEM_FLAGS_USERPTR) {
    if (record_of_registered(wanted, size, gpu, &buffer)) return -1;
  } else if (wanted->flags & KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL) {
    buffer = new_record(size, wanted->flags, gpu);
    buffer->file = machine().memory;
    buffer->offset = machine().gpus[gpu].doorbells;
  } else if (new_memory(size, wanted->flags, gpu, !wanted->va_addr,
                        &buffer)) {  // virtual memory has no address
    return -1;
  }
  if (!buffer->registered) wanted->mmap_offset = mmap_offset(*buffer);
  wanted->handle = machine().next_handle++;
  machine().handles[wanted->handle] = new Handle{buffer, wanted->va_addr, size, {}};
  log(2, "gpu %d allocates %#llx + %#llx, flags %#x", gpu, wanted->va_addr, wanted->size, wanted->flags);
  return 0;
}

Handle* handle_of(u64 number) {
  const auto found = machine().handles.find(number);
  return found == machine().handles.end() ? nullptr : found->second;
}

int release(u64 number) {
  Handle* handle = handle_of(number);
  if (!handle) return fail(EINVAL);
  if (!handle->mapped.empty()) return fail(EBUSY);
  machine().handles.erase(number);
  put(handle->buffer);
  delete handle;
  return 0;
}

int map(kfd_ioctl_map_memory_to_gpu_args* wanted) {
  Handle* handle = handle_of(wanted->handle);
  if (!handle) return fail(EINVAL);
  const u32* ids = reinterpret_cast<u32*>(wanted->device_ids_array_ptr);
  for (; wanted->n_success < wanted->n_devices; wanted->n_success++) {
    const int gpu = gpu_of(ids[wanted->n_success]);
    if (gpu < 0) return fail(EINVAL);
    handle->mapped.insert(gpu);
    log(2, "gpu %d maps %#llx", gpu, static_cast<unsigned long long>(handle->address));
    machine().page_tables[gpu][handle->address] = Mapping{handle->size, handle->buffer, 0, true};
  }
  return 0;
}

int unmap(kfd_ioctl_unmap_memory_from_gpu_args* wanted) {
  Handle* handle = handle_of(wanted->handle);
  if (!handle) return fail(EINVAL);
  const u32* ids = reinterpret_cast<u32*>(wanted->device_ids_array_ptr);
  for (; wanted->n_success < wanted->n_devices; wanted->n_success++) {
    const int gpu = gpu_of(ids[wanted->n_success]);
    if (gpu < 0) return fail(EINVAL);
    if (handle->mapped.erase(gpu)) machine().page_tables[gpu].erase(handle->address);
  }
  return 0;
}

int dmabuf_information(kfd_ioctl_get_dmabuf_info_args* wanted) {
  Token token;
  if (!read_token(static_cast<int>(wanted->dmabuf_fd), &token)) return fail(EINVAL);
  wanted->size = token.size;
  wanted->gpu_id = machine().gpus[token.gpu].id;
  wanted->flags = token.flags & (KFD_IOC_ALLOC_MEM_FLAGS_VRAM | KFD_IOC_ALLOC_MEM_FLAGS_GTT |
                                 KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC);
  wanted->metadata_size = 0;
  return 0;
}

int import_dmabuf(kfd_ioctl_import_dmabuf_args* wanted) {
  Token token;
  if (!read_token(static_cast<int>(wanted->dmabuf_fd), &token) || gpu_of(wanted->gpu_id) < 0)
    return fail(EINVAL);
  Buffer* buffer = import_buffer(static_cast<int>(wanted->dmabuf_fd), token);
  if (!buffer) return fail(EINVAL);
  wanted->handle = machine().next_handle++;
  machine().handles[wanted->handle] = new Handle{buffer, wanted->va_addr, buffer->size, {}};
  return 0;
}

int export_dmabuf(kfd_ioctl_export_dmabuf_args* wanted) {
  const Handle* handle = handle_of(wanted->handle);
  if (!handle || !handle->buffer->shareable) return fail(EINVAL);
  const int descriptor = export_buffer(handle->buffer);
  if (descriptor < 0) return -1;
  wanted->dmabuf_fd = static_cast<u32>(descriptor);
  return 0;
}

// Ranges of addresses that GPUs keep for themselves, as gfx9 has them.
int apertures(kfd_ioctl_get_process_apertures_new_args* wanted) {
  const auto& gpus = machine().gpus;
  if (wanted->num_of_nodes) {
    auto* nodes = reinterpret_cast<kfd_process_device_apertures*>(wanted->kfd_process_device_apertures_ptr);
    for (u32 i = 0; i < std::min<u32>(wanted->num_of_nodes, gpus.size()); i++) {
      nodes[i] = {};
      nodes[i].gpu_id = gpus[i].id;
      nodes[i].lds_base = 0x1000000000000;
      nodes[i].lds_limit = 0x10000ffffffff;
      nodes[i].scratch_base = 0x2000000000000;
      nodes[i].scratch_limit = 0x20000ffffffff;
      nodes[i].gpuvm_base = 0x1000000;
      nodes[i].gpuvm_limit = 0x7fffffffffff;
    }
  }
  wanted->num_of_nodes = static_cast<u32>(gpus.size());
  return 0;
}

int available_memory(kfd_ioctl_get_available_memory_args* wanted) {
  const int index = gpu_of(wanted->gpu_id);
  if (index < 0) return fail(EINVAL);
  const Gpu& gpu = machine().gpus[index];
  const u64 taken = gpu.used_in_big_pages + machine().page_tables_take();
  wanted->available = taken > gpu.vram ? 0 : (gpu.vram - taken) / kBigPage * kBigPage;
  return 0;
}

int clocks(kfd_ioctl_get_clock_counters_args* wanted) {
  wanted->gpu_clock_counter = gpu_clock();
  wanted->cpu_clock_counter = wanted->system_clock_counter = now();
  wanted->system_clock_freq = 1000000000;
  return 0;
}

int xnack(kfd_ioctl_set_xnack_mode_args* wanted) {
  if (wanted->xnack_enabled < 0)
    wanted->xnack_enabled = machine().xnack;
  else
    machine().xnack = wanted->xnack_enabled;
  return 0;
}

}  // namespace

int fail(int error) {
  errno = error;
  return -1;
}

int kfd_ioctl(unsigned long request, void* given) {
  std::unique_lock lock(mutex());
#define ARGUMENTS(name) static_cast<kfd_ioctl_##name##_args*>(given)
  switch (_IOC_NR(request)) {  // not the whole request: the sizes in it differ by release
    case _IOC_NR(AMDKFD_IOC_GET_VERSION):
      ARGUMENTS(get_version)->major_version = 1;
      ARGUMENTS(get_version)->minor_version = 18;
      return 0;
    case _IOC_NR(AMDKFD_IOC_GET_PROCESS_APERTURES_NEW):
      return apertures(ARGUMENTS(get_process_apertures_new));
    case _IOC_NR(AMDKFD_IOC_GET_CLOCK_COUNTERS):
      return clocks(ARGUMENTS(get_clock_counters));
    case _IOC_NR(AMDKFD_IOC_AVAILABLE_MEMORY):
      return available_memory(ARGUMENTS(get_available_memory));

    case _IOC_NR(AMDKFD_IOC_ALLOC_MEMORY_OF_GPU):
      return allocate(ARGUMENTS(alloc_memory_of_gpu));
    case _IOC_NR(AMDKFD_IOC_FREE_MEMORY_OF_GPU):
      return release(ARGUMENTS(free_memory_of_gpu)->handle);
    case _IOC_NR(AMDKFD_IOC_MAP_MEMORY_TO_GPU):
      return map(ARGUMENTS(map_memory_to_gpu));
    case _IOC_NR(AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU):
      return unmap(ARGUMENTS(unmap_memory_from_gpu));
    case _IOC_NR(AMDKFD_IOC_GET_DMABUF_INFO):
      return dmabuf_information(ARGUMENTS(get_dmabuf_info));
    case _IOC_NR(AMDKFD_IOC_IMPORT_DMABUF):
      return import_dmabuf(ARGUMENTS(import_dmabuf));
    case _IOC_NR(AMDKFD_IOC_EXPORT_DMABUF):
      return export_dmabuf(ARGUMENTS(export_dmabuf));
    case _IOC_NR(AMDKFD_IOC_SVM):
      return svm_ioctl(static_cast<kfd_ioctl_svm_args*>(given));
    case _IOC_NR(AMDKFD_IOC_SET_XNACK_MODE):
      return xnack(ARGUMENTS(set_xnack_mode));

    case _IOC_NR(AMDKFD_IOC_CREATE_EVENT):
      return create_event(ARGUMENTS(create_event));
    case _IOC_NR(AMDKFD_IOC_DESTROY_EVENT):
      return destroy_event(ARGUMENTS(destroy_event)->event_id);
    case _IOC_NR(AMDKFD_IOC_SET_EVENT):
      set_event(ARGUMENTS(set_event)->event_id);
      return 0;
    case _IOC_NR(AMDKFD_IOC_RESET_EVENT):
      return reset_event(ARGUMENTS(reset_event)->event_id);
    case _IOC_NR(AMDKFD_IOC_WAIT_EVENTS):
      return wait_for_events(ARGUMENTS(wait_events), lock);

    case _IOC_NR(AMDKFD_IOC_CREATE_QUEUE):
      return create_queue(ARGUMENTS(create_queue));
    case _IOC_NR(AMDKFD_IOC_DESTROY_QUEUE):
      return destroy_queue(ARGUMENTS(destroy_queue)->queue_id);

    case _IOC_NR(AMDKFD_IOC_ALLOC_QUEUE_GWS):
      ARGUMENTS(alloc_queue_gws)->first_gws = 0;
      return 0;
    case _IOC_NR(AMDKFD_IOC_RUNTIME_ENABLE):
      ARGUMENTS(runtime_enable)->capabilities_mask = 0;
      return 0;
    case _IOC_NR(AMDKFD_IOC_GET_TILE_CONFIG):
    case _IOC_NR(AMDKFD_IOC_SET_MEMORY_POLICY):
    case _IOC_NR(AMDKFD_IOC_UPDATE_QUEUE):
    case _IOC_NR(AMDKFD_IOC_SET_SCRATCH_BACKING_VA):
    case _IOC_NR(AMDKFD_IOC_SET_TRAP_HANDLER):
    case _IOC_NR(AMDKFD_IOC_ACQUIRE_VM):
    case _IOC_NR(AMDKFD_IOC_SET_CU_MASK):
      return 0;  // nothing that a user of memory could tell
    default:
      break;
  }
#undef ARGUMENTS
  log(1, "ioctl %#lx of /dev/kfd is not there", request);
  return fail(ENOTTY);
}

}  // namespace standin
