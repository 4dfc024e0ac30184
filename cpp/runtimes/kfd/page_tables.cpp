#include "page_tables.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "backing.hpp"
#include "log.hpp"
#include "managed.hpp"
#include "memory.hpp"

namespace kfdsim {
namespace {

reached page_fault(u32 gpu, u64 address, right needed, const char* why) {
  auto& here = machine();
  here.page_faults++;
  log(0, "Memory access fault by GPU %u (%s, gpu_id %u) on address %#llx. It may not %s: %s.", gpu,
      here.gpus[gpu].name.c_str(), here.gpus[gpu].id, static_cast<unsigned long long>(address),
      needed == right::write ? "write" : "read", why);
  end_after_fault();
  return {nullptr, 0, nullptr, 0};
}

// The entry that holds an address, or the table's end.
page_table::const_iterator entry_at(const page_table& table, u64 address) {
  auto entry = table.upper_bound(address);
  if (entry == table.begin()) return table.end();
  --entry;
  return address < entry->first + entry->second.size ? entry : table.end();
}

bool is_backed(u32 gpu, u64 address, const reached& target, u64 size) {
  if (!target.memory || can_back(*target.memory, target.inside, size)) return true;
  page_fault(gpu, address, right::write, "this machine itself has no memory left for what is written there");
  return false;
}

}  // namespace

void end_after_fault() {
  const char* wanted = std::getenv("KFDSIM_ON_FAULT");
  if (!wanted || std::strcmp(wanted, "count") != 0) std::abort();
}

reached reach(u32 gpu, u64 address, u64 wanted, right needed) {
  const auto& table = machine().page_tables[gpu];
  if (const auto entry = entry_at(table, address); entry != table.end()) {
    const auto& [begin, mapped] = *entry;
    if (needed == right::read && !mapped.readable)
      return page_fault(gpu, address, needed, "it is mapped there without rights");
    if (needed == right::write && !mapped.writable)
      return page_fault(gpu, address, needed, "it is mapped there for reading only");
    char* const bytes = view(mapped.memory);
    const u64 inside = address - begin, size = std::min(wanted, mapped.size - inside);
    if (!bytes) return {nullptr, size, nullptr, 0};
    const bool has_file = !mapped.memory->registered;
    return {bytes + mapped.offset + inside, size, has_file ? mapped.memory : nullptr, mapped.offset + inside};
  }
  if (const u64 size = managed_bytes(gpu, address, wanted, needed))
    return {reinterpret_cast<char*>(address), size, nullptr, 0};
  return page_fault(gpu, address, needed, "nothing is mapped there for it");
}

char* reach_all(u32 gpu, u64 address, u64 size, right needed, u64 alignment) {
  if (address % alignment) {
    page_fault(gpu, address, needed, "the address is not aligned");
    return nullptr;
  }
  const auto found = reach(gpu, address, size, needed);
  if (!found.bytes || found.size == size) return found.bytes;
  page_fault(gpu, address + found.size, needed, "other memory begins there");
  return nullptr;
}

mapped_memory mapped_at(u32 gpu, u64 address, u64 size) {
  const auto& table = machine().page_tables[gpu];
  const auto entry = entry_at(table, address);
  if (entry == table.end()) return {nullptr, nullptr};
  const auto& [begin, mapped] = *entry;
  const u64 inside = address - begin;
  const bool whole = mapped.readable && mapped.writable && mapped.size - inside >= size;
  char* const bytes = whole ? view(mapped.memory) : nullptr;
  return {mapped.memory, bytes ? bytes + mapped.offset + inside : nullptr};
}

bool copy(u32 gpu, u64 to, u64 from, u64 size) {
  while (size > 0) {
    const auto target = reach(gpu, to, size, right::write);
    const auto source = reach(gpu, from, size, right::read);
    if (!target.bytes || !source.bytes) return false;
    const u64 done = std::min(target.size, source.size);
    if (!is_backed(gpu, to, target, done)) return false;
    if (!source.memory) {
      std::memmove(target.bytes, source.bytes, done);
    } else if (!read_bytes(*source.memory, source.inside, done, target.bytes)) {
      return false;
    }
    to += done;
    from += done;
    size -= done;
  }
  return true;
}

bool fill(u32 gpu, u64 to, const void* pattern, u64 pattern_size, u64 size) {
  if (!pattern_size) return false;
  const auto* const bytes = static_cast<const u8*>(pattern);
  const bool uniform = std::all_of(bytes, bytes + pattern_size, [&](u8 byte) { return byte == bytes[0]; });
  for (u64 done = 0; done < size;) {
    const auto target = reach(gpu, to + done, size - done, right::write);
    if (!target.bytes) return false;
    if (uniform && !bytes[0] && target.memory && target.size >= big_page_bytes) {
      if (const u64 zeros = give_back(*target.memory, target.inside, target.size)) {
        done += zeros;
        continue;
      }
    }
    if (!is_backed(gpu, to + done, target, target.size)) return false;
    if (uniform) {
      std::memset(target.bytes, bytes[0], target.size);
    } else {
      for (u64 i = 0; i < target.size; ++i)
        target.bytes[i] = static_cast<char>(bytes[(done + i) % pattern_size]);
    }
    done += target.size;
  }
  return true;
}

}  // namespace kfdsim
