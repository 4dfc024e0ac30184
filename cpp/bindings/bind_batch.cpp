// Steps made and read back by the thousand: Python's step objects are read here, field by field, and the
// driver calls follow one another without the interpreter in between.
//
// Known are the steps that layouts have many of: hipplan.steps.CreateAllocation, Map, SetAccess and
// CreateDeviceBuffer. All others end a batch and are done by their own do(). A test holds that both ways make
// the same driver calls.
#include <algorithm>
#include <deque>
#include <stdexcept>

#include "bindings.hpp"
#include "core/batch.hpp"
#include "core/readings.hpp"

#include <structmember.h>  // PyMemberDef before Python 3.12; wants Python.h before it

namespace hipplan {
namespace {

/// Steps that are read at once: about as many as can be made before signals are looked at again.
constexpr std::size_t batch_size = 512;

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
    slot_of name{type, "name"}, rights{type, "rights"};
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

int ordinal(PyObject* value) {
  const auto out = PyLong_AsLong(value);
  if (out == -1 && PyErr_Occurred()) throw py::error_already_set();
  return static_cast<int>(out);
}

std::string text_of(py::handle value) {
  Py_ssize_t length = 0;
  const char* letters = PyUnicode_AsUTF8AndSize(value.ptr(), &length);
  if (!letters) throw py::error_already_set();
  return {letters, static_cast<std::size_t>(length)};
}

/// The number under a name; 0 where there is none.
std::uint64_t look_up(const py::dict& table, py::handle name) {
  PyObject* found = PyDict_GetItemWithError(table.ptr(), name.ptr());
  if (found) return number(found);
  if (PyErr_Occurred()) throw py::error_already_set();
  return 0;
}

unsigned long long flags_of(PyObject* right) {
  const char* letters = PyUnicode_AsUTF8(right);
  if (!letters) throw py::error_already_set();
  const std::string_view said = letters;
  return said == "rw"  ? hip::hipMemAccessFlagsProtReadWrite
         : said == "r" ? hip::hipMemAccessFlagsProtRead
                       : hip::hipMemAccessFlagsProtNone;
}

/// Calls `use(ordinal, flags)` for each of a step's rights; the host's ordinal is -1.
template <class Use>
void each_right(py::handle rights, Use use) {
  const Py_ssize_t count = PyTuple_Size(rights.ptr());
  if (count < 0) throw py::error_already_set();
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* one = PyTuple_GetItem(rights.ptr(), i);
    if (!one || PyTuple_Size(one) != 2) throw std::invalid_argument("a right is (ordinal, right)");
    use(ordinal(PyTuple_GET_ITEM(one, 0)), flags_of(PyTuple_GET_ITEM(one, 1)));
  }
}

allocation_properties properties(PyObject* step) {
  const auto& words = vocabulary::get();
  return {static_cast<hip::hipMemAllocationType>(number(words.create.memory_type.of(step))),
          static_cast<hip::hipMemLocationType>(number(words.create.location_type.of(step))),
          ordinal(words.create.device.of(step).ptr()),
          static_cast<hip::hipMemAllocationHandleType>(number(words.create.handle_type.of(step)))};
}

/// Reads steps into native form, up to one that is of another kind or needs what this batch itself makes.
class batch_reader {
 public:
  batch_reader(const py::dict& entries, const py::dict& offsets) : entries_(entries), offsets_(offsets) {
    steps.reserve(batch_size);
    names.reserve(batch_size);
  }

  /// False if the step cannot be part of this batch.
  bool read(PyObject* step) {
    const auto& words = vocabulary::get();
    const auto* type = Py_TYPE(step);
    if (type == words.create.type) return read_create(step);
    if (type == words.map.type) return read_map(step);
    if (type == words.access.type) return read_access(step);
    if (type == words.buffer.type) return read_buffer(step);
    return false;
  }

  std::vector<batch_step> steps;
  std::vector<py::handle> names;  ///< of what each step makes, borrowed; null where it makes nothing

 private:
  bool read_create(PyObject* step) {
    const auto& words = vocabulary::get();
    names.push_back(words.create.name.of(step));
    steps.emplace_back(
        create_step{text_of(names.back()), number(words.create.size.of(step)), properties(step)});
    return true;
  }

  bool read_map(PyObject* step) {
    const auto& words = vocabulary::get();
    if (const auto reservation = words.map.reservation.of(step); !reservation.is(range_.name)) {
      range_ = {reservation, look_up(entries_, reservation), look_up(offsets_, reservation)};
    }
    const auto memory = look_up(entries_, words.map.allocation.of(step));
    if (range_.entry == 0 || memory == 0) return false;
    names.push_back(words.map.name.of(step));
    const auto at = range_.offset + number(words.map.offset.of(step));
    steps.emplace_back(
        map_step{text_of(names.back()), range_.entry, at, memory, number(words.map.size.of(step))});
    return true;
  }

  bool read_access(PyObject* step) {
    const auto& words = vocabulary::get();
    const auto name = words.access.name.of(step);
    const bool just_mapped = !names.empty() && names.back() && names.back().is(name);
    const auto mapping = just_mapped ? 0 : look_up(entries_, name);
    if (mapping == 0 && !just_mapped) return false;
    names.emplace_back();
    steps.emplace_back(access_step{mapping, rights_of(words.access.rights.of(step))});
    return true;
  }

  std::span<const hip::hipMemAccessDesc> rights_of(py::handle rights) {
    if (!rights_.empty() && rights.is(last_rights_)) return rights_.back();
    std::vector<hip::hipMemAccessDesc> native;
    each_right(rights, [&](int who, unsigned long long flags) {
      const auto location = who < 0 ? hip::hipMemLocation{hip::hipMemLocationTypeHost, 0}
                                    : hip::hipMemLocation{hip::hipMemLocationTypeDevice, who};
      native.push_back({location, static_cast<hip::hipMemAccessFlags>(flags)});
    });
    last_rights_ = rights;
    return rights_.emplace_back(std::move(native));
  }

  bool read_buffer(PyObject* step) {
    const auto& words = vocabulary::get();
    names.push_back(words.buffer.name.of(step));
    const device_id device{ordinal(words.buffer.device.of(step).ptr())};
    steps.emplace_back(buffer_step{text_of(names.back()), device, number(words.buffer.size.of(step))});
    return true;
  }

  const py::dict& entries_;
  const py::dict& offsets_;
  std::deque<std::vector<hip::hipMemAccessDesc>> rights_;  // a deque: the steps point into it
  py::handle last_rights_;
  struct {
    py::handle name;
    entry_id entry = 0;
    std::uint64_t offset = 0;
  } range_;  ///< the latest: thousands of mappings often lie in one
};

/// Has the processor fetch some steps and what they name from memory, all at the same time and not one after
/// the other: the driver's calls in between have pushed them out of its caches.
void fetch(const py::tuple& steps, std::size_t from, std::size_t to) {
  const auto each = [&](auto use) {
    for (auto i = from; i < to; ++i) use(reinterpret_cast<char*>(PyTuple_GET_ITEM(steps.ptr(), i)));
  };
  each([](char* step) {
    __builtin_prefetch(step);
    __builtin_prefetch(step + 64);
  });
  each([](char* step) {
    const auto size = static_cast<std::size_t>(Py_TYPE(reinterpret_cast<PyObject*>(step))->tp_basicsize);
    for (auto at = sizeof(PyObject); at + sizeof(void*) <= size; at += sizeof(void*)) {
      __builtin_prefetch(*reinterpret_cast<void**>(step + at));
    }
  });
}

void set(const py::dict& table, py::handle name, entry_id entry) {
  const auto value = py::reinterpret_steal<py::object>(PyLong_FromUnsignedLongLong(entry));
  if (!value || PyDict_SetItem(table.ptr(), name.ptr(), value.ptr()) != 0) throw py::error_already_set();
}

/// (how many steps were done, HipError or None). Stops before a step it does not know, with (done, None).
py::tuple run_steps(journal& owner, const py::tuple& steps, std::size_t first, const py::dict& entries,
                    const py::dict& offsets) {
  std::size_t done = first;
  while (done < steps.size()) {
    batch_reader batch(entries, offsets);
    const auto end = std::min(steps.size(), done + batch_size);
    fetch(steps, done, end);
    while (done + batch.steps.size() < end) {
      if (!batch.read(PyTuple_GET_ITEM(steps.ptr(), done + batch.steps.size()))) break;
    }
    if (batch.steps.empty()) break;
    entry_id last = 0;
    for (std::size_t made = 0; made < batch.steps.size();) {
      const auto outcome = [&] {
        const without_gil no_interpreter;
        const auto rest = std::span(batch.steps).subspan(made);
        return run_batch(owner, rest, std::chrono::steady_clock::now() + between_signals, last);
      }();
      for (const auto entry : outcome.made) {
        if (entry != 0) set(entries, batch.names[made], last = entry);
        ++made;
      }
      done += outcome.made.size();
      if (outcome.failure) return py::make_tuple(done - first, as_python(*outcome.failure));
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
  }
  return py::make_tuple(done - first, py::none());
}

std::uint64_t required(const py::dict& table, py::handle name) {
  if (const auto found = look_up(table, name)) return found;
  throw std::out_of_range("nothing is named " + text_of(name));
}

readings read_steps(journal& owner, const std::shared_ptr<hip::runtime>& runtime, const py::tuple& steps,
                    const py::dict& entries, const std::vector<int>& ordinals) {
  const auto& words = vocabulary::get();
  const auto devices = device_ids(ordinals);
  std::vector<reading> wanted;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    PyObject* step = PyTuple_GET_ITEM(steps.ptr(), i);
    const auto* type = Py_TYPE(step);
    if (type == words.create.type) {
      const auto entry = required(entries, words.create.name.of(step));
      wanted.emplace_back(allocation_reading{entry, properties(step)});
    } else if (type == words.map.type) {
      const auto entry = required(entries, words.map.name.of(step));
      wanted.emplace_back(mapping_reading{entry, number(words.map.size.of(step))});
    } else if (type == words.access.type) {
      access_reading one{required(entries, words.access.name.of(step)), {}};
      one.desired.resize(devices.size());
      each_right(words.access.rights.of(step), [&](int who, unsigned long long flags) {
        const auto at = std::ranges::find(devices, device_id{who});
        if (at != devices.end()) one.desired[at - devices.begin()] = flags;
      });
      wanted.emplace_back(std::move(one));
    }
  }
  const without_gil no_interpreter;
  return read_back(owner, *runtime, wanted, devices);
}

}  // namespace

void bind_batch(py::module_& module) {
  py::class_<readings>(module, "Readings", "What was read back of many steps.")
      .def_readonly("values", &readings::values)
      .def_readonly("as_desired", &readings::as_desired);
  auto self = py::reinterpret_borrow<py::class_<journal>>(module.attr("Journal"));
  self.def("run_steps", &run_steps, py::arg("steps"), py::arg("first"), py::arg("entries"),
           py::arg("offsets"))
      .def("read_steps", &read_steps, py::arg("runtime"), py::arg("steps"), py::arg("entries"),
           py::arg("devices"));
}

}  // namespace hipplan
