// Compares cuda_abi.h and driver_calls.def with a real cuda.h. Compiled where one is found, never linked.

#include <type_traits>

#include "cuda_abi.h"

// cuda.h then also declares the retired forms under their exported names, and renames nothing by macro.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

namespace cuda_abi {
namespace {

#define SAME_VALUE(name, value) static_assert(static_cast<int>(::name) == (value), #name);
#define SAME_ENUM(enumeration, values)                                       \
  static_assert(sizeof(enumeration) == sizeof(::enumeration), #enumeration); \
  values(SAME_VALUE)
CUDA_ABI_ENUMS(SAME_ENUM)

static_assert(CU_DEVICE_CPU == -1 && CU_DEVICE_INVALID == -2, "HIP's numbers for no device too");
static_assert(CU_MEMHOSTALLOC_PORTABLE == 1 && CU_MEMHOSTALLOC_DEVICEMAP == 2 &&
                  CU_MEMHOSTALLOC_WRITECOMBINED == 4,
              "as hipHostMalloc's");
static_assert(CU_MEMHOSTREGISTER_PORTABLE == 1 && CU_MEMHOSTREGISTER_DEVICEMAP == 2 &&
                  CU_MEMHOSTREGISTER_IOMEMORY == 4 && CU_MEMHOSTREGISTER_READ_ONLY == 8,
              "as hipHostRegister's");

#define SAME_FIELD(type, field) \
  static_assert(offsetof(type, field) == offsetof(::type, field), #type "." #field)
SAME_FIELD(CUmemLocation, type);
SAME_FIELD(CUmemLocation, id);
SAME_FIELD(CUmemAccessDesc, location);
SAME_FIELD(CUmemAccessDesc, flags);
SAME_FIELD(CUmemAllocationProp, type);
SAME_FIELD(CUmemAllocationProp, requestedHandleTypes);
SAME_FIELD(CUmemAllocationProp, location);
SAME_FIELD(CUmemAllocationProp, win32HandleMetaData);
SAME_FIELD(CUmemAllocationProp, allocFlags.compressionType);
SAME_FIELD(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
SAME_FIELD(CUmemAllocationProp, allocFlags.usage);

/// Whether two types are passed in the same way: the same type, enumerations or complete structs of the same
/// size, or pointers to such types.
template <class Own, class Real>
constexpr bool passed_alike() {
  if constexpr (std::is_same_v<Own, Real>) {
    return true;
  } else if constexpr (std::is_pointer_v<Own> && std::is_pointer_v<Real>) {
    using own_target = std::remove_pointer_t<Own>;
    using real_target = std::remove_pointer_t<Real>;
    if constexpr (std::is_const_v<own_target> != std::is_const_v<real_target>) return false;
    return passed_alike<std::remove_const_t<own_target>, std::remove_const_t<real_target>>();
  } else if constexpr (std::is_enum_v<Own> && std::is_enum_v<Real>) {
    return sizeof(Own) == sizeof(Real);
  } else if constexpr (std::is_same_v<Own, CUctx_st>) {
    return std::is_same_v<Real, ::CUctx_st>;
  } else if constexpr (std::is_same_v<Own, CUstream_st>) {
    return std::is_same_v<Real, ::CUstream_st>;
  } else if constexpr (std::is_same_v<Own, CUevent_st>) {
    return std::is_same_v<Real, ::CUevent_st>;
  } else if constexpr (std::is_class_v<Own> && std::is_class_v<Real>) {
    return sizeof(Own) == sizeof(Real) && alignof(Own) == alignof(Real);
  } else {
    return false;
  }
}

template <class Own, class Real>
struct same_call : std::false_type {};
template <class Our, class Their, class... Own, class... Real>
  requires(sizeof...(Own) == sizeof...(Real))
struct same_call<Our(Own...), Their(Real...)>
    : std::bool_constant<passed_alike<Our, Their>() && (passed_alike<Own, Real>() && ...)> {};

#define CUDA_CALL(symbol, name, version, parameters) \
  static_assert(same_call<CUresult parameters, decltype(::symbol)>::value, #symbol);
#include "driver_calls.def"

}  // namespace
}  // namespace cuda_abi
