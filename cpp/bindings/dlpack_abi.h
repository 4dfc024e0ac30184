// DLPack's C ABI, version 1: exactly the types that hipplan hands out.
// Source: https://github.com/dmlc/dlpack, include/dlpack/dlpack.h; the sizes below are part of the ABI.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dlpack {

struct version {
  std::uint32_t major = 1;
  std::uint32_t minor = 1;
};

constexpr std::int32_t cpu = 1;  ///< the type of device

struct device {
  std::int32_t type;
  std::int32_t id;
};

struct data_type {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct tensor {
  void* data;
  dlpack::device device;
  std::int32_t ndim;
  data_type dtype;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

/// Before version 1; capsules of this are named "dltensor".
struct managed_tensor {
  tensor dl_tensor;
  void* manager_context;
  void (*deleter)(managed_tensor*);
};

/// From version 1 on; capsules of this are named "dltensor_versioned".
struct managed_tensor_versioned {
  dlpack::version version;
  void* manager_context;
  void (*deleter)(managed_tensor_versioned*);
  std::uint64_t flags;
  tensor dl_tensor;
};

inline constexpr std::uint64_t flag_read_only = 1;
inline constexpr std::uint64_t flag_is_copied = 2;

static_assert(sizeof(tensor) == 48 && offsetof(tensor, shape) == 24 && offsetof(tensor, byte_offset) == 40);
static_assert(sizeof(managed_tensor) == 64 && offsetof(managed_tensor, deleter) == 56);
static_assert(sizeof(managed_tensor_versioned) == 80 && offsetof(managed_tensor_versioned, dl_tensor) == 32);

}  // namespace dlpack
