// A program reaches libamdhip64's functions by its linker, by dlsym or by hipGetProcAddress. So they are
// changed where all of these lead: their code begins with a jump then.
#include "launches.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "log.hpp"
#include "machine.hpp"

namespace kfdsim {
namespace {

constexpr const char* launch_functions[] = {
    "hipLaunchKernel",
    "hipLaunchKernel_spt",
    "hipLaunchKernelExC",
    "hipLaunchByPtr",
    "hipLaunchCooperativeKernel",
    "hipLaunchCooperativeKernel_spt",
    "hipLaunchCooperativeKernelMultiDevice",
    "hipDrvLaunchKernelEx",
    "hipModuleLaunchKernel",
    "hipModuleLaunchCooperativeKernel",
    "hipModuleLaunchCooperativeKernelMultiDevice",
    "hipExtLaunchKernel",
    "hipExtLaunchMultiKernelMultiDevice",
    "hipExtModuleLaunchKernel",
    "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j",
    "hipHccModuleLaunchKernel",
    "_Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_",
    "hipGraphAddKernelNode",
};
constexpr int not_supported = 801;  // hipErrorNotSupported

void* hip_library = nullptr;  // whose functions are changed

int refused_launch() {
  {
    const std::lock_guard lock(mutex());
    machine().kernels_refused++;
  }
  // It is not supported either, and makes that the thread's last error.
  static auto* const unsupported = reinterpret_cast<int (*)()>(dlsym(hip_library, "hipCtxSynchronize"));
  if (unsupported) unsupported();
  return not_supported;
}

std::string path_of_hip() {
  std::string path;
  dl_iterate_phdr(
      [](dl_phdr_info* loaded, size_t, void* found) {
        const char* const name = std::strrchr(loaded->dlpi_name, '/');
        if (!name || std::strncmp(name, "/libamdhip64.so", 15) != 0) return 0;
        *static_cast<std::string*>(found) = loaded->dlpi_name;
        return 1;
      },
      &path);
  return path;
}

struct [[gnu::packed]] jump_code {
  u8 landing[4] = {0xf3, 0x0f, 0x1e, 0xfa};           // endbr64
  u8 jump[6] = {0xff, 0x25, 0x00, 0x00, 0x00, 0x00};  // to the address that follows
  int (*target)() = refused_launch;
};

bool change(void* function) {
  Dl_info where{};
  ElfW(Sym)* symbol = nullptr;
  if (!dladdr1(function, &where, reinterpret_cast<void**>(&symbol), RTLD_DL_SYMENT) || !symbol ||
      symbol->st_size < sizeof(jump_code)) {
    errno = ENOEXEC;
    return false;
  }
  const u64 start = reinterpret_cast<u64>(function);
  const u64 first_page = start / page_bytes * page_bytes;
  auto* const pages = reinterpret_cast<void*>(first_page);
  const u64 size = round_up(start + sizeof(jump_code), page_bytes) - first_page;
  if (mprotect(pages, size, PROT_READ | PROT_WRITE | PROT_EXEC)) return false;
  const jump_code code;
  std::memcpy(function, &code, sizeof code);
  return mprotect(pages, size, PROT_READ | PROT_EXEC) == 0;
}

// For a program that is linked with libamdhip64: before its first call. One that loads it opens the driver
// first.
[[gnu::constructor]] void at_start() {
  const std::string wrong = refuse_launches();
  if (!wrong.empty()) log(0, "%s", wrong.c_str());
}

}  // namespace

bool launches_are_refused() {
  const char* const wanted = std::getenv("KFDSIM_REFUSE_KERNELS");
  return wanted && *wanted && std::strcmp(wanted, "0") != 0;
}

std::string refuse_launches() {
  if (!launches_are_refused()) return "";
  static auto& wrong = *new std::string;
  const std::lock_guard lock(mutex());
  const std::string path = hip_library ? "" : path_of_hip();
  if (path.empty()) return wrong;
  hip_library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  for (const char* name : launch_functions) {
    void* const function = hip_library ? dlsym(hip_library, name) : nullptr;
    if (function && !change(function) && wrong.empty())
      wrong = std::string(name) + " of " + path + " cannot be changed: " + std::strerror(errno);
  }
  return wrong;
}

}  // namespace kfdsim
