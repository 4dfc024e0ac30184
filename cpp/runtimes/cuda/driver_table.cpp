#include "driver_table.hpp"

#include <dlfcn.h>

namespace hipcuda {
namespace {

using get_proc_address = CUresult (*)(const char* name, void** function, int version,
                                      unsigned long long flags, int* status);

/// Finds functions in an open libcuda.
class symbol_finder {
 public:
  symbol_finder(void* library, int driver_version) : library_(library), driver_version_(driver_version) {
    get_ = reinterpret_cast<get_proc_address>(dlsym(library, "cuGetProcAddress_v2"));
  }

  /// Does not request a version above the driver's: cuGetProcAddress would return the older form of the
  /// function, which takes other parameters.
  [[nodiscard]] void* find(const char* symbol, const char* name, int version) const {
    void* function = nullptr;
    int status = 0;
    const bool knows = get_ && version <= driver_version_;
    if (knows && get_(name, &function, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status) == CUDA_SUCCESS) {
      return function;
    }
    return dlsym(library_, symbol);  // drivers before 12.0
  }

 private:
  void* library_;
  int driver_version_;
  get_proc_address get_;
};

/// Fills the table. Returns the name of the first required function that is missing, or null.
const char* fill(driver_table& calls, const symbol_finder& finder) {
  const char* missing = nullptr;
#define CUDA_CALL_OPTIONAL(symbol, name, version, parameters) \
  calls.symbol = reinterpret_cast<decltype(calls.symbol)>(finder.find(#symbol, #name, version));
#define CUDA_CALL(symbol, name, version, parameters)    \
  CUDA_CALL_OPTIONAL(symbol, name, version, parameters) \
  if (!calls.symbol && !missing) missing = #symbol;
#include "driver_calls.def"
  if (!calls.cuMemAdvise_v2 && !calls.cuMemAdvise) missing = "cuMemAdvise";
  if (!calls.cuMemPrefetchAsync_v2 && !calls.cuMemPrefetchAsync) missing = "cuMemPrefetchAsync";
  return missing;
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

loaded_driver load() {
  loaded_driver driver;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    driver.problem = std::string("no NVIDIA driver: ") + (reason ? reason : "libcuda.so.1 does not load");
    return driver;
  }
  const auto get_version = reinterpret_cast<CUresult (*)(int*)>(dlsym(library, "cuDriverGetVersion"));
  if (!get_version || get_version(&driver.version) != CUDA_SUCCESS) {
    driver.version = 0;
    driver.problem = "libcuda.so.1 is not a usable NVIDIA driver: cuDriverGetVersion failed";
    return driver;
  }
  if (const char* missing = fill(driver.calls, symbol_finder(library, driver.version))) {
    driver.problem =
        "the NVIDIA driver (CUDA " + version_text(driver.version) + ") is too old: it lacks " + missing;
  }
  return driver;
}

}  // namespace

const loaded_driver& load_driver() {
  static const auto& driver = *new loaded_driver(load());  // never destroyed: code may call at exit
  return driver;
}

}  // namespace hipcuda
