// The kernel's interface, which is all that this library shares with AMD's software: the ioctls of /dev/kfd.
//
// Structures and numbers are those of the kernel's include/uapi/linux/kfd_ioctl.h, Linux 6.1 to 6.12, with
// its names. They are declared here, so that the stand-in does not depend on the age of the kernel's headers
// where it is built; tests/kfd/abi.cpp compares them with those of the system.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kfdsim {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i32 = std::int32_t;
using i64 = std::int64_t;

/// AMDKFD_IOC_*, without sizes and directions.
enum ioctl_number : u32 {
#define IOCTL(name, number) ioctl_##name = number,
#include "calls.def"
};

/// KFD_IOC_ALLOC_MEM_FLAGS_*
enum memory_flag : u32 {
  memory_vram = 1u << 0,
  memory_gtt = 1u << 1,
  memory_userptr = 1u << 2,
  memory_doorbell = 1u << 3,
  memory_mmio_remap = 1u << 4,
  memory_public = 1u << 29,
};

/// KFD_IOC_QUEUE_TYPE_*
enum queue_type : u32 {
  queue_type_compute_pm4,
  queue_type_sdma,
  queue_type_compute_aql,
  queue_type_sdma_xgmi,
  queue_type_sdma_by_engine  ///< from Linux 6.12 on
};
inline constexpr u32 event_type_signal = 0;  ///< KFD_IOC_EVENT_*

/// KFD_IOC_WAIT_RESULT_*
enum wait_outcome : u32 { wait_complete = 0, wait_timeout = 1, wait_fail = 2 };

inline constexpr u32 svm_op_set = 0;  ///< KFD_IOCTL_SVM_OP_*

/// KFD_IOCTL_SVM_LOCATION_*; any other is a GPU's id.
enum svm_location : u32 { svm_location_host = 0, svm_location_undefined = 0xffffffff };

/// KFD_IOCTL_SVM_ATTR_*
enum svm_attribute_type : u32 {
  svm_preferred_location,
  svm_prefetch_location,
  svm_access,
  svm_access_in_place,
  svm_no_access,
  svm_set_flags,
  svm_clear_flags,
  svm_granularity,
};

/// KFD_IOCTL_SVM_FLAG_*
enum svm_flag : u32 { svm_flag_host_access = 1u << 0, svm_flag_coherent = 1u << 1 };

struct kfd_ioctl_get_version_args {
  u32 major_version, minor_version;
};

/// Newer kernels append fields that are not needed here.
struct kfd_ioctl_create_queue_args {
  u64 ring_base_address, write_pointer_address, read_pointer_address, doorbell_offset;
  u32 ring_size, gpu_id, queue_type, queue_percentage, queue_priority, queue_id;
  u64 eop_buffer_address, eop_buffer_size, ctx_save_restore_address;
  u32 ctx_save_restore_size, ctl_stack_size, sdma_engine, pad;
};

struct kfd_ioctl_destroy_queue_args {
  u32 queue_id, pad;
};

struct kfd_ioctl_get_clock_counters_args {
  u64 gpu_clock_counter, cpu_clock_counter, system_clock_counter, system_clock_freq;
  u32 gpu_id, pad;
};

struct kfd_process_device_apertures {
  u64 lds_base, lds_limit, scratch_base, scratch_limit, gpuvm_base, gpuvm_limit;
  u32 gpu_id, pad;
};

struct kfd_ioctl_get_process_apertures_new_args {
  u64 kfd_process_device_apertures_ptr;
  u32 num_of_nodes, pad;
};

struct kfd_ioctl_create_event_args {
  u64 event_page_offset;
  u32 event_trigger_data, event_type, auto_reset, node_id, event_id, event_slot_index;
};

struct kfd_ioctl_destroy_event_args {
  u32 event_id, pad;
};

struct kfd_ioctl_set_event_args {
  u32 event_id, pad;
};

struct kfd_ioctl_reset_event_args {
  u32 event_id, pad;
};

/// The kernel's begins with a union; this is its member for signals, which Linux 6.6 added.
struct kfd_event_data {
  u64 last_event_age, other_members[3];
  u64 kfd_event_data_ext;
  u32 event_id, pad;
};

struct kfd_ioctl_wait_events_args {
  u64 events_ptr;
  u32 num_events, wait_for_all, timeout, wait_result;
};

struct kfd_ioctl_alloc_memory_of_gpu_args {
  u64 va_addr, size, handle, mmap_offset;
  u32 gpu_id, flags;
};

struct kfd_ioctl_free_memory_of_gpu_args {
  u64 handle;
};

struct kfd_ioctl_map_memory_to_gpu_args {
  u64 handle, device_ids_array_ptr;
  u32 n_devices, n_success;
};

struct kfd_ioctl_unmap_memory_from_gpu_args {
  u64 handle, device_ids_array_ptr;
  u32 n_devices, n_success;
};

struct kfd_ioctl_alloc_queue_gws_args {
  u32 queue_id, num_gws, first_gws, pad;
};

struct kfd_ioctl_get_dmabuf_info_args {
  u64 size, metadata_ptr;
  u32 metadata_size, gpu_id, flags, dmabuf_fd;
};

struct kfd_ioctl_import_dmabuf_args {
  u64 va_addr, handle;
  u32 gpu_id, dmabuf_fd;
};

struct kfd_ioctl_export_dmabuf_args {
  u64 handle;
  u32 flags, dmabuf_fd;
};

struct kfd_ioctl_svm_attribute {
  u32 type, value;
};

struct kfd_ioctl_svm_args {
  u64 start_addr, size;
  u32 op, nattr;
};

/// They follow the structure.
inline kfd_ioctl_svm_attribute* attributes_of(kfd_ioctl_svm_args& arguments) {
  return reinterpret_cast<kfd_ioctl_svm_attribute*>(&arguments + 1);
}

struct kfd_ioctl_set_xnack_mode_args {
  i32 xnack_enabled;
};

struct kfd_ioctl_get_available_memory_args {
  u64 available;
  u32 gpu_id, pad;
};

struct kfd_ioctl_runtime_enable_args {
  u64 r_debug;
  u32 mode_mask, capabilities_mask;
};

/// The next two are not in Linux; their names and layouts are those of the header that comes with ROCm's
/// thunk.
struct kfd_ioctl_ipc_import_handle_args {
  u64 handle, va_addr, mmap_offset;
  u32 share_handle[4];
  u32 gpu_id, flags;
};

struct kfd_ioctl_ipc_export_handle_args {
  u64 handle;
  u32 share_handle[4];
  u32 gpu_id, flags;
};

/// Not of the driver, but of libdrm_amdgpu: what its users write on memory for each other.
struct amdgpu_bo_metadata {
  u64 flags, tiling_info;
  u32 size_metadata;
  u32 umd_metadata[64];
};

struct amdgpu_bo_info {
  u64 alloc_size, phys_alignment;
  u32 preferred_heap;
  u64 alloc_flags;
  amdgpu_bo_metadata metadata;
};
struct amdgpu_gpu_info {
  u32 asic_id, chip_rev, chip_external_rev, family_id;
  u64 ids_flags;
  u64 max_engine_clk, max_memory_clk;  // in kHz, as gpu_counter_freq
  u32 num_shader_engines, num_shader_arrays_per_engine, avail_quad_shader_pipes, max_quad_shader_pipes;
  u32 cache_entries_per_quad_pipe, num_hw_gfx_contexts, rb_pipes, enabled_rb_pipes_mask, gpu_counter_freq;
  u32 backend_disable[4], mc_arb_ramcfg, gb_addr_cfg, gb_tile_mode[32], gb_macro_tile_mode[16];
  u32 pa_sc_raster_cfg[4], pa_sc_raster_cfg1[4];
  u32 cu_active_number, cu_ao_mask, cu_bitmap[4][4];
  u32 vram_type, vram_bit_width, ce_ram_size, vce_harvest_config, pci_rev_id;
};
static_assert(sizeof(amdgpu_gpu_info) == 416 && offsetof(amdgpu_gpu_info, vram_bit_width) == 400);
static_assert(sizeof(amdgpu_bo_metadata) == 280 && offsetof(amdgpu_bo_info, metadata) == 32);

/// Of render nodes: include/uapi/drm/drm.h and amdgpu_drm.h.
enum drm_ioctl_number : u32 { drm_version_number = 0x00, drm_amdgpu_info_number = 0x40 + 5 };

struct drm_version {
  i32 version_major, version_minor, version_patchlevel;
  u64 name_len, name, date_len, date, desc_len, desc;
};

/// AMDGPU_INFO_*
enum amdgpu_info_query : u32 { info_accel_working = 0x00, info_read_mmr_reg = 0x15, info_dev_info = 0x16 };

struct drm_amdgpu_info {
  u64 return_pointer;
  u32 return_size, query;
  u32 dword_offset, count, instance, flags;  ///< of info_read_mmr_reg
};

/// Its first half, where all is that this library knows; the kernel writes no more than it is asked for.
struct drm_amdgpu_info_device {
  u32 device_id, chip_rev, external_rev, pci_rev, family;
  u32 num_shader_engines, num_shader_arrays_per_engine, gpu_counter_freq;
  u64 max_engine_clock, max_memory_clock;
  u32 cu_active_number, cu_ao_mask, cu_bitmap[4][4];
  u32 enabled_rb_pipes_mask, num_rb_pipes, num_hw_gfx_contexts, pcie_gen;
  u64 ids_flags, virtual_address_offset, virtual_address_max;
  u32 virtual_address_alignment, pte_fragment_size, gart_page_size, ce_ram_size, vram_type, vram_bit_width;
};

}  // namespace kfdsim
