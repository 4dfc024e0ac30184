// Failing chosen calls and tracing all of them: one small layer at HIP's ABI.
//
// The core's function table runs every driver call through one interceptor, so faults and traces work on
// every runtime, hardware included; the simulator runs its exports through another, for foreign programs.
// A call that a rule fails does not reach the driver. Cost when idle: one relaxed load.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "hip_abi.h"

namespace hip {

/// One rule: which calls of which function, and what happens to them.
struct fault_rule {
  std::string function;        ///< empty: any function
  std::uint64_t nth = 1;       ///< counts from 1, among the calls of `function`, from the moment of arming
  bool forever = false;        ///< the n-th call and all after it
  double probability = 0;      ///< > 0: ignore nth and fail at random
  std::uint64_t seed = 0;      ///< of the random choice
  std::uint32_t code = 0;      ///< hipError_t to return; 0: only delay
  std::uint32_t delay_us = 0;  ///< sleep before the call (or the failure), microseconds
  std::string pause;           ///< before the call, wait until a process writes to this FIFO or closes it
};

/// Reads rules such as "hipMemMap@3=hipErrorOutOfMemory; *@10+=999; hipMemUnmap@1=delay:250; *@7=pause:FIFO".
///
/// Rules are separated by ';'. CALL is '*' or a call of hip_calls.def, or of `more`: a rule for any other
/// would never fire. After '@' stands N (the n-th call), N+ (the n-th and all later ones) or ~P/SEED (at
/// random with probability P). After '=' stands an error's name or number, delay:MILLISECONDS, or
/// pause:FIFO, where FIFO is an existing one. Throws std::invalid_argument that quotes the part it cannot
/// read.
[[nodiscard]] std::vector<fault_rule> parse_fault_rules(std::string_view text,
                                                        std::span<const std::string_view> more = {});

/// The calls and errors of another interface than HIP's, for rules about them.
struct fault_words {
  std::span<const std::string_view> calls;
  std::uint32_t (*error)(std::string_view name_or_number);  ///< throws std::invalid_argument
  std::string_view example;
};
[[nodiscard]] std::vector<fault_rule> parse_fault_rules(std::string_view text, const fault_words& words);

/// hipError name of a code, or "hipError(N)" for one not in hip_abi.h.
[[nodiscard]] std::string error_name(std::uint32_t code);
/// Code of an error's name or decimal number. Throws std::invalid_argument.
[[nodiscard]] std::uint32_t error_code(std::string_view name_or_number);

/// Builds the {"ptr": "0x..", "size": 4096} part of a trace line.
class trace_arguments {
 public:
  explicit trace_arguments(const char* stringified_names) : names_(stringified_names) {}
  template <class... Values>
  std::string json(Values... values) {
    out_.assign(1, '{');  // not = "{": GCC 12 at -O3 then warns of an overlap that cannot be
    (add(values), ...);
    return out_ + "}";
  }

 private:
  template <class Value>
  void add(Value value) {
    const std::string name = next_name();
    if (name.empty()) return;
    if (out_.size() > 1) out_ += ", ";
    out_ += '"' + name + "\": ";
    if constexpr (std::is_pointer_v<Value>) {
      add_pointer(reinterpret_cast<std::uintptr_t>(value));
    } else if constexpr (std::is_unsigned_v<Value>) {
      out_ += std::to_string(value);
    } else {
      out_ += std::to_string(static_cast<long long>(value));
    }
  }
  void add_pointer(std::uintptr_t address);
  std::string next_name();

  std::string_view names_;
  std::string out_;
};

class interceptor {
 public:
  interceptor() = default;
  interceptor(const interceptor&) = delete;
  interceptor& operator=(const interceptor&) = delete;

  /// Replaces the rules and starts counting from zero. An empty list disarms.
  void arm(std::vector<fault_rule> rules);
  /// How many calls were made to fail since arm().
  [[nodiscard]] std::uint64_t fired() const;
  /// How many calls were counted since arm() (only while armed).
  [[nodiscard]] std::uint64_t calls() const;
  /// Applies the rules to a call that is about to be made: returns the error to use in its place, or 0. Waits
  /// where a rule demands it.
  std::uint32_t before(const char* function);
  /// Appends one JSON line per call to the file; an empty path stops. Throws std::system_error.
  void trace_to(const std::string& path);

  /// Runs one call. `names` is the stringified argument list, "(ptr, size)".
  template <class Call, class... Args>
  hip_abi::hipError_t run(const char* function, const char* names, Call call, Args... args) {
    if (!active_.load(std::memory_order_relaxed)) [[likely]]
      return call(args...);
    return run_intercepted(function, names, call, args...);
  }

 private:
  struct armed_rule : fault_rule {
    std::uint64_t seen = 0;
    std::mt19937_64 random;
  };

  /// Not inlined, so that the common path around a driver call stays small.
  template <class Call, class... Args>
  [[gnu::noinline]] hip_abi::hipError_t run_intercepted(const char* function, const char* names, Call call,
                                                        Args... args) {
    const std::uint64_t started_us = now_us();
    std::uint32_t code = before(function);
    const bool injected = code != 0;
    if (!injected) code = static_cast<std::uint32_t>(call(args...));
    if (tracing_.load(std::memory_order_relaxed)) {
      try {
        after(function, trace_arguments(names).json(args...), code, injected, started_us);
      } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory: only the line is lost
      }
    }
    return static_cast<hip_abi::hipError_t>(code);
  }

  [[nodiscard]] static std::uint64_t now_us();
  void after(const char* function, const std::string& arguments, std::uint32_t code, bool injected,
             std::uint64_t started_us);
  void update_active();

  std::atomic<bool> active_{false};
  std::atomic<bool> tracing_{false};
  mutable std::mutex mutex_;
  std::vector<armed_rule> rules_;
  std::uint64_t fired_ = 0;
  std::uint64_t calls_ = 0;
  std::uint64_t lines_ = 0;
  std::FILE* trace_ = nullptr;
};

}  // namespace hip
