#include "read_rows.hpp"

#include <array>
#include <span>
#include <stdexcept>
#include <string_view>

#include "row_reader.hpp"

namespace hipplan {
namespace {

hip::hipMemAccessDesc read_right(PyObject* given) {
  fields from(given);
  const int ordinal = from.integer();
  const auto flags = from.word<hip::hipMemAccessFlags>(access_words);
  from.end();
  const auto location = ordinal < 0 ? hip::hipMemLocation{hip::hipMemLocationTypeHost, 0}
                                    : hip::hipMemLocation{hip::hipMemLocationTypeDevice, ordinal};
  return {location, flags};
}

}  // namespace

rights row_reader::read_rights(PyObject* given) {
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

std::pair<hip::hipMemoryAdvise, device_id> row_reader::read_advice(PyObject* given) {
  fields from(given);
  const auto advice = from.word<hip::hipMemoryAdvise>(advice_words);
  const auto device = from.device();
  from.end();
  return {advice, device};
}

// Braced initialization reads the fields in the order written.
template <>
decltype(row::what) row_reader::read_kind<link_peer>(row_reader&, fields& from) {
  return link_peer{from.device(), from.device()};
}
template <>
decltype(row::what) row_reader::read_kind<create_allocation>(row_reader&, fields& from) {
  const auto size_bytes = from.number();
  const auto device = from.integer();
  const auto type = from.word<hip::hipMemAllocationType>(allocation_type_words);
  const auto location = from.word<hip::hipMemLocationType>(location_words);
  const auto handle_type = from.word<hip::hipMemAllocationHandleType>(handle_type_words);
  const auto rdma = from.boolean();
  return create_allocation{size_bytes, {type, location, device, handle_type, rdma}};
}
template <>
decltype(row::what) row_reader::read_kind<import_allocation>(row_reader&, fields& from) {
  return import_allocation{from.number(), from.device()};
}
template <>
decltype(row::what) row_reader::read_kind<reserve_range>(row_reader&, fields& from) {
  return reserve_range{from.number(), from.number(), from.number(), from.number(), from.boolean()};
}
template <>
decltype(row::what) row_reader::read_kind<map_memory>(row_reader&, fields& from) {
  return map_memory{from.slot(), from.number(), from.slot(), from.number()};
}
template <>
decltype(row::what) row_reader::read_kind<create_stream>(row_reader&, fields& from) {
  return create_stream{from.device()};
}
template <>
decltype(row::what) row_reader::read_kind<set_rights>(row_reader& self, fields& from) {
  const auto now = self.read_rights(from.next());
  auto* const given = from.next();
  const auto before = given == Py_None ? std::nullopt : std::optional(self.read_rights(given));
  return set_rights{now, before, from.boolean()};
}
template <>
decltype(row::what) row_reader::read_kind<unmap_memory>(row_reader& self, fields& from) {
  const auto memory = from.slot();
  const auto before = self.read_rights(from.next());
  return unmap_memory{memory, before, from.boolean()};
}
template <>
decltype(row::what) row_reader::read_kind<advise_range>(row_reader&, fields& from) {
  const auto offset = from.number();
  const auto size_bytes = from.number();
  const auto now = read_advice(from.next());
  auto* const given = from.next();
  return advise_range{offset, size_bytes, now,
                      given == Py_None ? std::nullopt : std::optional(read_advice(given))};
}
template <>
decltype(row::what) row_reader::read_kind<prefetch_range>(row_reader&, fields& from) {
  return prefetch_range{from.number(), from.number(), from.device(), from.slot(), from.device()};
}
template <>
decltype(row::what) row_reader::read_kind<attach_stream>(row_reader&, fields& from) {
  return attach_stream{from.slot(), from.word(attach_words), from.device()};
}
template <>
decltype(row::what) row_reader::read_kind<await_stream>(row_reader&, fields& from) {
  return await_stream{from.device()};
}
template <>
decltype(row::what) row_reader::read_kind<copy_memory>(row_reader&, fields& from) {
  return copy_memory{from.device(), from.slot(), from.device(), from.number()};
}

row_reader::reads row_reader::find(std::string_view operation) {
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

row_reader::reads row_reader::find_counted(std::string_view operation) {
  return operation == "create allocation" ? find(operation) : find_buffer(operation, buffer_rows{});
}

void row_reader::read(PyObject* tuple) {
  fields from(tuple);
  const auto operation = from.text();
  if (read_run(operation, from)) return;
  if (operation.data() != last_operation_.data()) {
    last_reads_ = find(operation);
    last_operation_ = operation;
  }
  const auto& name = names_->emplace_back(from.text());
  const auto slot = from.slot();
  out_->rows.push_back({plan_name({names_, &name}), slot, last_reads_(*this, from)});
  from.end();
}

row_table_ptr read_rows(const py::sequence& rows) {
  const auto all = py::reinterpret_steal<py::object>(PySequence_Fast(rows.ptr(), "rows are a sequence"));
  if (!all) throw py::error_already_set();
  const std::span tuples(PySequence_Fast_ITEMS(all.ptr()),
                         static_cast<std::size_t>(PySequence_Fast_GET_SIZE(all.ptr())));
  row_reader into(rows_in(tuples));
  for (auto* const tuple : tuples) into.read(tuple);
  return into.result();
}

}  // namespace hipplan
