// libdrm_amdgpu, as far as ROCr uses it: virtual memory is imported and mapped through it.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "libc.hpp"
#include "machine.hpp"

using namespace standin;

// The types behind libdrm's opaque handles, and what amdgpu.h declares.
struct amdgpu_device {
  int descriptor;
  u32 gpu;
};
struct amdgpu_bo {
  Buffer* buffer;
  u32 gpu, number;
};
struct amdgpu_bo_import_result {
  amdgpu_bo* buffer;
  u64 size;
};

namespace {

constexpr u32 kDmabuf = 2;                              // amdgpu_bo_handle_type_dma_buf_fd
constexpr u64 kReadable = 1 << 1, kWriteable = 1 << 2;  // AMDGPU_VM_PAGE_*
enum MapOperation : u32 { kMap = 1, kUnmap = 2, kClear = 3, kReplace = 4 };
constexpr unsigned long kGemMmap = 1, kGemVa = 8;  // DRM_AMDGPU_*
constexpr u32 kFamilyAi = 141;

auto& imports = *new std::map<u32, amdgpu_bo*>;  // by number
u32 next_number = 1;

using Table = std::map<u64, Mapping>;

bool overlaps(const Table& table, u64 address, u64 size) {
  const auto next = table.lower_bound(address + 1);
  if (next != table.begin() && std::prev(next)->first + std::prev(next)->second.size > address) return true;
  return next != table.end() && next->first < address + size;
}

int map_pages(Table* table, const amdgpu_bo& import, u64 offset, u64 size, u64 address, u64 flags,
              bool replace) {
  if ((address | offset) % kPage || !size || offset + size > round_up(import.buffer->size, kPage))
    return -EINVAL;
  if (!replace && overlaps(*table, address, size)) return -EINVAL;
  (*table)[address] = Mapping{size,          import.buffer,           offset, (flags & kWriteable) != 0,
                              import.number, (flags & kReadable) != 0};
  return 0;
}

int change_pages(u32 gpu, const amdgpu_bo* import, u64 offset, u64 size, u64 address, u64 flags,
                 u32 operation) {
  Table& table = machine().page_tables[gpu];
  size = round_up(size, kPage);
  log(2, "gpu %u: page table operation %u on %#llx + %#llx, flags %#llx", gpu, operation,
      static_cast<unsigned long long>(address), static_cast<unsigned long long>(size),
      static_cast<unsigned long long>(flags));
  switch (operation) {
    case kMap:
    case kReplace:
      return map_pages(&table, *import, offset, size, address, flags, operation == kReplace);
    case kUnmap: {
      const auto found = table.find(address);
      if (found == table.end() || found->second.buffer != import->buffer) return -ENOENT;
      table.erase(found);
      return 0;
    }
    case kClear:
      table.erase(table.lower_bound(address), table.lower_bound(address + size));
      return 0;
    default:
      return -EINVAL;
  }
}

amdgpu_bo* import_of(u32 number) {
  const auto found = imports.find(number);
  return found == imports.end() ? nullptr : found->second;
}

}  // namespace

EXPORT int drmOpenRender(int minor) {
  char path[64];
  snprintf(path, sizeof path, "/dev/dri/renderD%d", minor);
  return open(path, O_RDWR | O_CLOEXEC);
}

EXPORT int drmClose(int descriptor) { return close(descriptor); }

EXPORT int amdgpu_device_initialize(int descriptor, u32* major, u32* minor, amdgpu_device** device) {
  const int gpu = driver_of(descriptor);
  if (gpu < 0) return -EINVAL;
  *major = 3;
  *minor = 61;
  *device = new amdgpu_device{open_driver(gpu), static_cast<u32>(gpu)};
  return 0;
}

EXPORT int amdgpu_device_deinitialize(amdgpu_device* device) {
  close(device->descriptor);
  delete device;
  return 0;
}

EXPORT int amdgpu_device_get_fd(amdgpu_device* device) { return device->descriptor; }

EXPORT const char* amdgpu_get_marketing_name(amdgpu_device*) { return "AMD Instinct (stand-in)"; }

EXPORT int amdgpu_query_gpu_info(amdgpu_device* device, void* information) {
  struct {
    u32 asic, chip_revision, chip_external_revision, family;
  } head{};
  std::lock_guard lock(mutex());
  head.asic = machine().gpus[device->gpu].device_id;
  head.family = kFamilyAi;
  memcpy(information, &head, sizeof head);
  return 0;
}

EXPORT int amdgpu_bo_import(amdgpu_device* device, u32 type, u32 shared, amdgpu_bo_import_result* result) {
  std::lock_guard lock(mutex());
  Token token;
  if (type != kDmabuf || !read_token(static_cast<int>(shared), &token)) return -EINVAL;
  Buffer* buffer = import_buffer(static_cast<int>(shared), token);
  if (!buffer) return -EINVAL;
  auto* import = imports[next_number] = new amdgpu_bo{buffer, device->gpu, next_number};
  next_number++;
  *result = {import, buffer->size};
  return 0;
}

EXPORT int amdgpu_bo_export(amdgpu_bo* import, u32 type, u32* shared) {
  std::lock_guard lock(mutex());
  if (type != kDmabuf) {
    *shared = import->number;
    return 0;
  }
  const int descriptor = export_buffer(import->buffer);
  if (descriptor < 0) return -errno;
  *shared = static_cast<u32>(descriptor);
  return 0;
}

EXPORT int amdgpu_bo_free(amdgpu_bo* import) {
  std::lock_guard lock(mutex());
  imports.erase(import->number);
  for (Table& table : machine().page_tables)
    for (auto entry = table.begin(); entry != table.end();)
      entry = entry->second.importer == import->number ? table.erase(entry) : std::next(entry);
  put(import->buffer);
  delete import;
  return 0;
}

EXPORT int amdgpu_bo_cpu_map(amdgpu_bo* import, void** bytes) {
  std::lock_guard lock(mutex());
  *bytes = view(import->buffer);
  return *bytes ? 0 : -ENOMEM;
}

EXPORT int amdgpu_bo_query_info(amdgpu_bo* import, void* information) {
  memset(information, 0, 64);
  memcpy(information, &import->buffer->size, sizeof import->buffer->size);
  return 0;
}

EXPORT int amdgpu_bo_set_metadata(amdgpu_bo*, void*) { return 0; }

EXPORT int amdgpu_bo_va_op(amdgpu_bo* import, u64 offset, u64 size, u64 address, u64 flags, u32 operation) {
  std::lock_guard lock(mutex());
  return change_pages(import->gpu, import, offset, size, address, flags, operation);
}

EXPORT int drmCommandWriteRead(int descriptor, unsigned long command, void* data, unsigned long) {
  std::lock_guard lock(mutex());
  if (command == kGemMmap) {
    const amdgpu_bo* import = import_of(*static_cast<u32*>(data));
    if (!import) return -ENOENT;
    *static_cast<u64*>(data) = mmap_offset(*import->buffer);
    return 0;
  }
  if (command == kGemVa) {
    struct {
      u32 handle, padding, operation, flags;
      u64 address, offset, size;
    } wanted;
    memcpy(&wanted, data, sizeof wanted);
    const amdgpu_bo* import = import_of(wanted.handle);
    const int gpu = driver_of(descriptor);
    if (gpu < 0 || (!import && wanted.operation != kClear)) return -ENOENT;
    return change_pages(static_cast<u32>(gpu), import, wanted.offset, wanted.size, wanted.address,
                        wanted.flags, wanted.operation);
  }
  log(0, "command %lu of a render node is not there", command);
  return -EINVAL;
}
