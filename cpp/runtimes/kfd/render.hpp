// The ioctls of a render node, /dev/dri/renderD<n>, that tools use without libdrm_amdgpu's functions of
// drm.cpp.
#pragma once

#include "abi.hpp"

namespace kfdsim {

inline constexpr int drm_major_version = 3, drm_minor_version = 61;
inline constexpr u32 family_ai = 141;
inline constexpr u32 counter_khz = 100'000;  ///< of the clock that all Instinct GPUs count with
inline constexpr u64 flag_fusion = 1;        ///< AMDGPU_IDS_FLAGS_FUSION: an APU

/// An ioctl on an open render node: 0, or -1 and errno.
int render_ioctl(int gpu, unsigned long request, void* argument);

}  // namespace kfdsim
