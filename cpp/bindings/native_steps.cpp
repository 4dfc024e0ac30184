#include "native_steps.hpp"

#include <stdexcept>
#include <string_view>

#include <structmember.h>  // PyMemberDef before Python 3.12; wants Python.h before it

namespace hipplan {
namespace {

/// One field of a step class. The classes have __slots__, so a field is a pointer at a fixed place in the
/// object: reading it there takes a twentieth of what asking for the attribute by name does.
class slot_of {
 public:
  slot_of(PyTypeObject* owner, const char* called) : name_(PyUnicode_InternFromString(called)) {
    const auto found =
        py::reinterpret_steal<py::object>(PyObject_GetAttr(reinterpret_cast<PyObject*>(owner), name_));
    if (!found) throw py::error_already_set();
    if (!PyObject_TypeCheck(found.ptr(), &PyMemberDescr_Type)) {
      throw std::invalid_argument(std::string("a step keeps '") + called + "' in no slot");
    }
    offset_ = reinterpret_cast<PyMemberDescrObject*>(found.ptr())->d_member->offset;
  }

  /// Borrowed: alive as long as the step.
  [[nodiscard]] py::handle of(PyObject* step) const {
    PyObject* const value = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(step) + offset_);
    if (value) return value;
    (void)PyObject_GetAttr(step, name_);  // says what is missing
    throw py::error_already_set();
  }

 private:
  PyObject* name_;
  Py_ssize_t offset_ = 0;
};

PyTypeObject* step_class(const char* called) {
  const auto found = py::module_::import("hipplan.steps").attr(called);
  return reinterpret_cast<PyTypeObject*>(py::object(found).release().ptr());
}

/// The step classes that are read here, and their fields; kept for the life of the process.
struct vocabulary {
  struct {
    PyTypeObject* type = step_class("CreateAllocation");
    slot_of name{type, "name"}, size{type, "size"}, device{type, "device"}, memory_type{type, "memory_type"},
        location_type{type, "location_type"}, handle_type{type, "handle_type"};
  } create;
  struct {
    PyTypeObject* type = step_class("Map");
    slot_of name{type, "name"}, reservation{type, "reservation"}, allocation{type, "allocation"},
        offset{type, "offset"}, size{type, "size"};
  } map;
  struct {
    PyTypeObject* type = step_class("SetAccess");
    slot_of name{type, "name"}, rights{type, "rights"}, together{type, "together"};
  } access;
  struct {
    PyTypeObject* type = step_class("CreateDeviceBuffer");
    slot_of name{type, "name"}, device{type, "device"}, size{type, "size"};
  } buffer;

  static const vocabulary& get() {
    static const vocabulary* known = new vocabulary;
    return *known;
  }
};

std::uint64_t number(py::handle value) {
  const auto out = PyLong_AsUnsignedLongLong(value.ptr());
  if (out == static_cast<std::uint64_t>(-1) && PyErr_Occurred()) throw py::error_already_set();
  return out;
}

int ordinal(py::handle value) {
  const auto out = PyLong_AsLong(value.ptr());
  if (out == -1 && PyErr_Occurred()) throw py::error_already_set();
  return static_cast<int>(out);
}

unsigned long long flags_of(py::handle right) {
  const char* letters = PyUnicode_AsUTF8(right.ptr());
  if (!letters) throw py::error_already_set();
  const std::string_view said = letters;
  return said == "rw"  ? hip::hipMemAccessFlagsProtReadWrite
         : said == "r" ? hip::hipMemAccessFlagsProtRead
                       : hip::hipMemAccessFlagsProtNone;
}

/// (ordinal, right); the host's ordinal is -1.
hip::hipMemAccessDesc right_of(PyObject* one) {
  if (!one || PyTuple_Size(one) != 2) throw std::invalid_argument("a right is (ordinal, right)");
  const int who = ordinal(PyTuple_GET_ITEM(one, 0));
  const auto location = who < 0 ? hip::hipMemLocation{hip::hipMemLocationTypeHost, 0}
                                : hip::hipMemLocation{hip::hipMemLocationTypeDevice, who};
  return {location, static_cast<hip::hipMemAccessFlags>(flags_of(PyTuple_GET_ITEM(one, 1)))};
}

allocation_properties properties(PyObject* step) {
  const auto& words = vocabulary::get().create;
  return {static_cast<hip::hipMemAllocationType>(number(words.memory_type.of(step))),
          static_cast<hip::hipMemLocationType>(number(words.location_type.of(step))),
          ordinal(words.device.of(step)),
          static_cast<hip::hipMemAllocationHandleType>(number(words.handle_type.of(step)))};
}

needed find(py::handle name, const py::dict& made_by) {
  PyObject* const place = PyDict_GetItemWithError(made_by.ptr(), name.ptr());
  if (!place && PyErr_Occurred()) throw py::error_already_set();
  return {name, place ? number(place) : needed::outside};
}

}  // namespace

std::string text_of(py::handle value) {
  Py_ssize_t length = 0;
  const char* letters = PyUnicode_AsUTF8AndSize(value.ptr(), &length);
  if (!letters) throw py::error_already_set();
  return {letters, static_cast<std::size_t>(length)};
}

std::uint64_t look_up(const py::dict& table, py::handle name) {
  PyObject* found = PyDict_GetItemWithError(table.ptr(), name.ptr());
  if (found) return number(found);
  if (PyErr_Occurred()) throw py::error_already_set();
  return 0;
}

native_steps::native_steps(py::tuple steps)
    : steps_(std::move(steps)), texts_(std::make_shared<std::vector<std::string>>()) {
  texts_->reserve(steps_.size());
  native_.reserve(steps_.size());
  names_.reserve(steps_.size());
  py::dict made_by;
  for (const auto step : steps_) {
    native_.push_back(read(step.ptr(), made_by));
    const bool makes = !std::holds_alternative<std::monostate>(native_.back()) &&
                       !std::holds_alternative<native_access>(native_.back());
    if (makes) made_by[names_.back()] = native_.size() - 1;
  }
}

native_step native_steps::read(PyObject* step, const py::dict& made_by) {
  const auto& words = vocabulary::get();
  const auto* const type = Py_TYPE(step);
  const auto called = [&](const slot_of& name) {
    names_.push_back(name.of(step));
    return names_.back();
  };
  const auto kept = [&](const slot_of& name) {
    return plan_name({texts_, &texts_->emplace_back(text_of(called(name)))});
  };
  if (type == words.create.type) {
    return create_step{kept(words.create.name), number(words.create.size.of(step)), properties(step)};
  }
  if (type == words.map.type) {
    return native_map{kept(words.map.name), words.map.reservation.of(step), number(words.map.offset.of(step)),
                      find(words.map.allocation.of(step), made_by), number(words.map.size.of(step))};
  }
  if (type == words.access.type) {
    return native_access{find(called(words.access.name), made_by), read_rights(words.access.rights.of(step)),
                         words.access.together.of(step).ptr() == Py_True};
  }
  if (type == words.buffer.type) {
    return buffer_step{
        kept(words.buffer.name), {ordinal(words.buffer.device.of(step))}, number(words.buffer.size.of(step))};
  }
  names_.emplace_back();
  return std::monostate{};
}

std::span<const hip::hipMemAccessDesc> native_steps::read_rights(py::handle rights) {
  if (!rights_.empty() && rights.is(last_rights_)) return rights_.back();
  const Py_ssize_t count = PyTuple_Size(rights.ptr());
  if (count < 0) throw py::error_already_set();
  std::vector<hip::hipMemAccessDesc> native;
  native.reserve(static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) native.push_back(right_of(PyTuple_GetItem(rights.ptr(), i)));
  last_rights_ = rights;
  return rights_.emplace_back(std::move(native));
}

}  // namespace hipplan
