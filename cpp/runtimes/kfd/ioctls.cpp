#include "ioctls.hpp"

#include <asm/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "events.hpp"
#include "faults.hpp"
#include "log.hpp"
#include "machine.hpp"
#include "managed.hpp"
#include "memory.hpp"
#include "program_memory.hpp"
#include "queues.hpp"

namespace kfdsim {
namespace {

// Each do_... function does one ioctl under mutex(), and returns 0 or an errno.

allocation* allocation_of(u64 handle) {
  const auto found = machine().allocations.find(handle);
  return found == machine().allocations.end() ? nullptr : &found->second;
}

u64 new_handle(physical* memory, u64 address, u64 size) {
  const u64 handle = machine().next_handle++;
  machine().allocations[handle] = {memory, address, size, {}};
  return handle;
}

// 0, or why the kernel refuses such memory, whatever there is of it.
int check_wanted(const kfd_ioctl_alloc_memory_of_gpu_args& wanted) {
  const u64 size = wanted.size;
  constexpr u32 kinds = memory_vram | memory_gtt | memory_userptr | memory_doorbell | memory_mmio_remap;
  if (!size || !(wanted.flags & kinds)) return EINVAL;
  if (wanted.flags & memory_doorbell && size != doorbell_bytes) return EINVAL;
  if (wanted.flags & memory_mmio_remap && size != page_bytes) return EINVAL;
  if (size > memory_file_bytes) return ENOMEM;
  if (wanted.va_addr % page_bytes || wanted.va_addr > ~size) return EINVAL;
  if (!(wanted.flags & memory_userptr)) return 0;
  const u64 begin = wanted.mmap_offset / page_bytes * page_bytes, pages = round_up(size, page_bytes);
  if (begin > ~pages) return EFAULT;
  const auto range = inspect(begin, pages);
  return range.present && range.readable ? 0 : EFAULT;
}

// Memory of a kind that is counted: 0, or an errno.
int get_memory(physical* memory, bool is_virtual) {
  if (!take(memory)) return ENOMEM;
  if (memory->registered) return 0;
  if (is_virtual) return make_shareable(memory) ? 0 : errno;
  return make_present(memory) ? 0 : ENOMEM;
}

int do_alloc_memory_of_gpu(kfd_ioctl_alloc_memory_of_gpu_args& wanted) {
  const int gpu = gpu_of(wanted.gpu_id);
  if (gpu < 0) return EINVAL;
  if (const int error = check_wanted(wanted)) return error;
  const u64 size = round_up(wanted.size, page_bytes);
  auto* const memory = new_record(size, wanted.flags, static_cast<u32>(gpu));
  if (wanted.flags & memory_doorbell) {
    memory->file = machine().memory;
    memory->place = machine().gpus[memory->gpu].doorbells;
  } else {
    if (wanted.flags & memory_userptr) memory->registered = wanted.mmap_offset;
    const bool is_virtual = wanted.va_addr == 0;  // which libdrm maps
    if (const int error = get_memory(memory, is_virtual)) {
      put(memory);
      return error;
    }
  }
  if (!memory->registered) wanted.mmap_offset = memory->place;
  wanted.handle = new_handle(memory, wanted.va_addr, size);
  log(2, "gpu %d allocates %#llx + %#llx, flags %#x", gpu, static_cast<unsigned long long>(wanted.va_addr),
      static_cast<unsigned long long>(wanted.size), wanted.flags);
  return 0;
}

int do_free_memory_of_gpu(const kfd_ioctl_free_memory_of_gpu_args& wanted) {
  const auto* const found = allocation_of(wanted.handle);
  if (!found) return EINVAL;
  if (!found->mapped.empty()) return EBUSY;
  auto* const memory = found->memory;
  machine().allocations.erase(wanted.handle);
  put(memory);
  return 0;
}

// Calls use(allocation, gpu) for each GPU in the arguments of a map or unmap, up to the first unknown GPU.
template <class Arguments, class Use>
int for_each_gpu(Arguments& wanted, Use use) {
  if (!wanted.n_devices || wanted.n_success > wanted.n_devices) return EINVAL;
  std::vector<u32> ids;
  if (const int error = read_array(&ids, wanted.device_ids_array_ptr, wanted.n_devices)) return error;
  auto* const found = allocation_of(wanted.handle);
  if (!found) return EINVAL;
  for (; wanted.n_success < wanted.n_devices; ++wanted.n_success) {
    const int gpu = gpu_of(ids[wanted.n_success]);
    if (gpu < 0) return EINVAL;
    use(*found, static_cast<u32>(gpu));
  }
  return 0;
}

int do_map_memory_to_gpu(kfd_ioctl_map_memory_to_gpu_args& wanted) {
  return for_each_gpu(wanted, [](allocation& memory, u32 gpu) {
    memory.mapped.insert(gpu);
    log(2, "gpu %u maps %#llx", gpu, static_cast<unsigned long long>(memory.address));
    machine().page_tables[gpu][memory.address] = mapping{memory.size, memory.memory, 0, true, true, 0};
  });
}

int do_unmap_memory_from_gpu(kfd_ioctl_unmap_memory_from_gpu_args& wanted) {
  return for_each_gpu(wanted, [](allocation& memory, u32 gpu) {
    if (memory.mapped.erase(gpu)) machine().page_tables[gpu].erase(memory.address);
  });
}

int do_get_dmabuf_info(kfd_ioctl_get_dmabuf_info_args& wanted) {
  dmabuf shared{};
  if (!read_dmabuf(static_cast<int>(wanted.dmabuf_fd), &shared)) return EINVAL;
  const u32 room = wanted.metadata_size;
  const auto& metadata = shared.metadata;
  wanted.size = shared.size;
  wanted.gpu_id = shared.gpu_id;
  wanted.flags = shared.flags & (memory_vram | memory_gtt | memory_public);
  wanted.metadata_size = metadata.size_metadata;
  if (!wanted.metadata_ptr || !metadata.size_metadata) return 0;
  if (room < metadata.size_metadata) return EINVAL;
  return write_program(wanted.metadata_ptr, metadata.umd_metadata, metadata.size_metadata) ? 0 : EFAULT;
}

int do_import_dmabuf(kfd_ioctl_import_dmabuf_args& wanted) {
  dmabuf shared{};
  const auto descriptor = static_cast<int>(wanted.dmabuf_fd);
  if (!read_dmabuf(descriptor, &shared) || gpu_of(wanted.gpu_id) < 0) return EINVAL;
  auto* const memory = import_memory(descriptor, shared);
  if (!memory) return EINVAL;
  wanted.handle = new_handle(memory, wanted.va_addr, memory->size);
  return 0;
}

int do_export_dmabuf(kfd_ioctl_export_dmabuf_args& wanted) {
  const auto* const found = allocation_of(wanted.handle);
  if (!found || found->memory->flags & memory_doorbell) return EINVAL;
  if (found->memory->registered) return EPERM;  // as the kernel's amdgpu_gem_prime_export
  const int descriptor = export_memory(found->memory);
  if (descriptor < 0) return errno;
  wanted.dmabuf_fd = static_cast<u32>(descriptor);
  return 0;
}

int do_ipc_export_handle(kfd_ioctl_ipc_export_handle_args& wanted) {
  const auto* const found = allocation_of(wanted.handle);
  if (!found || found->memory->flags & memory_doorbell || found->memory->registered) return EINVAL;
  return name_memory(found->memory, wanted.flags, wanted.share_handle) ? 0 : errno;
}

int do_ipc_import_handle(kfd_ioctl_ipc_import_handle_args& wanted) {
  const int descriptor = open_named(wanted.share_handle);
  dmabuf shared{};
  physical* memory = nullptr;
  if (descriptor >= 0 && read_dmabuf(descriptor, &shared)) memory = import_memory(descriptor, shared);
  if (descriptor >= 0) close(descriptor);
  if (!memory) return EINVAL;
  wanted.handle = new_handle(memory, wanted.va_addr, memory->size);
  wanted.mmap_offset = memory->place;
  wanted.flags = shared.flags_of_export;
  return 0;
}

// The address ranges that GPUs reserve for themselves, as on gfx9.
int do_get_process_apertures_new(kfd_ioctl_get_process_apertures_new_args& wanted) {
  std::vector<kfd_process_device_apertures> nodes;
  for (const auto& gpu : machine().gpus) {
    kfd_process_device_apertures node{};
    node.gpu_id = gpu.id;
    node.lds_base = 0x1000000000000;
    node.lds_limit = 0x10000ffffffff;
    node.scratch_base = 0x2000000000000;
    node.scratch_limit = 0x20000ffffffff;
    node.gpuvm_base = 0x1000000;
    node.gpuvm_limit = 0x7fffffffffff;
    nodes.push_back(node);
  }
  const u64 room = std::min<u64>(wanted.num_of_nodes, nodes.size());
  wanted.num_of_nodes = static_cast<u32>(nodes.size());
  const bool written =
      write_program(wanted.kfd_process_device_apertures_ptr, nodes.data(), room * sizeof nodes[0]);
  return written ? 0 : EFAULT;
}

int do_available_memory(kfd_ioctl_get_available_memory_args& wanted) {
  free_unshared();
  const int index = gpu_of(wanted.gpu_id);
  if (index < 0) return EINVAL;
  const auto& gpu = machine().gpus[static_cast<u32>(index)];
  const u64 taken = gpu.used_in_big_pages + machine().page_tables_take();
  wanted.available = taken > gpu.bytes ? 0 : (gpu.bytes - taken) / big_page_bytes * big_page_bytes;
  if (gpu.integrated)
    wanted.available = std::min(wanted.available, machine().host_limit - machine().host_used);
  return 0;
}

int do_get_clock_counters(kfd_ioctl_get_clock_counters_args& wanted) {
  wanted.gpu_clock_counter = gpu_clock();
  wanted.cpu_clock_counter = wanted.system_clock_counter = now_ns();
  wanted.system_clock_freq = 1000000000;
  return 0;
}

int do_set_xnack_mode(kfd_ioctl_set_xnack_mode_args& wanted) {
  if (wanted.xnack_enabled < 0) {
    wanted.xnack_enabled = machine().xnack;
  } else {
    machine().xnack = wanted.xnack_enabled != 0;
  }
  return 0;
}

int do_get_version(kfd_ioctl_get_version_args& wanted) {
  wanted.major_version = 1;
  wanted.minor_version = 18;
  return 0;
}

int do_alloc_queue_gws(kfd_ioctl_alloc_queue_gws_args& wanted) {
  wanted.first_gws = 0;
  return 0;
}

int do_runtime_enable(kfd_ioctl_runtime_enable_args& wanted) {
  wanted.capabilities_mask = 0;
  return 0;
}

// Compares only the number of the request: the sizes in it differ from release to release.
const char* request_name(unsigned long request) {
  switch (_IOC_NR(request)) {
#define IOCTL(name, number) \
  case number:              \
    return #name;
#include "calls.def"
    default:
      return nullptr;
  }
}

// The arguments of one ioctl: as many bytes of the program's memory as the request names, and zeros behind
// them, as in the kernel.
struct ioctl_arguments {
  u64 size = 0;
  alignas(u64) char bytes[1 << _IOC_SIZEBITS] = {};
};

int carry_out(unsigned long request, ioctl_arguments* given, std::unique_lock<std::recursive_mutex>& lock) {
#define CALL(name, does, type) \
  case ioctl_##name:           \
    return does(*reinterpret_cast<type*>(given->bytes));
  switch (_IOC_NR(request)) {
    CALL(get_version, do_get_version, kfd_ioctl_get_version_args)
    CALL(get_process_apertures_new, do_get_process_apertures_new, kfd_ioctl_get_process_apertures_new_args)
    CALL(get_clock_counters, do_get_clock_counters, kfd_ioctl_get_clock_counters_args)
    CALL(available_memory, do_available_memory, kfd_ioctl_get_available_memory_args)
    CALL(alloc_memory_of_gpu, do_alloc_memory_of_gpu, kfd_ioctl_alloc_memory_of_gpu_args)
    CALL(free_memory_of_gpu, do_free_memory_of_gpu, kfd_ioctl_free_memory_of_gpu_args)
    CALL(map_memory_to_gpu, do_map_memory_to_gpu, kfd_ioctl_map_memory_to_gpu_args)
    CALL(unmap_memory_from_gpu, do_unmap_memory_from_gpu, kfd_ioctl_unmap_memory_from_gpu_args)
    CALL(get_dmabuf_info, do_get_dmabuf_info, kfd_ioctl_get_dmabuf_info_args)
    CALL(import_dmabuf, do_import_dmabuf, kfd_ioctl_import_dmabuf_args)
    CALL(export_dmabuf, do_export_dmabuf, kfd_ioctl_export_dmabuf_args)
    CALL(ipc_import_handle, do_ipc_import_handle, kfd_ioctl_ipc_import_handle_args)
    CALL(ipc_export_handle, do_ipc_export_handle, kfd_ioctl_ipc_export_handle_args)
    CALL(set_xnack_mode, do_set_xnack_mode, kfd_ioctl_set_xnack_mode_args)
    CALL(create_event, create_event, kfd_ioctl_create_event_args)
    CALL(destroy_event, destroy_event, kfd_ioctl_destroy_event_args)
    CALL(set_event, set_event, kfd_ioctl_set_event_args)
    CALL(reset_event, reset_event, kfd_ioctl_reset_event_args)
    CALL(create_queue, create_queue, kfd_ioctl_create_queue_args)
    CALL(destroy_queue, destroy_queue, kfd_ioctl_destroy_queue_args)
    CALL(alloc_queue_gws, do_alloc_queue_gws, kfd_ioctl_alloc_queue_gws_args)
    CALL(runtime_enable, do_runtime_enable, kfd_ioctl_runtime_enable_args)
    case ioctl_svm:
      return managed_call(reinterpret_cast<kfd_ioctl_svm_args*>(given->bytes), given->size);
    case ioctl_wait_events:
      return wait_for_events(*reinterpret_cast<kfd_ioctl_wait_events_args*>(given->bytes), lock);
    default:
      return 0;  // the rest of calls.def: without effect on memory
  }
#undef CALL
}

// Results are copied out after an error, too: a map or unmap says how far it came.
int carried_out(unsigned long request, u64 program) {
  ioctl_arguments given;
  given.size = _IOC_SIZE(request);
  if (_IOC_DIR(request) & _IOC_WRITE && !read_program(given.bytes, program, given.size)) return EFAULT;
  int error = 0;
  {
    std::unique_lock lock(mutex());
    error = carry_out(request, &given, lock);
  }
  if (_IOC_DIR(request) & _IOC_READ && !write_program(program, given.bytes, given.size)) return EFAULT;
  return error;
}

}  // namespace

int kfd_ioctl(unsigned long request, void* arguments) {
  const char* const name = request_name(request);
  int error = ENOTTY;
  if (name) {
    error = failing(name);
    if (!error) error = carried_out(request, reinterpret_cast<u64>(arguments));
  }
  if (!error) return 0;
  log(1, "ioctl %#lx (%s): %s", request & 0xff, name ? name : "unknown", std::strerror(error));
  errno = error;
  return -1;
}

}  // namespace kfdsim
