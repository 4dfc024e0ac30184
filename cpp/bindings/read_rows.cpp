#include "read_rows.hpp"

#include <array>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "fields.hpp"

namespace hipplan {
namespace {

constexpr std::string_view memory_run = "create allocations";
constexpr std::string_view mapping_run = "map and set access";
constexpr std::string_view unmap_run = "unmap chunks";
constexpr std::size_t most_rows = PY_SSIZE_T_MAX / 2;
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
  if (operation == memory_run) return members_in(from);
  if (operation == mapping_run) return 2 * members_in(from);
  if (operation != unmap_run) return 1;
  std::size_t total = 0;
  for (auto* const item : items_of(from.next())) {
    total += members_in(fields(item));
    if (total > most_rows) throw std::invalid_argument(too_many_rows);
  }
  return total;
}

/// Raises for a run whose last member, or what counts on with its members, has no number.
void require_numbers(std::uint64_t first, std::uint64_t count, std::uint64_t step = 1) {
  if (step != 0 && count > (std::numeric_limits<std::uint64_t>::max() - first) / step) {
    throw std::invalid_argument("a run has a number that is too large");
  }
}

slot_id require_slot(slot_id slot) {
  if (slot == no_slot) throw std::invalid_argument("a run has slots");
  return slot;
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
  void read_memory_run(fields& from);
  void read_mapping_run(fields& from);
  void read_unmap_run(fields& from);

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
  if (operation.data() != last_operation_.data()) {
    last_reads_ = find(operation);
    last_operation_ = operation;
  }
  const auto& name = names_->emplace_back(from.text());
  const auto slot = from.slot();
  out_->rows.push_back({plan_name({names_, &name}), slot, last_reads_(*this, from)});
  from.end();
}

/// The members of a run, from their number on, and their slots.
struct members {
  explicit members(fields& from)
      : region(from.text()), slot(require_slot(from.slot())), first(from.number()), count(from.number()) {
    require_numbers(first, count);
    require_numbers(slot, count);
  }
  std::string region;
  slot_id slot;
  std::uint64_t first;
  std::uint64_t count;
};

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
    const auto& name = names_->emplace_back(all.region + '#' + std::to_string(all.first + i));
    out_->rows.push_back({plan_name({names_, &name}), all.slot + i, kinds[i % kinds.size()]});
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
    const auto& name = names_->emplace_back(all.region + '[' + std::to_string(all.first + i) + ']');
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
      const auto& name = names_->emplace_back(all.region + '[' + std::to_string(all.first + i) + ']');
      const unmap_memory what{range, memory + i, before[i % before.size()], false};
      out_->rows.push_back({plan_name({names_, &name}), all.slot + i, what});
    }
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
