#include "mapped_memory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "units.hpp"

namespace hipplan {
namespace {

std::string read_file(const char* path) {
  struct descriptor {
    int value;
    ~descriptor() {
      if (value >= 0) close(value);
    }
  } const file{open(path, O_RDONLY | O_CLOEXEC)};
  std::string out;
  std::size_t used = 0;
  ssize_t got = 0;
  do {
    used += static_cast<std::size_t>(got);
    out.resize(std::max<std::size_t>(used + 4096, out.capacity()));
    got = file.value < 0 ? 0 : read(file.value, out.data() + used, out.size() - used);
  } while (got > 0);
  out.resize(got < 0 ? 0 : used);
  return out;
}

}  // namespace

mapped_memory mapped_memory::now() {
  mapped_memory out;
  out.text_ = read_file("/proc/self/maps");
  const std::string_view text = out.text_;
  for (std::size_t at = 0; at < text.size();) {
    // 7f5e8c000000-7f5e8c021000 rw-p 00000000 00:00 0    [heap]
    const auto line_end = std::min(text.find('\n', at), text.size());
    mapping next{};
    const auto* const end = text.data() + line_end;
    const auto first = std::from_chars(text.data() + at, end, next.begin, 16);
    if (first.ptr == end) break;
    const auto second = std::from_chars(first.ptr + 1, end, next.end, 16);
    const auto rights_at = static_cast<std::size_t>(second.ptr - text.data());
    next.accessible = text.substr(rights_at, 4) != " ---";
    next.name = std::min(text.find_first_of("/[\n", rights_at), line_end);
    out.all_.push_back(next);
    at = line_end + 1;
  }
  return out;
}

std::string mapped_memory::accessible_at(std::uintptr_t address, std::size_t size_bytes) const {
  const auto found = std::ranges::find_if(all_, [&](const mapping& each) {
    return each.accessible && each.begin < address + size_bytes && address < each.end;
  });
  if (found == all_.end()) return {};
  const auto name = text_.substr(found->name, text_.find('\n', found->name) - found->name);
  return "the process has " + (name.empty() ? "memory without a name" : name) + " there, from " +
         hexadecimal(found->begin) + " to " + hexadecimal(found->end);
}

bool mapped_memory::contains(std::uintptr_t address) const {
  const auto behind = std::ranges::upper_bound(all_, address, {}, &mapping::begin);
  return behind != all_.begin() && address < std::prev(behind)->end;
}

}  // namespace hipplan
