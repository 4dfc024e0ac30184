#include "runtime.hpp"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <map>
#include <thread>

namespace hip {
namespace {

std::atomic<bool> shutting_down{false};
thread_local std::uint64_t retries_here = 0;

std::string version_text(int version) {
  return std::to_string(version / 10'000'000) + "." + std::to_string(version / 100'000 % 100);
}

}  // namespace

std::shared_ptr<runtime> runtime::open(const std::string& path) {
  static std::mutex mutex;
  static std::map<void*, std::shared_ptr<runtime>> opened;  // by library: one copy, one runtime

  dlerror();
  // RTLD_GLOBAL would let this copy answer for another library's HIP calls; a runtime stays private.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    const std::string why = reason ? reason : "cannot be opened";
    // When a dependency is missing, the loader names only the dependency.
    throw runtime_unusable(why.starts_with(path) ? why : path + ": " + why);
  }
  const std::lock_guard lock(mutex);
  auto& slot = opened[library];
  if (!slot || slot->owner_process_ != getpid()) slot.reset(new runtime(path, library));
  return slot;
}

runtime::runtime(std::string path, void* library)
    : path_(std::move(path)), library_(library), owner_process_(getpid()) {
  require_version();
  fill_table();
}

void runtime::require_version() {
  const auto get_version = reinterpret_cast<hipError_t (*)(int*)>(dlsym(library_, "hipRuntimeGetVersion"));
  if (!get_version) throw runtime_unusable(path_ + " is not a HIP runtime: it has no hipRuntimeGetVersion");
  if (const auto result = get_version(&version_); result != hipSuccess) {
    throw runtime_unusable(path_ + " does not tell its version: " + error_name(result));
  }
  if (version_ < oldest_version) {
    throw runtime_unusable(path_ + " is HIP " + version_text(version_) + "; hipplan needs " +
                           version_text(oldest_version) +
                           " or later (before it, virtual memory management is a stub on Linux)");
  }
}

void runtime::fill_table() {
  std::string missing;
#define HIP_CALL(name, params, args)                                             \
  table_.name = reinterpret_cast<decltype(table_.name)>(dlsym(library_, #name)); \
  if (!table_.name) missing += missing.empty() ? #name : ", " #name;
#define HIP_CALL_OPTIONAL(name, params, args) \
  table_.name = reinterpret_cast<decltype(table_.name)>(dlsym(library_, #name));
#include "hip_calls.def"
  if (!missing.empty()) throw runtime_unusable(path_ + " lacks " + missing);
}

std::uint64_t runtime::retries_of_this_thread() noexcept { return retries_here; }

bool runtime::pause_before(int retry) {
  if (retry == 6) return false;
  ++retries_;
  ++retries_here;
  std::this_thread::sleep_for(retry_pause_.load() * (1 << retry));
  return true;
}

void* runtime::symbol(const char* name) const noexcept { return dlsym(library_, name); }

bool runtime::may_call() const noexcept { return !shutting_down.load() && owner_process_ == getpid(); }

void runtime::shutdown() noexcept { shutting_down.store(true); }

void runtime::check(hipError_t result, const char* call, const std::string& subject,
                    const std::string& arguments) {
  if (result == hipSuccess) [[likely]]
    return;
  forget_last_error();
  throw hip_error(result, call, subject, arguments);
}

std::vector<std::string> loaded_libraries(const std::string& prefix) {
  struct search {
    const std::string& prefix;
    std::vector<std::string> found;
  } search{prefix, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* context) {
        auto& wanted = *static_cast<struct search*>(context);
        const std::string path = info->dlpi_name;
        const auto slash = path.rfind('/');
        if (path.compare(slash == path.npos ? 0 : slash + 1, wanted.prefix.size(), wanted.prefix) == 0) {
          wanted.found.push_back(path);
        }
        return 0;
      },
      &search);
  return search.found;
}

}  // namespace hip
