// Reads runs: rows for many members, which differ in their number.
#include <stdexcept>
#include <utility>

#include "row_reader.hpp"
#include "run_members.hpp"

namespace hipplan {
namespace {

constexpr std::string_view memory_run = "create allocations";
constexpr std::string_view mapping_run = "map and set access";
constexpr std::string_view access_run = "change access";
constexpr std::string_view unmap_run = "unmap chunks";
constexpr std::string_view copy_run = "copy chunks";
constexpr std::string_view count_run = "create counted";
constexpr std::size_t most_of_member = 6;  ///< rows or names that a member of a run makes
constexpr std::size_t most_rows = PY_SSIZE_T_MAX / most_of_member;
constexpr auto too_many_rows = "the rows are more than memory can hold";

/// The items of a tuple that the members of a run have in turn, or of a tuple of runs.
std::vector<PyObject*> items_of(PyObject* tuple) {
  if (!PyTuple_Check(tuple)) throw std::invalid_argument("what the members of a run have in turn is a tuple");
  const Py_ssize_t count = PyTuple_GET_SIZE(tuple);
  std::vector<PyObject*> items;
  items.reserve(static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) items.push_back(PyTuple_GET_ITEM(tuple, i));
  return items;
}

/// How many members a run has. from: its fields.
std::size_t members_in(fields from) {
  [[maybe_unused]] const auto name = from.text();
  [[maybe_unused]] const auto slot = from.slot();
  [[maybe_unused]] const auto first = from.number();
  const auto count = from.number();
  if (count > most_rows) throw std::invalid_argument(too_many_rows);
  return count;
}

/// How many names and rows a tuple makes, at most.
std::size_t rows_in(PyObject* tuple) {
  fields from(tuple);
  const auto operation = from.text();
  if (operation == memory_run || operation == count_run || operation == access_run) return members_in(from);
  if (operation == mapping_run) return 2 * members_in(from);
  if (operation == copy_run) return most_of_member * members_in(from);
  if (operation != unmap_run) return 1;
  std::size_t total = 0;
  for (auto* const item : items_of(from.next())) {
    total += members_in(fields(item));
    if (total > most_rows) throw std::invalid_argument(too_many_rows);
  }
  return total;
}

}  // namespace

std::size_t rows_in(std::span<PyObject* const> tuples) {
  std::size_t total = 0;
  for (auto* const tuple : tuples) {
    total += rows_in(tuple);
    if (total > 2 * most_rows) throw std::invalid_argument(too_many_rows);
  }
  return total;
}

bool row_reader::read_run(std::string_view operation, fields& from) {
  if (operation == memory_run) {
    read_memory_run(from);
  } else if (operation == mapping_run) {
    read_mapping_run(from);
  } else if (operation == access_run) {
    read_access_run(from);
  } else if (operation == unmap_run) {
    read_unmap_run(from);
  } else if (operation == copy_run) {
    read_copy_run(from);
  } else if (operation == count_run) {
    read_count_run(from);
  } else {
    return false;
  }
  return true;
}

/// Allocations of chunks: fields as of "create allocation" for each kind, which the members have in turn.
void row_reader::read_memory_run(fields& from) {
  const members all(from);
  const auto read = find("create allocation");
  std::vector<decltype(row::what)> kinds;
  for (auto* const item : items_of(from.next())) {
    fields kind(item);
    kinds.push_back(read(*this, kind));
    kind.end();
  }
  from.end();
  if (kinds.empty()) throw std::invalid_argument("a run of allocations has no kind");
  for (std::uint64_t i = 0; i < all.count; ++i) {
    add(all.name + '#' + std::to_string(all.first + i), all.slot + i, kinds[i % kinds.size()]);
  }
}

/// Mappings of chunks one behind the other, each with its rights, which the members have in turn.
void row_reader::read_mapping_run(fields& from) {
  const members all(from);
  const auto range = require_slot(from.slot());
  const auto offset = from.number();
  const auto memory = require_slot(from.slot());
  const auto size_bytes = from.number();
  require_numbers(offset, all.count, size_bytes);
  require_numbers(memory, all.count);
  std::vector<rights> given;
  for (auto* const item : items_of(from.next())) given.push_back(read_rights(item));
  from.end();
  for (std::uint64_t i = 0; i < all.count; ++i) {
    const auto& name = names_->emplace_back(all.name + '[' + std::to_string(all.first + i) + ']');
    const plan_name named({names_, &name});
    const auto slot = all.slot + i;
    out_->rows.push_back({named, slot, map_memory{range, offset + i * size_bytes, memory + i, size_bytes}});
    if (given.empty()) continue;
    out_->rows.push_back({named, slot, set_rights{given[i % given.size()], std::nullopt, false}});
  }
}

/// Other rights on mappings of chunks: those that they get, and had before, which the members have in turn.
void row_reader::read_access_run(fields& from) {
  const members all(from);
  std::vector<set_rights> given;
  for (auto* const item : items_of(from.next())) {
    fields both(item);
    const auto now = read_rights(both.next());
    given.push_back({now, read_rights(both.next()), false});
    both.end();
  }
  from.end();
  if (given.empty()) throw std::invalid_argument("mappings of a run get rights");
  for (std::uint64_t i = 0; i < all.count; ++i) {
    add(all.name + '[' + std::to_string(all.first + i) + ']', all.slot + i, given[i % given.size()]);
  }
}

/// Mappings of chunks that go, of several runs of equal length: the last chunk of each run in turn, then the
/// one before. Each has its rights, which the members of its run have in turn.
void row_reader::read_unmap_run(fields& from) {
  struct unmapped {
    members all;
    slot_id memory;
    std::vector<rights> before;
  };
  std::vector<unmapped> runs;
  for (auto* const item : items_of(from.next())) {
    fields of(item);
    unmapped next{members(of), require_slot(of.slot()), {}};
    require_numbers(next.memory, next.all.count);
    for (auto* const given : items_of(of.next())) next.before.push_back(read_rights(given));
    of.end();
    if (next.before.empty()) throw std::invalid_argument("mappings that go have rights");
    if (!runs.empty() && next.all.count != runs.front().all.count)
      throw std::invalid_argument("runs that go together are of equal length");
    runs.push_back(std::move(next));
  }
  from.end();
  if (runs.empty()) throw std::invalid_argument("no run goes");
  for (auto i = runs.front().all.count; i-- > 0;) {
    for (const auto& [all, memory, before] : runs) {
      add(all.name + '[' + std::to_string(all.first + i) + ']', all.slot + i,
          unmap_memory{memory + i, before[i % before.size()], false});
    }
  }
}

/// Copies of chunks' bytes into new memory, which is mapped at a temporary place for this, and so is the old
/// memory unless it is read in place. The members have in turn: whether it is, and the devices that write and
/// read, with the rights at the temporary place.
void row_reader::read_copy_run(fields& from) {
  struct way {
    bool in_place;
    device_id target;
    rights writes;
    device_id source;
    rights reads;
  };
  const members all(from);
  const auto size_bytes = from.number();
  const auto memory = require_slot(from.slot());
  const auto old_memory = require_slot(from.slot());
  const auto old_mapped = require_slot(from.slot());
  std::vector<way> ways;
  for (auto* const item : items_of(from.next())) {
    fields of(item);
    const auto in_place = of.boolean();
    const auto target = of.device();
    const auto writes = read_rights(of.next());
    const auto source = of.device();
    ways.push_back({in_place, target, writes, source, read_rights(of.next())});
    of.end();
  }
  from.end();
  if (ways.empty()) throw std::invalid_argument("chunks are copied in no way");
  require_numbers(all.slot, all.count, most_of_member);
  require_numbers(0, 2, size_bytes);
  for (const auto first : {memory, old_memory, old_mapped}) require_numbers(first, all.count);
  auto next_slot = all.slot;
  for (std::uint64_t i = 0; i < all.count; ++i) {
    const auto& way = ways[i % ways.size()];
    const auto chunk = all.name + '#' + std::to_string(all.first + i);
    const auto place = next_slot++;
    add(chunk + " (copy)", place, reserve_range{(way.in_place ? 1 : 2) * size_bytes, 0, 0, 0, false});
    const auto target = next_slot++;
    add(chunk + " (copied to)", target, map_memory{place, 0, memory + i, size_bytes});
    add(chunk + " (copied to)", target, set_rights{way.writes, std::nullopt, false});
    const auto source = way.in_place ? old_mapped + i : next_slot++;
    if (!way.in_place) {
      add(chunk + " (copied from)", source, map_memory{place, size_bytes, old_memory + i, size_bytes});
      add(chunk + " (copied from)", source, set_rights{way.reads, std::nullopt, false});
    }
    add(chunk, target, copy_memory{way.target, source, way.source, size_bytes});
  }
}

/// Allocations or buffers that differ in their number. What makes each is a tuple: the operation of its row,
/// and the fields behind the slot.
void row_reader::read_count_run(fields& from) {
  const members all(from);
  fields of(from.next());
  from.end();
  const auto operation = of.text();
  const auto read = find_counted(operation);
  if (!read) throw std::invalid_argument("what count makes is an allocation or a buffer");
  const auto what = read(*this, of);
  of.end();
  for (std::uint64_t i = 0; i < all.count; ++i) {
    add(all.name + '.' + std::to_string(all.first + i), all.slot + i, what);
  }
}

}  // namespace hipplan
