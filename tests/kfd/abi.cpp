// The declarations of abi.hpp beside those of the system's linux/kfd_ioctl.h: it compiles if they agree.
#include <linux/kfd_ioctl.h>
#if __has_include(<drm/amdgpu_drm.h>)
#include <drm/amdgpu_drm.h>
#define HAS_DRM
#endif

#include <cstddef>

#include "runtimes/kfd/abi.hpp"

#define SIZE(name) static_assert(sizeof(kfdsim::name) == sizeof(::name), #name)
#define FIELD(name, field)                                                  \
  static_assert(offsetof(kfdsim::name, field) == offsetof(::name, field) && \
                    sizeof(kfdsim::name::field) == sizeof(::name::field),   \
                #name "." #field)
#define NUMBER(name, NAME) static_assert(kfdsim::ioctl_##name == _IOC_NR(AMDKFD_IOC_##NAME), #name)
#define SAME(ours, system) \
  static_assert(static_cast<kfdsim::u32>(ours) == static_cast<kfdsim::u32>(system), #system)

NUMBER(get_version, GET_VERSION);
NUMBER(create_queue, CREATE_QUEUE);
NUMBER(destroy_queue, DESTROY_QUEUE);
NUMBER(set_memory_policy, SET_MEMORY_POLICY);
NUMBER(get_clock_counters, GET_CLOCK_COUNTERS);
NUMBER(get_process_apertures_new, GET_PROCESS_APERTURES_NEW);
NUMBER(update_queue, UPDATE_QUEUE);
NUMBER(create_event, CREATE_EVENT);
NUMBER(destroy_event, DESTROY_EVENT);
NUMBER(set_event, SET_EVENT);
NUMBER(reset_event, RESET_EVENT);
NUMBER(wait_events, WAIT_EVENTS);
NUMBER(set_scratch_backing_va, SET_SCRATCH_BACKING_VA);
NUMBER(get_tile_config, GET_TILE_CONFIG);
NUMBER(set_trap_handler, SET_TRAP_HANDLER);
NUMBER(acquire_vm, ACQUIRE_VM);
NUMBER(alloc_memory_of_gpu, ALLOC_MEMORY_OF_GPU);
NUMBER(free_memory_of_gpu, FREE_MEMORY_OF_GPU);
NUMBER(map_memory_to_gpu, MAP_MEMORY_TO_GPU);
NUMBER(unmap_memory_from_gpu, UNMAP_MEMORY_FROM_GPU);
NUMBER(set_cu_mask, SET_CU_MASK);
NUMBER(get_dmabuf_info, GET_DMABUF_INFO);
NUMBER(import_dmabuf, IMPORT_DMABUF);
NUMBER(alloc_queue_gws, ALLOC_QUEUE_GWS);

SIZE(kfd_ioctl_get_version_args);
FIELD(kfd_ioctl_get_version_args, minor_version);
FIELD(kfd_ioctl_create_queue_args, doorbell_offset);
FIELD(kfd_ioctl_create_queue_args, ring_size);
FIELD(kfd_ioctl_create_queue_args, gpu_id);
FIELD(kfd_ioctl_create_queue_args, queue_type);
FIELD(kfd_ioctl_create_queue_args, queue_id);
FIELD(kfd_ioctl_create_queue_args, eop_buffer_address);
FIELD(kfd_ioctl_create_queue_args, ctl_stack_size);
constexpr auto sdma_engine_at = offsetof(kfdsim::kfd_ioctl_create_queue_args, sdma_engine);
#ifdef KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID
SIZE(kfd_ioctl_create_queue_args);
SAME(kfdsim::queue_type_sdma_by_engine, KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID);
static_assert(sdma_engine_at == offsetof(::kfd_ioctl_create_queue_args, sdma_engine_id));
#else  // before Linux 6.12 the structure ended in front of it
static_assert(sdma_engine_at == sizeof(::kfd_ioctl_create_queue_args));
#endif
SIZE(kfd_ioctl_destroy_queue_args);
FIELD(kfd_ioctl_destroy_queue_args, queue_id);
SIZE(kfd_ioctl_get_clock_counters_args);
FIELD(kfd_ioctl_get_clock_counters_args, system_clock_freq);
SIZE(kfd_process_device_apertures);
FIELD(kfd_process_device_apertures, gpuvm_limit);
FIELD(kfd_process_device_apertures, gpu_id);
SIZE(kfd_ioctl_get_process_apertures_new_args);
FIELD(kfd_ioctl_get_process_apertures_new_args, num_of_nodes);
SIZE(kfd_ioctl_create_event_args);
FIELD(kfd_ioctl_create_event_args, event_trigger_data);
FIELD(kfd_ioctl_create_event_args, event_type);
FIELD(kfd_ioctl_create_event_args, auto_reset);
FIELD(kfd_ioctl_create_event_args, event_id);
FIELD(kfd_ioctl_create_event_args, event_slot_index);
SIZE(kfd_ioctl_destroy_event_args);
SIZE(kfd_ioctl_set_event_args);
SIZE(kfd_ioctl_reset_event_args);
SIZE(kfd_event_data);
FIELD(kfd_event_data, kfd_event_data_ext);
FIELD(kfd_event_data, event_id);
SIZE(kfd_ioctl_wait_events_args);
FIELD(kfd_ioctl_wait_events_args, wait_for_all);
FIELD(kfd_ioctl_wait_events_args, timeout);
FIELD(kfd_ioctl_wait_events_args, wait_result);
SIZE(kfd_ioctl_alloc_memory_of_gpu_args);
FIELD(kfd_ioctl_alloc_memory_of_gpu_args, handle);
FIELD(kfd_ioctl_alloc_memory_of_gpu_args, mmap_offset);
FIELD(kfd_ioctl_alloc_memory_of_gpu_args, gpu_id);
FIELD(kfd_ioctl_alloc_memory_of_gpu_args, flags);
SIZE(kfd_ioctl_free_memory_of_gpu_args);
SIZE(kfd_ioctl_map_memory_to_gpu_args);
FIELD(kfd_ioctl_map_memory_to_gpu_args, device_ids_array_ptr);
FIELD(kfd_ioctl_map_memory_to_gpu_args, n_success);
SIZE(kfd_ioctl_unmap_memory_from_gpu_args);
FIELD(kfd_ioctl_unmap_memory_from_gpu_args, n_success);
SIZE(kfd_ioctl_alloc_queue_gws_args);
FIELD(kfd_ioctl_alloc_queue_gws_args, first_gws);
SIZE(kfd_ioctl_get_dmabuf_info_args);
FIELD(kfd_ioctl_get_dmabuf_info_args, metadata_size);
FIELD(kfd_ioctl_get_dmabuf_info_args, gpu_id);
FIELD(kfd_ioctl_get_dmabuf_info_args, flags);
FIELD(kfd_ioctl_get_dmabuf_info_args, dmabuf_fd);
SIZE(kfd_ioctl_import_dmabuf_args);
FIELD(kfd_ioctl_import_dmabuf_args, handle);
FIELD(kfd_ioctl_import_dmabuf_args, dmabuf_fd);

SAME(kfdsim::memory_vram, KFD_IOC_ALLOC_MEM_FLAGS_VRAM);
SAME(kfdsim::memory_gtt, KFD_IOC_ALLOC_MEM_FLAGS_GTT);
SAME(kfdsim::memory_userptr, KFD_IOC_ALLOC_MEM_FLAGS_USERPTR);
SAME(kfdsim::memory_doorbell, KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL);
SAME(kfdsim::memory_public, KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC);
SAME(kfdsim::queue_type_compute_aql, KFD_IOC_QUEUE_TYPE_COMPUTE_AQL);
SAME(kfdsim::event_type_signal, KFD_IOC_EVENT_SIGNAL);
SAME(kfdsim::wait_complete, KFD_IOC_WAIT_RESULT_COMPLETE);
SAME(kfdsim::wait_timeout, KFD_IOC_WAIT_RESULT_TIMEOUT);
SAME(kfdsim::wait_fail, KFD_IOC_WAIT_RESULT_FAIL);

#ifdef AMDKFD_IOC_SVM
NUMBER(svm, SVM);
NUMBER(set_xnack_mode, SET_XNACK_MODE);
SIZE(kfd_ioctl_svm_attribute);
FIELD(kfd_ioctl_svm_attribute, value);
SIZE(kfd_ioctl_svm_args);
FIELD(kfd_ioctl_svm_args, op);
FIELD(kfd_ioctl_svm_args, nattr);
static_assert(offsetof(::kfd_ioctl_svm_args, attrs) == sizeof(kfdsim::kfd_ioctl_svm_args));
SIZE(kfd_ioctl_set_xnack_mode_args);
SAME(kfdsim::svm_op_set, KFD_IOCTL_SVM_OP_SET_ATTR);
SAME(kfdsim::svm_location_host, KFD_IOCTL_SVM_LOCATION_SYSMEM);
SAME(kfdsim::svm_location_undefined, KFD_IOCTL_SVM_LOCATION_UNDEFINED);
SAME(kfdsim::svm_preferred_location, KFD_IOCTL_SVM_ATTR_PREFERRED_LOC);
SAME(kfdsim::svm_prefetch_location, KFD_IOCTL_SVM_ATTR_PREFETCH_LOC);
SAME(kfdsim::svm_access, KFD_IOCTL_SVM_ATTR_ACCESS);
SAME(kfdsim::svm_access_in_place, KFD_IOCTL_SVM_ATTR_ACCESS_IN_PLACE);
SAME(kfdsim::svm_no_access, KFD_IOCTL_SVM_ATTR_NO_ACCESS);
SAME(kfdsim::svm_set_flags, KFD_IOCTL_SVM_ATTR_SET_FLAGS);
SAME(kfdsim::svm_clear_flags, KFD_IOCTL_SVM_ATTR_CLR_FLAGS);
SAME(kfdsim::svm_granularity, KFD_IOCTL_SVM_ATTR_GRANULARITY);
SAME(kfdsim::svm_flag_host_access, KFD_IOCTL_SVM_FLAG_HOST_ACCESS);
SAME(kfdsim::svm_flag_coherent, KFD_IOCTL_SVM_FLAG_COHERENT);
#endif

#ifdef AMDKFD_IOC_AVAILABLE_MEMORY
NUMBER(available_memory, AVAILABLE_MEMORY);
SIZE(kfd_ioctl_get_available_memory_args);
FIELD(kfd_ioctl_get_available_memory_args, gpu_id);
#endif

#ifdef AMDKFD_IOC_EXPORT_DMABUF
NUMBER(export_dmabuf, EXPORT_DMABUF);
SIZE(kfd_ioctl_export_dmabuf_args);
FIELD(kfd_ioctl_export_dmabuf_args, dmabuf_fd);
#endif

#ifdef AMDKFD_IOC_RUNTIME_ENABLE
NUMBER(runtime_enable, RUNTIME_ENABLE);
SIZE(kfd_ioctl_runtime_enable_args);
FIELD(kfd_ioctl_runtime_enable_args, capabilities_mask);
#endif

#if KFD_IOCTL_MINOR_VERSION >= 14
static_assert(offsetof(kfdsim::kfd_event_data, last_event_age) ==
              offsetof(::kfd_event_data, signal_event_data));
#endif

#ifdef HAS_DRM
static_assert(kfdsim::drm_version_number == _IOC_NR(DRM_IOCTL_VERSION));
static_assert(kfdsim::drm_amdgpu_info_number == _IOC_NR(DRM_IOCTL_AMDGPU_INFO));
SAME(kfdsim::info_accel_working, AMDGPU_INFO_ACCEL_WORKING);
SAME(kfdsim::info_read_mmr_reg, AMDGPU_INFO_READ_MMR_REG);
SAME(kfdsim::info_dev_info, AMDGPU_INFO_DEV_INFO);
SIZE(drm_version);
FIELD(drm_version, version_patchlevel);
FIELD(drm_version, name);
FIELD(drm_version, desc);
SIZE(drm_amdgpu_info);
FIELD(drm_amdgpu_info, query);
static_assert(offsetof(kfdsim::drm_amdgpu_info, count) == offsetof(::drm_amdgpu_info, read_mmr_reg.count));
static_assert(sizeof(kfdsim::drm_amdgpu_info_device) <= sizeof(::drm_amdgpu_info_device));
FIELD(drm_amdgpu_info_device, gpu_counter_freq);
FIELD(drm_amdgpu_info_device, cu_active_number);
FIELD(drm_amdgpu_info_device, ids_flags);
FIELD(drm_amdgpu_info_device, pte_fragment_size);
FIELD(drm_amdgpu_info_device, vram_bit_width);
#endif
