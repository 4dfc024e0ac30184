#include "process.hpp"

#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>

#include "hip/parse.hpp"
#include "ledger.hpp"

namespace hipsim {
namespace {

std::FILE* open_log() {
  const char* path = std::getenv("HIPSIM_LOG");
  if (!path || !*path || std::strcmp(path, "stderr") == 0) return stderr;
  if (std::strcmp(path, "none") == 0) return nullptr;
  std::FILE* file = std::fopen(path, "ae");
  if (!file)
    std::fprintf(stderr, "hipsim: HIPSIM_LOG: cannot write the log %s: %s\n", path, std::strerror(errno));
  return file ? file : stderr;
}

// The machine as this process sees it, with the visibility masks of its environment.
std::unique_ptr<machine> machine_from(const char* profile_text) {
  const auto whole = profile_text && *profile_text ? parse_profile(profile_text) : default_profile();
  auto seen = visible_part(whole, std::getenv("ROCR_VISIBLE_DEVICES"), std::getenv("HIP_VISIBLE_DEVICES"),
                           std::getenv("CUDA_VISIBLE_DEVICES"));
  const char* vmm = std::getenv("HIP_VMEM_MANAGE_SUPPORT");
  seen.reports_vmm = !vmm || std::strcmp(vmm, "0") != 0;
  const char* hidden_mb = std::getenv("HIP_HIDDEN_FREE_MEM");
  const std::uint64_t hidden = hidden_mb ? hip::parse_number<std::uint32_t>(hidden_mb).value_or(0) : 0;
  seen.hidden_free_bytes = hidden << 20;
  return std::make_unique<machine>(std::move(seen));
}

// Adds the name of the variable to errors about its value.
template <typename Wrong, typename Use>
void with_setting(const char* variable, Use use) {
  try {
    use(std::getenv(variable));
  } catch (const Wrong& error) {
    throw std::invalid_argument(std::string(variable) + ": " + error.what());
  }
}

}  // namespace

process& process::instance() {
  static process* const only = new process;  // leaked: see the top of process.hpp
  return *only;
}

thread_state& process::thread() {
  thread_local thread_state state;
  const auto generation = instance().generation_.load(std::memory_order_acquire);
  if (state.generation != generation) state = {0, 0, 0, generation};
  return state;
}

process::process() : log_(open_log()) {
  try {
    with_setting<std::invalid_argument>("HIPSIM_PROFILE",
                                        [this](const char* text) { adopt(machine_from(text)); });
    with_setting<std::invalid_argument>("HIPSIM_FAIL", [this](const char* rules) {
      if (rules) arm_faults(rules);
    });
    with_setting<std::system_error>("HIPSIM_TRACE", [this](const char* path) {
      if (path) interceptor.trace_to(path);
    });
  } catch (const std::exception& error) {
    // As in the real library, every call returns hipErrorInvalidDevice after a failed start.
    std::fprintf(stderr, "hipsim: cannot start: %s\n", error.what());
    broken_ = true;
    if (!machine_) adopt(std::make_unique<machine>(machine_profile{}));
  }
  // A child must neither wait for a lock that a thread of the parent holds, nor change shared memory.
  pthread_atfork(nullptr, nullptr, [] { instance().forked_.store(true, std::memory_order_relaxed); });
  write_ledger_at_exit();
}

void process::adopt(std::unique_ptr<machine> fresh) {
  machine_ = std::move(fresh);
  has_devices_.store(machine_->device_count() > 0, std::memory_order_relaxed);
  keeps_only_errors_.store(machine_->rules.keeps_only_errors, std::memory_order_relaxed);
}

void process::configure(const char* profile_text) {
  auto fresh = machine_from(profile_text);
  const auto lock = own_turn();
  if (!machine_->empty()) throw std::logic_error("objects of the present machine are still alive");
  adopt(std::move(fresh));
  generation_.fetch_add(1, std::memory_order_release);
}

void process::arm_faults(const char* rules) {
  static constexpr std::string_view extra_calls[] = {
#define HIP_CALL(name, parameters, arguments) #name,
#include "extra_calls.def"
  };
  interceptor.arm(hip::parse_fault_rules(rules, extra_calls));
}

void process::note(const char* function, const std::string& message) {
  if (!log_) return;
  const std::lock_guard lock(log_lock_);
  std::fprintf(log_, "hipsim: %s: %s\n", function, message.c_str());
  std::fflush(log_);
}

std::string hex(std::uint64_t value) {
  char text[19];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace hipsim
