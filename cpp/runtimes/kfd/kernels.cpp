#include "kernels.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "launches.hpp"
#include "log.hpp"
#include "machine.hpp"
#include "page_tables.hpp"

namespace kfdsim {
namespace {

// Never destroyed: GPUs work while the process exits.
auto& kernel_names() {  // by the address of the kernel's descriptor
  static auto& names = *new std::map<u64, std::string>;
  return names;
}
auto& symbol_names() {  // by HSA's handle
  static auto& names = *new std::map<u64, std::string>;
  return names;
}

// A kernel's arguments, each at its natural alignment.
class kernel_arguments {
 public:
  static constexpr size_t size_max = 256;
  kernel_arguments(const char* begin, size_t size) {
    if (begin) std::memcpy(bytes_, begin, size);
  }
  [[nodiscard]] const char* bytes() const { return bytes_; }
  void align(size_t unit) { at_ = round_up(at_, unit); }
  template <class T>
  T next() {
    align(alignof(T));
    T value;
    std::memcpy(&value, bytes_ + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

 private:
  char bytes_[size_max] = {};
  size_t at_ = 0;
};

void fill_buffer(u32 gpu, kernel_arguments* given) {
  const u64 to = given->next<u64>(), pattern = given->next<u64>();
  const u64 count = given->next<u32>(), unit = given->next<u32>(), end = given->next<u64>();
  const u64 size = count * unit;
  const char* const source = reach_all(gpu, pattern, size, right::read);
  if (source && size && end > to) fill(gpu, to, source, size, round_up(end - to, size));
}

// The buffer is one of four arguments, for bytes, shorts, ints and longs: the one that is not null.
void fill_buffer_2d(u32 gpu, kernel_arguments* given) {
  u64 to = 0, unit = 1;
  for (u64 candidate_unit : {1, 2, 4, 8})
    if (const u64 candidate = given->next<u64>()) to = candidate, unit = candidate_unit;
  const u64 pattern = given->next<u64>(), size = given->next<u32>() * unit;
  const u64 origin = given->next<u64>(), width = given->next<u64>(), height = given->next<u64>();
  const u64 pitch = given->next<u64>();
  const char* const source = reach_all(gpu, pattern, size, right::read);
  bool reached_all = source != nullptr;
  for (u64 y = 0; reached_all && y < height; y++)
    reached_all = fill(gpu, to + (origin + y * pitch) * unit, source, size, width * size);
}

void copy_buffer(u32 gpu, kernel_arguments* given) {
  const u64 from = given->next<u64>(), to = given->next<u64>();
  copy(gpu, to, from, given->next<u64>());
}

void copy_buffer_aligned(u32 gpu, kernel_arguments* given) {
  const u64 from = given->next<u64>(), to = given->next<u64>();
  const u64 from_origin = given->next<u64>(), to_origin = given->next<u64>();
  const u64 count = given->next<u64>(), unit = given->next<u32>();
  copy(gpu, to + to_origin * unit, from + from_origin * unit, count * unit);
}

void copy_rectangle(u32 gpu, kernel_arguments* given, u64 unit) {
  struct copy_side {
    u64 pitch, slice, origin, padding;
  };
  const u64 from = given->next<u64>(), to = given->next<u64>();
  given->align(32);
  const auto source = given->next<copy_side>(), target = given->next<copy_side>();
  const auto width = given->next<u64>(), height = given->next<u64>(), depth = given->next<u64>();
  bool reached_all = true;
  for (u64 z = 0; z < depth; z++)
    for (u64 y = 0; y < height && reached_all; y++)
      reached_all = copy(gpu, to + (target.origin + z * target.slice + y * target.pitch) * unit,
                         from + (source.origin + z * source.slice + y * source.pitch) * unit, width * unit);
}

enum wait_condition : u64 { wait_until_at_least, wait_until_equal, wait_until_and, wait_until_nor };

template <class Word>
bool holds(u64 condition, Word now, Word value, Word mask) {
  switch (condition) {
    case wait_until_at_least:
      return (now & mask) >= value;
    case wait_until_equal:
      return (now & mask) == value;
    case wait_until_and:
      return (now & mask & value) != 0;
    case wait_until_nor:
      return (~(now | value) & mask) != 0;
    default:
      return true;
  }
}

// Whether a wait is over; it is, too, after a page fault.
template <class Word>
bool waited_for(u32 gpu, u64 address, u64 condition, u64 value, u64 mask) {
  const auto* const word = reach_object<Word>(gpu, address, right::read);
  if (!word) return true;
  const Word now = __atomic_load_n(word, __ATOMIC_ACQUIRE);
  return holds(condition, now, static_cast<Word>(value), static_cast<Word>(mask));
}

template <class Word>
void write_word(u32 gpu, u64 address, u64 value) {
  auto* const word = reach_object<Word>(gpu, address, right::write);
  if (word) __atomic_store_n(word, static_cast<Word>(value), __ATOMIC_RELEASE);
}

// The address is one of two arguments, for 32 and 64 bits: the one that is not null.
void write_value(u32 gpu, kernel_arguments* given) {
  const u64 as_int = given->next<u64>(), as_long = given->next<u64>(), value = given->next<u64>();
  if (as_int) {
    write_word<u32>(gpu, as_int, value);
  } else {
    write_word<u64>(gpu, as_long, value);
  }
}

bool wait_for_value(u32 gpu, kernel_arguments* given) {
  const u64 as_int = given->next<u64>(), as_long = given->next<u64>();
  const u64 value = given->next<u64>(), condition = given->next<u64>(), mask = given->next<u64>();
  return as_int ? waited_for<u32>(gpu, as_int, static_cast<u32>(condition), value, mask)
                : waited_for<u64>(gpu, as_long, condition, value, mask);
}

// hipStreamBatchMemOpParams
struct memory_operation {
  u32 kind;
  u64 address;
  u64 value;
  u32 flags;
  u64 rest[2];
};
static_assert(sizeof(memory_operation) == 48);
enum memory_operation_kind : u32 { op_wait_32 = 1, op_write_32 = 2, op_wait_64 = 4, op_write_64 = 5 };

// Returns false for a wait that is not over.
bool run_operation(u32 gpu, const memory_operation& wanted) {
  switch (wanted.kind) {
    case op_write_32:
      write_word<u32>(gpu, wanted.address, wanted.value);
      return true;
    case op_write_64:
      write_word<u64>(gpu, wanted.address, wanted.value);
      return true;
    case op_wait_32:
      return waited_for<u32>(gpu, wanted.address, wanted.flags, wanted.value, ~0ull);
    case op_wait_64:
      return waited_for<u64>(gpu, wanted.address, wanted.flags, wanted.value, ~0ull);
    default:
      return true;
  }
}

// As in AMD's kernel, none waits for another.
bool run_operations(u32 gpu, kernel_arguments* given, std::vector<bool>* done) {
  const u64 operations = given->next<u64>();
  done->resize(given->next<u32>());
  bool all = true;
  for (size_t i = 0; i < done->size(); ++i) {
    if ((*done)[i]) continue;
    const u64 address = operations + i * sizeof(memory_operation);
    const auto* const wanted = reach_object<memory_operation>(gpu, address, right::read);
    (*done)[i] = !wanted || run_operation(gpu, *wanted);
    all &= (*done)[i];
  }
  return all;
}

// ROCr's own copy and fill kernels have no name here; their arguments distinguish them (blit_kernel.cpp:
// KernelArgs). Each phase of a copy is a pair of addresses that advance together.
bool run_unnamed(u32 gpu, const char* arguments) {
  u64 v[10];
  std::memcpy(v, arguments, sizeof v);
  const auto moved_together = [&](int pair) {
    return v[pair] >= v[0] && v[pair] - v[0] == v[pair + 1] - v[1];
  };
  for (int end : {8, 4})  // aligned copies have four phases, misaligned ones two
    if (v[end] > v[0] && moved_together(end) && moved_together(2) && (end == 4 || moved_together(6)))
      return copy(gpu, v[1], v[0], v[end] - v[0]);
  const bool is_fill = v[0] <= v[1] && v[1] <= v[2] && v[2] - v[0] < 1ull << 40;
  return is_fill && fill(gpu, v[0], &v[3], sizeof(u32), v[2] - v[0]);
}

std::string kernel_name(u64 object) {
  const auto found = kernel_names().find(object);
  if (found == kernel_names().end()) return "";
  const std::string& name = found->second;
  return name.substr(0, name.rfind(".kd"));
}

// Reports each kernel once; a program may launch it a million times. Where launches are refused, it was
// launched by a function that is not: hipGraphAddNode adds nodes of all kinds.
void not_run(const std::string& name) {
  machine().kernels_not_run++;
  static auto& reported = *new std::set<std::string>;
  log(reported.insert(name).second ? 0 : 1, "kernel '%s' is not run: there is no GPU", name.c_str());
  if (launches_are_refused()) end_after_fault();
}

// Returns false for a kernel of the program's.
bool run_at_once(u32 gpu, const std::string& name, kernel_arguments* given) {
  if (name == "__amd_rocclr_fillBufferAligned")
    fill_buffer(gpu, given);
  else if (name == "__amd_rocclr_fillBufferAligned2D")
    fill_buffer_2d(gpu, given);
  else if (name == "__amd_rocclr_copyBuffer")
    copy_buffer(gpu, given);
  else if (name == "__amd_rocclr_copyBufferAligned")
    copy_buffer_aligned(gpu, given);
  else if (name == "__amd_rocclr_copyBufferRect")
    copy_rectangle(gpu, given, 1);
  else if (name == "__amd_rocclr_copyBufferRectAligned")
    copy_rectangle(gpu, given, 4);
  else if (name == "__amd_rocclr_streamOpsWrite")
    write_value(gpu, given);
  else
    return name.empty() && run_unnamed(gpu, given->bytes());
  return true;
}

}  // namespace

bool run_kernel(u32 gpu, const dispatch_packet& packet, std::vector<bool>* done_before) {
  const std::string name = kernel_name(packet.object);
  const auto arguments =
      packet.arguments ? reach(gpu, packet.arguments, kernel_arguments::size_max, right::read) : reached{};
  kernel_arguments given(arguments.bytes, arguments.size);
  bool done = true;
  if (name == "__amd_rocclr_streamOpsWait") {
    done = wait_for_value(gpu, &given);
  } else if (name == "__amd_rocclr_batchMemOp") {
    done = run_operations(gpu, &given, done_before);
  } else if (name != "__amd_rocclr_initHeap" && name != "__amd_rocclr_gwsInit") {
    if (!arguments.bytes || !run_at_once(gpu, name, &given)) not_run(name);
  }
  if (done) log(2, "gpu %u has done with kernel %s", gpu, name.c_str());
  return done;
}

}  // namespace kfdsim

// AMD's HIP finds its kernels in ROCr by name and launches them by address; these two functions connect names
// and addresses.

namespace {

struct hsa_handle {
  uint64_t handle;
};
constexpr uint32_t kernel_object = 22;  // HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT

void* rocr_function(const char* function) {
  static void* const library = dlopen("libhsa-runtime64.so.1", RTLD_NOW | RTLD_NOLOAD);
  return dlsym(library ? library : RTLD_NEXT, function);
}

}  // namespace

KFDSIM_EXPORT uint32_t hsa_executable_get_symbol_by_name(hsa_handle executable, const char* name,
                                                         const hsa_handle* agent, hsa_handle* symbol) {
  static const auto real = reinterpret_cast<decltype(&hsa_executable_get_symbol_by_name)>(
      rocr_function("hsa_executable_get_symbol_by_name"));
  const uint32_t status = real(executable, name, agent, symbol);
  const std::lock_guard lock(kfdsim::mutex());
  if (!status) kfdsim::symbol_names()[symbol->handle] = name;
  return status;
}

KFDSIM_EXPORT uint32_t hsa_executable_symbol_get_info(hsa_handle symbol, uint32_t attribute, void* value) {
  static const auto real = reinterpret_cast<decltype(&hsa_executable_symbol_get_info)>(
      rocr_function("hsa_executable_symbol_get_info"));
  const uint32_t status = real(symbol, attribute, value);
  const std::lock_guard lock(kfdsim::mutex());
  if (!status && attribute == kernel_object)
    kfdsim::kernel_names()[*static_cast<uint64_t*>(value)] = kfdsim::symbol_names()[symbol.handle];
  return status;
}
