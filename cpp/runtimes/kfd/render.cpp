#include "render.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <string_view>

#include "log.hpp"
#include "machine.hpp"
#include "program_memory.hpp"

namespace kfdsim {
namespace {

constexpr u32 number_bits = 0xff;   // _IOC_NR
constexpr u32 registers_max = 128;  // that the kernel reads in one query

// As the kernel: copies what fits, and says how long the whole is.
int put_text(u64 out, u64* size, std::string_view text) {
  const u64 copied = out ? std::min<u64>(*size, text.size()) : 0;
  *size = text.size();
  return write_program(out, text.data(), copied) ? 0 : EFAULT;
}

int version(u64 program) {
  drm_version asked{};
  if (!read_program(&asked, program, sizeof asked)) return EFAULT;
  asked.version_major = drm_major_version;
  asked.version_minor = drm_minor_version;
  asked.version_patchlevel = 0;
  int error = put_text(asked.name, &asked.name_len, "amdgpu");
  if (!error) error = put_text(asked.date, &asked.date_len, "20150101");
  if (!error) error = put_text(asked.desc, &asked.desc_len, "AMD GPU");
  if (error) return error;
  return write_program(program, &asked, sizeof asked) ? 0 : EFAULT;
}

drm_amdgpu_info_device described(const gpu_state& gpu) {
  drm_amdgpu_info_device device{};
  device.device_id = gpu.device_id;
  device.family = family_ai;
  device.gpu_counter_freq = counter_khz;
  device.max_engine_clock = gpu.engine_khz;
  device.max_memory_clock = gpu.memory_khz;
  device.cu_active_number = gpu.compute_units;
  device.ids_flags = gpu.integrated ? flag_fusion : 0;
  device.virtual_address_offset = big_page_bytes;
  device.virtual_address_max = u64{1} << 47;
  device.virtual_address_alignment = device.gart_page_size = page_bytes;
  device.pte_fragment_size = big_page_bytes;
  device.vram_bit_width = gpu.memory_bits;
  return device;
}

int info(int gpu, u64 program) {
  drm_amdgpu_info asked{};
  if (!read_program(&asked, program, sizeof asked)) return EFAULT;
  const auto answer = [&asked](const auto& value, u64 whole) {
    const u64 size = std::min<u64>(asked.return_size, whole);
    return write_program(asked.return_pointer, &value, size) ? 0 : EFAULT;
  };
  switch (asked.query) {
    case info_accel_working:
      return answer(u32{1}, sizeof(u32));
    case info_dev_info: {
      const std::lock_guard lock(mutex());
      return answer(described(machine().gpus[static_cast<std::size_t>(gpu)]), sizeof(drm_amdgpu_info_device));
    }
    case info_read_mmr_reg:  // libdrm reads one that says how textures lie in memory
      if (asked.count > registers_max) return EINVAL;
      return answer(std::array<u32, registers_max>{}, asked.count * sizeof(u32));
    default:
      log(1, "query %u of gpu %d is not answered", asked.query, gpu);
      return EINVAL;
  }
}

}  // namespace

int render_ioctl(int gpu, unsigned long request, void* argument) {
  const auto program = reinterpret_cast<u64>(argument);
  int error = EINVAL;
  switch (request & number_bits) {
    case drm_version_number:
      error = version(program);
      break;
    case drm_amdgpu_info_number:
      error = info(gpu, program);
      break;
    default:
      log(1, "ioctl %#lx of the render node of gpu %d is not supported", request, gpu);
  }
  if (!error) return 0;
  errno = error;
  return -1;
}

}  // namespace kfdsim
