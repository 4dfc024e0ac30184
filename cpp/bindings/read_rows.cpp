#include "read_rows.hpp"

#include <array>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "fields.hpp"
#include "run_members.hpp"

namespace hipplan {
namespace {

constexpr std::string_view memory_run = "create allocations";
constexpr std::string_view mapping_run = "map and set access";
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
  if (operation == memory_run || operation == count_run) return members_in(from);
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

class reader {
 public:
  explicit reader(std::size_t rows) {
    names_->reserve(rows);
    out_->rows.reserve(rows);
  }

  void read(PyObject* tuple);
  [[nodiscard]] row_table_ptr result() { return out_; }

 private:
  /// Buffers read themselves.
  template <class Kind>
  static decltype(row::what) read_kind(reader&, fields& from) {
    return Kind::read(from);
  }
  using reads = decltype(row::what) (*)(reader&, fields&);
  [[nodiscard]] static reads find(std::string_view operation);
  /// Null if no buffer is made by this operation.
  template <class... Rows>
  [[nodiscard]] static reads find_buffer(std::string_view operation, types<Rows...>) {
    reads read = nullptr;
    ((operation == Rows::operation && (read = &read_kind<Rows>)) || ...);
    return read;
  }
  void add(std::string name, slot_id slot, decltype(row::what) what) {
    const auto& kept = names_->emplace_back(std::move(name));
    out_->rows.push_back({plan_name({names_, &kept}), slot, std::move(what)});
  }
  void read_memory_run(fields& from);
  void read_mapping_run(fields& from);
  void read_unmap_run(fields& from);
  void read_copy_run(fields& from);
  void read_count_run(fields& from);

  /// Thousands of mappings share the same rights, as the same Python object: then it is read once.
  [[nodiscard]] rights read_rights(PyObject* given);
  [[nodiscard]] static std::pair<hip::hipMemoryAdvise, device_id> read_advice(PyObject* given);

  std::shared_ptr<row_table> out_ = std::make_shared<row_table>();
  std::shared_ptr<std::vector<std::string>> names_ =
      std::make_shared<std::vector<std::string>>();  // never moves
  std::string_view last_operation_;
  reads last_reads_ = nullptr;
  PyObject* last_rights_ = nullptr;
};

hip::hipMemAccessDesc read_right(PyObject* given) {
  fields from(given);
  const int ordinal = from.integer();
  const auto flags = from.word<hip::hipMemAccessFlags>(access_words);
  from.end();
  const auto location = ordinal < 0 ? hip::hipMemLocation{hip::hipMemLocationTypeHost, 0}
                                    : hip::hipMemLocation{hip::hipMemLocationTypeDevice, ordinal};
  return {location, flags};
}

rights reader::read_rights(PyObject* given) {
  auto& known = out_->rights;
  if (given == last_rights_) return *known.back();
  if (!PyTuple_Check(given)) throw std::invalid_argument("a row's rights are a tuple");
  const Py_ssize_t count = PyTuple_GET_SIZE(given);
  auto native = std::make_unique<std::vector<hip::hipMemAccessDesc>>();
  native->reserve(static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) native->push_back(read_right(PyTuple_GET_ITEM(given, i)));
  known.push_back(std::move(native));
  last_rights_ = given;
  return *known.back();
}

std::pair<hip::hipMemoryAdvise, device_id> reader::read_advice(PyObject* given) {
  fields from(given);
  const auto advice = from.word<hip::hipMemoryAdvise>(advice_words);
  const auto device = from.device();
  from.end();
  return {advice, device};
}

// Braced initialization reads the fields in the order written.
template <>
decltype(row::what) reader::read_kind<link_peer>(reader&, fields& from) {
  return link_peer{from.device(), from.device()};
}
template <>
decltype(row::what) reader::read_kind<create_allocation>(reader&, fields& from) {
  const auto size_bytes = from.number();
  const auto device = from.integer();
  const auto type = from.word<hip::hipMemAllocationType>(allocation_type_words);
  const auto location = from.word<hip::hipMemLocationType>(location_words);
  const auto handle_type = from.word<hip::hipMemAllocationHandleType>(handle_type_words);
  const auto rdma = from.boolean();
  return create_allocation{size_bytes, {type, location, device, handle_type, rdma}};
}
template <>
decltype(row::what) reader::read_kind<import_allocation>(reader&, fields& from) {
  return import_allocation{from.number(), from.device()};
}
template <>
decltype(row::what) reader::read_kind<reserve_range>(reader&, fields& from) {
  return reserve_range{from.number(), from.number(), from.number(), from.number(), from.boolean()};
}
template <>
decltype(row::what) reader::read_kind<map_memory>(reader&, fields& from) {
  return map_memory{from.slot(), from.number(), from.slot(), from.number()};
}
template <>
decltype(row::what) reader::read_kind<create_stream>(reader&, fields& from) {
  return create_stream{from.device()};
}
template <>
decltype(row::what) reader::read_kind<set_rights>(reader& self, fields& from) {
  const auto now = self.read_rights(from.next());
  auto* const given = from.next();
  const auto before = given == Py_None ? std::nullopt : std::optional(self.read_rights(given));
  return set_rights{now, before, from.boolean()};
}
template <>
decltype(row::what) reader::read_kind<unmap_memory>(reader& self, fields& from) {
  const auto range = from.slot();
  const auto memory = from.slot();
  const auto before = self.read_rights(from.next());
  return unmap_memory{range, memory, before, from.boolean()};
}
template <>
decltype(row::what) reader::read_kind<advise_range>(reader&, fields& from) {
  const auto offset = from.number();
  const auto size_bytes = from.number();
  const auto now = read_advice(from.next());
  auto* const given = from.next();
  return advise_range{offset, size_bytes, now,
                      given == Py_None ? std::nullopt : std::optional(read_advice(given))};
}
template <>
decltype(row::what) reader::read_kind<prefetch_range>(reader&, fields& from) {
  return prefetch_range{from.number(), from.number(), from.device(), from.slot(), from.device()};
}
template <>
decltype(row::what) reader::read_kind<attach_stream>(reader&, fields& from) {
  return attach_stream{from.slot(), from.word(attach_words), from.device()};
}
template <>
decltype(row::what) reader::read_kind<await_stream>(reader&, fields& from) {
  return await_stream{from.device()};
}
template <>
decltype(row::what) reader::read_kind<copy_memory>(reader&, fields& from) {
  return copy_memory{from.device(), from.slot(), from.device(), from.number()};
}

reader::reads reader::find(std::string_view operation) {
  static constexpr std::array<std::pair<std::string_view, reads>, 13> known{{
      {"link peer", &read_kind<link_peer>},
      {"create allocation", &read_kind<create_allocation>},
      {"import allocation", &read_kind<import_allocation>},
      {"reserve", &read_kind<reserve_range>},
      {"map", &read_kind<map_memory>},
      {"create stream", &read_kind<create_stream>},
      {"set access", &read_kind<set_rights>},
      {"unmap", &read_kind<unmap_memory>},
      {"advise", &read_kind<advise_range>},
      {"prefetch", &read_kind<prefetch_range>},
      {"attach stream", &read_kind<attach_stream>},
      {"await stream", &read_kind<await_stream>},
      {"copy", &read_kind<copy_memory>},
  }};
  for (const auto& [name, read] : known) {
    if (name == operation) return read;
  }
  if (const auto read = find_buffer(operation, buffer_rows{})) return read;
  throw std::invalid_argument("no row's operation: " + std::string(operation));
}

void reader::read(PyObject* tuple) {
  fields from(tuple);
  const auto operation = from.text();
  if (operation == memory_run) return read_memory_run(from);
  if (operation == mapping_run) return read_mapping_run(from);
  if (operation == unmap_run) return read_unmap_run(from);
  if (operation == copy_run) return read_copy_run(from);
  if (operation == count_run) return read_count_run(from);
  if (operation.data() != last_operation_.data()) {
    last_reads_ = find(operation);
    last_operation_ = operation;
  }
  const auto& name = names_->emplace_back(from.text());
  const auto slot = from.slot();
  out_->rows.push_back({plan_name({names_, &name}), slot, last_reads_(*this, from)});
  from.end();
}

/// Allocations of chunks: fields as of "create allocation" for each kind, which the members have in turn.
void reader::read_memory_run(fields& from) {
  const members all(from);
  std::vector<decltype(row::what)> kinds;
  for (auto* const item : items_of(from.next())) {
    fields kind(item);
    kinds.push_back(read_kind<create_allocation>(*this, kind));
    kind.end();
  }
  from.end();
  if (kinds.empty()) throw std::invalid_argument("a run of allocations has no kind");
  for (std::uint64_t i = 0; i < all.count; ++i) {
    add(all.name + '#' + std::to_string(all.first + i), all.slot + i, kinds[i % kinds.size()]);
  }
}

/// Mappings of chunks one behind the other, each with its rights, which the members have in turn.
void reader::read_mapping_run(fields& from) {
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

/// Mappings of chunks that go, of several runs of equal length: the last chunk of each run in turn, then the
/// one before. Each has its rights, which the members of its run have in turn.
void reader::read_unmap_run(fields& from) {
  struct unmapped {
    members all;
    slot_id range;
    slot_id memory;
    std::vector<rights> before;
  };
  std::vector<unmapped> runs;
  for (auto* const item : items_of(from.next())) {
    fields of(item);
    unmapped next{members(of), require_slot(of.slot()), require_slot(of.slot()), {}};
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
    for (const auto& [all, range, memory, before] : runs) {
      add(all.name + '[' + std::to_string(all.first + i) + ']', all.slot + i,
          unmap_memory{range, memory + i, before[i % before.size()], false});
    }
  }
}

/// Copies of chunks' bytes into new memory, which is mapped at a temporary place for this, and so is the old
/// memory unless it is read in place. The members have in turn: whether it is, and the devices that write and
/// read, with the rights at the temporary place.
void reader::read_copy_run(fields& from) {
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
void reader::read_count_run(fields& from) {
  const members all(from);
  fields of(from.next());
  from.end();
  const auto operation = of.text();
  const auto read = operation == "create allocation" ? &read_kind<create_allocation>
                                                     : find_buffer(operation, buffer_rows{});
  if (!read) throw std::invalid_argument("what count makes is an allocation or a buffer");
  const auto what = read(*this, of);
  of.end();
  for (std::uint64_t i = 0; i < all.count; ++i) {
    add(all.name + '.' + std::to_string(all.first + i), all.slot + i, what);
  }
}

}  // namespace

row_table_ptr read_rows(const py::sequence& rows) {
  const auto all = py::reinterpret_steal<py::object>(PySequence_Fast(rows.ptr(), "rows are a sequence"));
  if (!all) throw py::error_already_set();
  const auto count = PySequence_Fast_GET_SIZE(all.ptr());
  std::size_t total = 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    total += rows_in(PySequence_Fast_GET_ITEM(all.ptr(), i));
    if (total > 2 * most_rows) throw std::invalid_argument(too_many_rows);
  }
  reader into(total);
  for (Py_ssize_t i = 0; i < count; ++i) into.read(PySequence_Fast_GET_ITEM(all.ptr(), i));
  return into.result();
}

}  // namespace hipplan
