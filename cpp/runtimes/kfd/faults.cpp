#include "faults.hpp"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "hip/intercept.hpp"
#include "hip/parse.hpp"

namespace kfdsim {
namespace {

constexpr std::string_view calls[] = {
#define IOCTL(name, number) #name,
#define LIBDRM(name) #name,
#include "calls.def"
};

struct named_error {
  std::string_view name;
  std::uint32_t number;
};
constexpr named_error errors[] = {
#define NAMED(name) {#name, name}
    NAMED(EPERM),  NAMED(ENOENT),    NAMED(EINTR),      NAMED(EIO),       NAMED(EBADF),  NAMED(EAGAIN),
    NAMED(ENOMEM), NAMED(EACCES),    NAMED(EFAULT),     NAMED(EBUSY),     NAMED(EEXIST), NAMED(ENODEV),
    NAMED(EINVAL), NAMED(ENFILE),    NAMED(EMFILE),     NAMED(ENOTTY),    NAMED(ENOSPC), NAMED(ENOSYS),
    NAMED(ETIME),  NAMED(ECANCELED), NAMED(EOPNOTSUPP), NAMED(ETIMEDOUT),
#undef NAMED
};

std::uint32_t error_number(std::string_view name_or_number) {
  for (const auto& known : errors) {
    if (known.name == name_or_number) return known.number;
  }
  const auto number = hip::parse_number<std::uint16_t>(name_or_number);
  if (!number || *number > 4095)
    throw std::invalid_argument("'" + std::string(name_or_number) + "' is no errno, such as ENOMEM or 12");
  return *number;
}

struct state {
  hip::interceptor interceptor;
  std::string wrong;

  state() {
    try {
      if (const char* rules = std::getenv("KFDSIM_FAIL")) arm(rules);
    } catch (const std::invalid_argument& error) {
      wrong = error.what();
    }
  }
  void arm(const char* rules) {
    const hip::fault_words words{calls, error_number, "alloc_memory_of_gpu@3=ENOMEM"};
    interceptor.arm(hip::parse_fault_rules(rules ? rules : "", words));
  }
};

// Never destroyed: the process may call at exit. A child does not change its parent's.
std::atomic<state*> present{nullptr};

state& now() {
  auto* found = present.load(std::memory_order_acquire);
  if (found) return *found;
  auto* const made = new state;
  if (present.compare_exchange_strong(found, made)) return *made;
  delete made;
  return *found;
}

}  // namespace

const std::string& wrong_rules() { return now().wrong; }
void arm(const char* rules) { now().arm(rules); }
int failing(const char* call) { return static_cast<int>(now().interceptor.before(call)); }
std::uint64_t failed_calls() { return now().interceptor.fired(); }
std::uint64_t counted_calls() { return now().interceptor.calls(); }
void forget_rules() { present.store(nullptr, std::memory_order_release); }

}  // namespace kfdsim
