#include "intercept.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "parse.hpp"

namespace hip {
namespace {

struct named_code {
  const char* name;
  std::uint32_t code;
};

constexpr named_code known_errors[] = {
#define HIP_ABI_ERROR(name, value) {#name, value},
    HIP_ABI_ERRORS(HIP_ABI_ERROR)
#undef HIP_ABI_ERROR
};

template <class Number>
Number number(std::string_view text, std::string_view rule) {
  if (const auto value = parse_number<Number>(text)) return *value;
  throw std::invalid_argument("fault rule '" + std::string(rule) + "': '" + std::string(text) +
                              "' is not a number in range");
}

void parse_when(std::string_view when, std::string_view rule, fault_rule& out) {
  if (when.starts_with('~')) {
    const auto slash = when.find('/');
    out.probability = number<double>(when.substr(1, slash == when.npos ? when.npos : slash - 1), rule);
    if (slash != when.npos) out.seed = number<std::uint64_t>(when.substr(slash + 1), rule);
    if (!(out.probability > 0 && out.probability <= 1)) {
      throw std::invalid_argument("fault rule '" + std::string(rule) + "': probability must be in (0, 1]");
    }
    return;
  }
  if (when.ends_with('+')) {
    out.forever = true;
    when.remove_suffix(1);
  }
  out.nth = number<std::uint64_t>(when, rule);
  if (out.nth == 0) {
    throw std::invalid_argument("fault rule '" + std::string(rule) + "': calls count from 1");
  }
}

constexpr std::string_view known_calls[] = {
#define HIP_CALL(name, parameters, arguments) #name,
#include "hip_calls.def"
};

// Levenshtein distance: how many letters must be inserted, removed or replaced.
std::size_t distance(std::string_view first, std::string_view second) {
  std::vector<std::size_t> row(second.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < first.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < second.size(); ++j) {
      const std::size_t replaced = diagonal + (first[i] == second[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

void check_call(std::string_view call, std::string_view rule, const fault_words& words) {
  std::string_view nearest;
  std::size_t least = call.size() / 4 + 1;  // farther away is no misspelling
  for (const auto name : words.calls) {
    if (name == call) return;
    if (const auto letters = distance(call, name); letters < least) {
      nearest = name;
      least = letters;
    }
  }
  throw std::invalid_argument("fault rule '" + std::string(rule) + "': no call " + std::string(call) +
                              " to fail" +
                              (nearest.empty() ? "" : "; did you mean " + std::string(nearest) + "?"));
}

constexpr std::chrono::milliseconds longest_wait = std::chrono::hours(1);

std::string fifo(std::string_view path, std::string_view rule) {
  std::string out(path);
  struct stat status {};
  if (stat(out.c_str(), &status) != 0 || !S_ISFIFO(status.st_mode)) {
    throw std::invalid_argument("fault rule '" + std::string(rule) + "': '" + out + "' is no FIFO");
  }
  return out;
}

fault_rule parse_rule(std::string_view rule, const fault_words& words) {
  const auto at = rule.find('@');
  const auto equals = rule.find('=');
  if (at == rule.npos || equals == rule.npos || equals < at) {
    throw std::invalid_argument("fault rule '" + std::string(rule) + "': expected CALL@N=ERROR, such as " +
                                std::string(words.example));
  }
  fault_rule out;
  const auto function = trimmed(rule.substr(0, at));
  if (function != "*") {
    check_call(function, rule, words);
    out.function = function;
  }
  parse_when(trimmed(rule.substr(at + 1, equals - at - 1)), rule, out);
  const auto action = trimmed(rule.substr(equals + 1));
  if (action.starts_with("delay:")) {
    const auto delay_ms = number<std::uint32_t>(action.substr(6), rule);
    if (std::chrono::milliseconds(delay_ms) > longest_wait) {
      throw std::invalid_argument("fault rule '" + std::string(rule) + "': a delay is at most an hour");
    }
    out.delay_us = delay_ms * 1000;
  } else if (action.starts_with("pause:")) {
    out.pause = fifo(action.substr(6), rule);
  } else {
    out.code = words.error(action);
    if (out.code == 0) {
      throw std::invalid_argument("fault rule '" + std::string(rule) + "': success is no error");
    }
  }
  return out;
}

// Waits until a process writes to the FIFO, or opens and closes it; signals do not end the wait. Opening a
// FIFO for writing waits for a reader: so the process that opens it knows that the call is under way.
void pause_for(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return;  // the FIFO was removed: nothing could end the pause
  const auto end = std::chrono::steady_clock::now() + longest_wait;
  pollfd wait{descriptor, POLLIN, 0};
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    if (left <= 0 || poll(&wait, 1, static_cast<int>(left)) >= 0 || errno != EINTR) break;
  }
  close(descriptor);
}

}  // namespace

std::vector<fault_rule> parse_fault_rules(std::string_view text, std::span<const std::string_view> more) {
  std::vector<std::string_view> calls(std::begin(known_calls), std::end(known_calls));
  calls.insert(calls.end(), more.begin(), more.end());
  return parse_fault_rules(text, {calls, error_code, "hipMemMap@3=hipErrorOutOfMemory"});
}

std::vector<fault_rule> parse_fault_rules(std::string_view text, const fault_words& words) {
  std::vector<fault_rule> rules;
  while (!text.empty()) {
    const auto end = text.find(';');
    const auto rule = trimmed(text.substr(0, end));
    if (!rule.empty()) rules.push_back(parse_rule(rule, words));
    text = end == text.npos ? std::string_view{} : text.substr(end + 1);
  }
  return rules;
}

std::string error_name(std::uint32_t code) {
  for (const auto& known : known_errors) {
    if (known.code == code) return known.name;
  }
  return "hipError(" + std::to_string(code) + ")";
}

std::uint32_t error_code(std::string_view name_or_number) {
  for (const auto& known : known_errors) {
    if (known.name == name_or_number) return known.code;
  }
  if (name_or_number.empty() || name_or_number.find_first_not_of("0123456789") != std::string_view::npos) {
    throw std::invalid_argument("'" + std::string(name_or_number) + "' is no HIP error hipplan knows");
  }
  return number<std::uint32_t>(name_or_number, name_or_number);
}

void trace_arguments::add_pointer(std::uintptr_t address) {
  char text[2 + 16 + 1];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  out_ += '"';
  out_ += text;
  out_ += '"';
}

std::string trace_arguments::next_name() {
  const auto first = names_.find_first_not_of("(, )");
  if (first == std::string_view::npos) return {};
  names_.remove_prefix(first);
  const auto length = names_.find_first_of(",) ");
  const std::string name(names_.substr(0, length));
  names_.remove_prefix(length);
  return name;
}

void interceptor::arm(std::vector<fault_rule> rules) {
  const std::lock_guard lock(mutex_);
  rules_.clear();
  for (auto& rule : rules) {
    std::mt19937_64 random(rule.seed);
    rules_.push_back({std::move(rule), 0, random});
  }
  fired_ = calls_ = 0;
  update_active();
}

std::uint64_t interceptor::fired() const {
  const std::lock_guard lock(mutex_);
  return fired_;
}

std::uint64_t interceptor::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

void interceptor::trace_to(const std::string& path) {
  std::FILE* file = nullptr;
  if (!path.empty()) {
    file = std::fopen(path.c_str(), "ae");
    if (!file) throw std::system_error(errno, std::generic_category(), "cannot write the trace " + path);
  }
  const std::lock_guard lock(mutex_);
  if (trace_) std::fclose(trace_);
  trace_ = file;
  lines_ = 0;
  tracing_.store(file != nullptr, std::memory_order_relaxed);
  update_active();
}

std::uint64_t interceptor::now_us() {
  using namespace std::chrono;
  return static_cast<std::uint64_t>(
      duration_cast<microseconds>(steady_clock::now().time_since_epoch()).count());
}

std::uint32_t interceptor::before(const char* function) {
  std::uint32_t code = 0;
  std::uint32_t delay_us = 0;
  std::vector<std::string> pauses;
  {
    const std::lock_guard lock(mutex_);
    ++calls_;
    for (auto& rule : rules_) {
      if (!rule.function.empty() && rule.function != function) continue;
      ++rule.seen;
      const bool hit = rule.probability > 0
                           ? std::uniform_real_distribution<>()(rule.random) < rule.probability
                           : rule.seen == rule.nth || (rule.forever && rule.seen > rule.nth);
      if (!hit) continue;
      delay_us += rule.delay_us;
      if (!rule.pause.empty()) pauses.push_back(rule.pause);
      if (code == 0) code = rule.code;
    }
    if (code != 0) ++fired_;
  }
  if (delay_us != 0) std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
  for (const auto& fifo : pauses) pause_for(fifo);
  return code;
}

void interceptor::after(const char* function, const std::string& arguments, std::uint32_t code, bool injected,
                        std::uint64_t started_us) {
  const std::uint64_t took_us = now_us() - started_us;
  const std::lock_guard lock(mutex_);
  if (!trace_) return;
  std::fprintf(
      trace_,
      "{\"seq\": %llu, \"pid\": %d, \"call\": \"%s\", \"args\": %s, \"result\": \"%s\", \"code\": %u, "
      "\"injected\": %s, \"us\": %llu}\n",
      static_cast<unsigned long long>(++lines_), static_cast<int>(getpid()), function, arguments.c_str(),
      error_name(code).c_str(), code, injected ? "true" : "false", static_cast<unsigned long long>(took_us));
  std::fflush(trace_);
}

void interceptor::update_active() {
  active_.store(!rules_.empty() || trace_ != nullptr, std::memory_order_relaxed);
}

}  // namespace hip
