#include "hip_library.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "failure.hpp"

namespace hipplan::c {
namespace {

/// The process that opened a library; 0 before that.
std::atomic<pid_t> opened_by{0};

[[noreturn]] void unusable(std::string summary, std::string why = {}, std::string hint = {}) {
  throw failure({407, std::move(summary), std::move(why), std::move(hint), {}});
}

std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

/// The folder of this library, with a slash; empty if it is not known.
std::string own_folder() {
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &here) == 0 || !here.dli_fname) return {};
  const std::string path = here.dli_fname;
  return path.substr(0, path.rfind('/') + 1);
}

std::vector<std::string> paths_of(const std::string& family) {
  if (family == "sim") {
    if (auto given = setting("HIPSIM_LIBRARY"); !given.empty()) return {given};
    return {own_folder() + "libhipsim.so", "libhipsim.so"};
  }
  if (family == "cuda") return {own_folder() + "libhipcuda.so", "libhipcuda.so"};
  std::vector<std::string> out;
  for (const auto& root : {setting("ROCM_PATH"), std::string("/opt/rocm")}) {
    for (const auto* const name : {"libamdhip64.so.7", "libamdhip64.so.6"}) {
      if (!root.empty()) out.push_back(root + "/lib/" + name);
    }
  }
  out.insert(out.end(), {"libamdhip64.so.7", "libamdhip64.so.6"});
  return out;
}

bool is_family(const std::string& word) { return word == "amd" || word == "cuda" || word == "sim"; }

std::shared_ptr<hip::runtime> open(const std::string& path) {
  try {
    return hip::runtime::open(path);
  } catch (const hip::runtime_unusable& error) {
    unusable(error.what());
  }
}

/// Paths of HIP libraries that this process has loaded.
std::vector<std::string> loaded() {
  std::vector<std::string> out;
  for (const auto* const name : {"libamdhip64.so", "libhipcuda.so", "libhipsim.so"}) {
    auto some = hip::loaded_libraries(name);
    out.insert(out.end(), some.begin(), some.end());
  }
  return out;
}

std::shared_ptr<hip::runtime> open_of(const std::string& family) {
  // A second copy would not share pointers with the first.
  if (family == "amd") {
    if (const auto found = hip::loaded_libraries("libamdhip64.so"); !found.empty())
      return open(found.front());
  }
  std::string reason;
  std::string searched;
  for (const auto& path : paths_of(family)) {
    searched += (searched.empty() ? "looked at " : ", ") + path;
    std::error_code ignored;
    if (path.find('/') != path.npos && !std::filesystem::exists(path, ignored)) continue;
    try {
      return hip::runtime::open(path);
    } catch (const hip::runtime_unusable& error) {
      if (reason.empty()) reason = error.what();
    }
  }
  unusable(reason.empty() ? "no HIP library was found" : reason, searched,
           "name the library: hipplan_options.library");
}

}  // namespace

std::string family_of(const hip::runtime& library) {
  if (library.symbol("hipsim_configure")) return "sim";
  return library.symbol("hipcuda_message") ? "cuda" : "amd";
}

std::shared_ptr<hip::runtime> open_library(const std::string& told,
                                           const std::function<std::string()>& family) {
  if (const auto opener = opened_by.load(); opener != 0 && opener != getpid()) {
    unusable("this process was forked from one that had opened a runtime",
             "HIP and CUDA work only in the process that initialised them, not in a forked child",
             "attach in the child alone, or start it with exec");
  }
  auto word = told.empty() ? setting("HIPPLAN_RUNTIME") : told;
  if (word == "auto") word.clear();
  std::shared_ptr<hip::runtime> out;
  if (is_family(word)) {
    out = open_of(word);
  } else if (!word.empty()) {
    out = open(word);
  } else if (const auto found = loaded(); !found.empty()) {
    out = open(found.front());
  } else {
    out = open_of(family());
  }
  opened_by = getpid();
  return out;
}

}  // namespace hipplan::c
