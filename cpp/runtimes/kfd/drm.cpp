// The functions of libdrm_amdgpu that ROCr uses: it imports and maps virtual memory with them.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "faults.hpp"
#include "log.hpp"
#include "machine.hpp"
#include "memory.hpp"
#include "render.hpp"

using namespace kfdsim;  // NOLINT(google-build-using-namespace): what follows are C functions

// The type behind libdrm's opaque handle.
struct amdgpu_device {
  int descriptor;
  u32 gpu;
};
// As amdgpu.h declares it.
struct amdgpu_bo_import_result {
  drm_import* buffer;
  u64 size;
};

namespace {

constexpr u32 as_dmabuf = 2;                    // amdgpu_bo_handle_type_dma_buf_fd
constexpr u32 domain_gtt = 2, domain_vram = 4;  // AMDGPU_GEM_DOMAIN_*
constexpr u64 page_readable = 1 << 1;           // AMDGPU_VM_PAGE_*
constexpr u64 page_writeable = 1 << 2;
enum map_operation : u32 { op_map = 1, op_unmap = 2, op_clear = 3, op_replace = 4 };
constexpr unsigned long command_gem_mmap = 1;  // DRM_AMDGPU_*
constexpr unsigned long command_gem_va = 8;

u32 next_number = 1;

bool overlaps(const page_table& table, u64 address, u64 size) {
  const auto next = table.lower_bound(address + 1);
  if (next != table.begin() && std::prev(next)->first + std::prev(next)->second.size > address) return true;
  return next != table.end() && next->first < address + size;
}

int map_pages(page_table& table, const drm_import& import, u64 offset, const mapping& wanted, u64 address,
              bool replace) {
  const u64 size = wanted.size, whole = round_up(import.memory->size, page_bytes);
  if ((address | offset) % page_bytes || !size || size > whole || offset > whole - size || address > ~size)
    return -EINVAL;
  if (!replace && overlaps(table, address, size)) return -EINVAL;
  table[address] = wanted;
  return 0;
}

int change_pages(u32 gpu, const drm_import* import, u64 offset, u64 size, u64 address, u64 flags,
                 u32 operation) {
  auto& table = machine().page_tables[gpu];
  size = round_up(size, page_bytes);
  log(2, "gpu %u: page table operation %u on %#llx + %#llx, flags %#llx", gpu, operation,
      static_cast<unsigned long long>(address), static_cast<unsigned long long>(size),
      static_cast<unsigned long long>(flags));
  switch (operation) {
    case op_map:
    case op_replace: {
      const bool readable = (flags & page_readable) != 0;
      const bool writable = (flags & page_writeable) != 0;
      const mapping wanted{size, import->memory, offset, readable, writable, import->number};
      return map_pages(table, *import, offset, wanted, address, operation == op_replace);
    }
    case op_unmap: {
      const auto found = table.find(address);
      if (found == table.end() || found->second.memory != import->memory) return -ENOENT;
      table.erase(found);
      return 0;
    }
    case op_clear:
      table.erase(table.lower_bound(address), table.lower_bound(address + size));
      return 0;
    default:
      return -EINVAL;
  }
}

drm_import* import_of(u32 number) {
  const auto& imports = machine().imports;
  const auto found = imports.find(number);
  return found == imports.end() ? nullptr : found->second;
}

}  // namespace

KFDSIM_EXPORT int drmOpenRender(int minor) {
  char path[64];
  std::snprintf(path, sizeof path, "/dev/dri/renderD%d", minor);
  return open(path, O_RDWR | O_CLOEXEC);
}

KFDSIM_EXPORT int drmClose(int descriptor) { return close(descriptor); }

KFDSIM_EXPORT int amdgpu_device_initialize(int descriptor, u32* major, u32* minor, amdgpu_device** device) {
  if (const int error = failing("amdgpu_device_initialize")) return -error;
  const int gpu = driver_of(descriptor);
  if (gpu < 0) return -EINVAL;
  const int own = open_driver(gpu);
  if (own < 0) return -errno;
  *major = drm_major_version;
  *minor = drm_minor_version;
  *device = new amdgpu_device{own, static_cast<u32>(gpu)};
  return 0;
}

KFDSIM_EXPORT int amdgpu_device_deinitialize(amdgpu_device* device) {
  close(device->descriptor);
  delete device;
  return 0;
}

KFDSIM_EXPORT int amdgpu_device_get_fd(amdgpu_device* device) { return device->descriptor; }

KFDSIM_EXPORT const char* amdgpu_get_marketing_name(amdgpu_device* device) {
  const std::lock_guard lock(mutex());
  return machine().gpus[device->gpu].name.c_str();
}

KFDSIM_EXPORT int amdgpu_query_gpu_info(amdgpu_device* device, amdgpu_gpu_info* out) {
  const std::lock_guard lock(mutex());
  const gpu_state& gpu = machine().gpus[device->gpu];
  *out = {};
  out->asic_id = gpu.device_id;
  out->family_id = family_ai;
  out->ids_flags = gpu.integrated ? flag_fusion : 0;
  out->gpu_counter_freq = counter_khz;
  out->max_engine_clk = gpu.engine_khz;
  out->max_memory_clk = gpu.memory_khz;
  out->cu_active_number = gpu.compute_units;
  out->vram_bit_width = gpu.memory_bits;
  return 0;
}

KFDSIM_EXPORT int amdgpu_bo_import(amdgpu_device* device, u32 type, u32 shared,
                                   amdgpu_bo_import_result* result) {
  if (const int error = failing("amdgpu_bo_import")) return -error;
  const std::lock_guard lock(mutex());
  dmabuf described{};
  const auto descriptor = static_cast<int>(shared);
  if (type != as_dmabuf || !read_dmabuf(descriptor, &described)) return -EINVAL;
  auto* const memory = import_memory(descriptor, described);
  if (!memory) return -EINVAL;
  auto* const import = new drm_import{memory, device->gpu, next_number++};
  machine().imports[import->number] = import;
  *result = {import, memory->size};
  return 0;
}

KFDSIM_EXPORT int amdgpu_bo_export(drm_import* import, u32 type, u32* shared) {
  if (const int error = failing("amdgpu_bo_export")) return -error;
  const std::lock_guard lock(mutex());
  if (type != as_dmabuf) {
    *shared = import->number;
    return 0;
  }
  const int descriptor = export_memory(import->memory);
  if (descriptor < 0) return -errno;
  *shared = static_cast<u32>(descriptor);
  return 0;
}

KFDSIM_EXPORT int amdgpu_bo_free(drm_import* import) {
  const std::lock_guard lock(mutex());
  machine().imports.erase(import->number);
  for (auto& table : machine().page_tables) {
    for (auto entry = table.begin(); entry != table.end();)
      entry = entry->second.import == import->number ? table.erase(entry) : std::next(entry);
  }
  put(import->memory);
  delete import;
  return 0;
}

KFDSIM_EXPORT int amdgpu_bo_cpu_map(drm_import* import, void** bytes) {
  if (const int error = failing("amdgpu_bo_cpu_map")) return -error;
  const std::lock_guard lock(mutex());
  *bytes = view(import->memory);
  return *bytes ? 0 : -ENOMEM;
}

KFDSIM_EXPORT int amdgpu_bo_query_info(drm_import* import, amdgpu_bo_info* out) {
  const std::lock_guard lock(mutex());
  const physical& memory = *import->memory;
  dmabuf shared{};
  if (!read_dmabuf(memory.file, &shared)) return -EINVAL;
  *out = {};
  out->alloc_size = memory.size;
  out->phys_alignment = page_bytes;
  out->preferred_heap = memory.flags & memory_vram ? domain_vram : domain_gtt;
  out->metadata = shared.metadata;
  return 0;
}

KFDSIM_EXPORT int amdgpu_bo_set_metadata(drm_import* import, const amdgpu_bo_metadata* wanted) {
  if (const int error = failing("amdgpu_bo_set_metadata")) return -error;
  const std::lock_guard lock(mutex());
  dmabuf shared{};
  if (wanted->size_metadata > sizeof wanted->umd_metadata || !read_dmabuf(import->memory->file, &shared))
    return -EINVAL;
  shared.metadata = *wanted;
  return write_dmabuf(*import->memory, shared) ? 0 : -errno;
}

KFDSIM_EXPORT int amdgpu_bo_va_op(drm_import* import, u64 offset, u64 size, u64 address, u64 flags,
                                  u32 operation) {
  if (const int error = failing("amdgpu_bo_va_op")) return -error;
  const std::lock_guard lock(mutex());
  return change_pages(import->gpu, import, offset, size, address, flags, operation);
}

namespace {

int gem_mmap(void* data) {
  const auto* const import = import_of(*static_cast<u32*>(data));
  if (!import) return -ENOENT;
  *static_cast<u64*>(data) = import->memory->place;
  return 0;
}

int gem_va(int descriptor, const void* data) {
  struct {
    u32 handle, padding, operation, flags;
    u64 address, offset, size;
  } wanted;
  std::memcpy(&wanted, data, sizeof wanted);
  const auto* const import = import_of(wanted.handle);
  const int gpu = driver_of(descriptor);
  if (gpu < 0 || (!import && wanted.operation != op_clear)) return -ENOENT;
  return change_pages(static_cast<u32>(gpu), import, wanted.offset, wanted.size, wanted.address, wanted.flags,
                      wanted.operation);
}

}  // namespace

KFDSIM_EXPORT int drmCommandWriteRead(int descriptor, unsigned long command, void* data, unsigned long) {
  if (command != command_gem_mmap && command != command_gem_va) {
    log(0, "command %lu of a render node is not supported", command);
    return -EINVAL;
  }
  if (const int error = failing(command == command_gem_va ? "gem_va" : "gem_mmap")) return -error;
  const std::lock_guard lock(mutex());
  return command == command_gem_va ? gem_va(descriptor, data) : gem_mmap(data);
}
