// A layout's holdings, and the change from one snapshot to the next.
#include <algorithm>
#include <limits>

#include "core/change.hpp"
#include "core/readings.hpp"
#include "core/with_memory.hpp"
#include "read_rows.hpp"

namespace hipplan {
namespace {

using clock = std::chrono::steady_clock;

std::vector<binding> read_bindings(const py::dict& bound) {
  std::vector<binding> out;
  try {
    for (const auto& [row, given] : bound) {
      const auto [what, size_bytes] = given.cast<std::pair<py::object, std::size_t>>();
      out.push_back(read_binding(row.cast<std::size_t>(), what, size_bytes));
    }
  } catch (const py::cast_error&) {
    throw py::type_error("bindings are a dict: row -> (descriptor or memory, bytes)");
  }
  return out;
}

void require_own_process(const holdings& of) {
  if (of.state()->runtime->may_call()) return;
  throw std::runtime_error("a signal's handler has forked: the layout is the parent process's");
}

/// Runs rows for some milliseconds, then checks signals. gives_up: when the search for an address ends, by
/// time.monotonic(). Raises HipError, and what a signal's handler raises.
void advance(change& self, const holdings& of, std::size_t end, double gives_up) {
  const std::chrono::duration<double> seconds(std::min(gives_up, 1e9));  // infinity would overflow the clock
  const clock::time_point at_last(std::chrono::duration_cast<clock::duration>(seconds));
  require_own_process(of);
  {
    const without_gil no_interpreter;
    self.advance(end, signals_due(), at_last);
  }
  if (PyErr_CheckSignals() != 0) {
    py::error_already_set raised;
    const without_gil no_interpreter;
    if (of.state()->runtime->may_call()) self.end_search();
    throw raised;
  }
  require_own_process(of);
}

/// Holdings with Python's view of the current snapshot, so that one call changes both; and with the Python
/// objects of its parts, because pybind11 loses a returned object if there is no memory to wrap it.
struct known_holdings {
  std::shared_ptr<holdings> what;
  py::object book;
  py::object retired_objects;
  py::object state = py::none();
};

/// Waits while there is no memory: until then nothing has changed. Throws std::bad_alloc if there is none for
/// too long, and what a signal's handler raises.
std::vector<leased> close(const known_holdings& self, bool force) {
  for (memory_wait wait;;) {
    try {
      const without_gil release;
      return self.what->close(force);
    } catch (const std::bad_alloc&) {
      const without_gil release;
      if (!wait.again()) throw;
    }
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

struct started_change {
  std::shared_ptr<known_holdings> of;
  std::shared_ptr<change> what;

  /// A thread with the GIL sees either both old or both new values.
  bool commit(py::object state) const {
    const without_gil release;
    return what->commit([&] { return both_at_once(of->state, state); });
  }

 private:
  struct both_at_once {
    both_at_once(py::object& known, py::object& now) noexcept { std::swap(known, now); }
    with_gil interpreter{};
  };
};

void bind_holdings(py::module_& module) {
  using known = known_holdings;
  py::class_<known, std::shared_ptr<known>>(module, "Holdings", "What a layout holds.")
      .def("__init__", constructor(+[](py::object retired_objects, py::object book) {
             auto made = ended_without_gil(new holdings(retired_objects.cast<std::shared_ptr<retired>>()));
             return std::make_shared<known>(
                 known{std::move(made), std::move(book), std::move(retired_objects)});
           }),
           is_constructor(), py::arg("retired"), py::arg("leases"), "leases: those of `retired`.")
      .def_readwrite("state", &known::state, "Python's view of the current snapshot; a commit sets it.")
      .def_readonly("leases", &known::book)
      .def_readonly("retired", &known::retired_objects)
      .def_property_readonly(
          "changing", [](const known& self) { return self.what->is_changing(); },
          "Whether a change is undecided.")
      .def_property_readonly("closed", [](const known& self) { return self.what->is_closed(); })
      .def_property_readonly(
          "damaged", [](const known& self) { return self.what->is_damaged(); },
          "Whether an object could not be restored.")
      .def_property_readonly(
          "spare_bytes",
          py::cpp_function([](const known& self) { return self.what->spare_bytes(); }, no_gil()),
          "Of memory that is kept for new allocations like it.")
      .def("close", &close, py::arg("force"),
           "Retires everything. If there are leases, returns them and retires nothing, unless force.");
}

void bind_snapshot(py::module_& module) {
  py::class_<readings>(module, "Readings", "Values read back for many rows.")
      .def_readonly("values", &readings::values)
      .def_property_readonly("as_desired", [](const readings& self) { return !self.wrong; });
  py::class_<snapshot, std::shared_ptr<snapshot>>(module, "Snapshot",
                                                  "What a decided layout owns, by slot. IndexError.")
      .def("__init__", constructor(+[](const known_holdings& of) {
             const without_gil release;
             return std::const_pointer_cast<snapshot>(of.what->current());
           }),
           is_constructor(), py::arg("of"), "The current one.")
      .def("__init__", constructor(+[](const started_change& of) { return of.what->new_snapshot(); }),
           is_constructor(), py::arg("of"), "The one that a change makes, with the extra slots.")
      .def("__len__", [](const snapshot& self) { return self.size(); })
      .def("__contains__", &snapshot::has, py::arg("slot"), no_gil())
      .def("address", &snapshot::address, py::arg("slot"), no_gil(),
           "An object's first address; a range's aligned base.")
      .def("size_bytes", &snapshot::size_bytes, py::arg("slot"), no_gil(),
           "A range's size counts from its aligned base.")
      .def("handle", &snapshot::handle, py::arg("slot"), no_gil())
      .def("stream_handle", &snapshot::stream_handle, py::arg("slot"), no_gil())
      .def("share", &snapshot::share, py::arg("slot"), no_gil(),
           "A new descriptor for another process. HipError, OSError.")
      .def("shared", &snapshot::shared, py::arg("slot"), no_gil(),
           "Whether an allocation was exported or imported.")
      .def_property_readonly(
          "segment_count", [](const snapshot& self) { return self.segments().size(); },
          "In how many pieces of host memory its owners are: a change costs a little for each.")
      .def(
          "read_back",
          [](const snapshot& self, const row_table_ptr& rows, const std::vector<int>& devices) {
            const auto ids = device_ids(devices);
            const without_gil release;
            return read_back(self, *rows, ids);
          },
          py::arg("rows"), py::arg("devices"), "Reads back rows that create, map and set rights. HipError.");
}

}  // namespace

void bind_change(py::module_& module) {
  py::class_<row_table, std::shared_ptr<row_table>>(module, "Rows", "Driver calls as plain data.")
      .def("__init__", constructor(+[](const py::sequence& rows) {
             return std::const_pointer_cast<row_table>(read_rows(rows));
           }),
           is_constructor(), py::arg("rows"), "rows: tuples, see hipplan/lowering/rows.py. ValueError.")
      .def("__len__", [](const row_table& self) { return self.rows.size(); });
  bind_holdings(module);
  using rows_ptr = std::shared_ptr<row_table>;
  py::class_<started_change>(module, "Change", "The change to a new snapshot: all of it, or nothing.")
      .def(
          "__init__",
          constructor(+[](std::shared_ptr<known_holdings> of, rows_ptr rows, std::size_t slots,
                          std::size_t extra_slots, std::size_t same_slots, std::vector<slot_id> renewed,
                          const std::vector<std::tuple<slot_id, slot_id, std::size_t>>& kept,
                          std::vector<slot_id> behind, std::vector<slot_id> spared, bool frees_spares,
                          bool timed) {
            change_plan plan{std::move(rows),    slots, extra_slots,       same_slots,
                             std::move(renewed), {},    std::move(spared), frees_spares,
                             std::move(behind),  timed};
            for (const auto& [to, from, count] : kept) plan.kept.push_back({to, from, count});
            const without_gil release;
            auto made = ended_without_gil(new change(of->what, std::move(plan)));
            return std::make_unique<started_change>(started_change{std::move(of), std::move(made)});
          }),
          is_constructor(), py::arg("holdings"), py::arg("rows"), py::arg("slots"),
          py::arg("extra_slots") = 0, py::arg("same_slots") = 0, py::arg("renewed") = std::vector<slot_id>{},
          py::arg("kept") = std::vector<std::tuple<slot_id, slot_id, std::size_t>>{},
          py::arg("behind") = std::vector<slot_id>{}, py::arg("spared") = std::vector<slot_id>{},
          py::arg("frees_spares") = false, py::arg("timed") = false,
          "slots: of the new snapshot; extra_slots: after them, for objects that exist only during the "
          "change. "
          "same_slots: how many stay, from the first on; renewed: slots of these whose objects are made "
          "again; "
          "kept: (new slot, old slot, how many) of other consecutive ones that stay; "
          "behind: old slots of pinned buffers that do not stay, which a thread frees after the commit; "
          "spared: old slots of allocations that do not stay, which the layout keeps for new ones like them; "
          "frees_spares: a commit frees those that are kept. "
          "ValueError, IndexError; RuntimeError while another change is undecided.")
      .def(
          "bar",
          [](started_change& self, bool force, bool spares_devices) {
            return self.what->bar(force, spares_devices);
          },
          py::arg("force") = false, py::arg("spares_devices") = false, no_gil(),
          "Bars memory that a commit frees from new leases. Returns the leases on it, and bars nothing then; "
          "force: bars it in any case; spares_devices: leases of devices stay, and are not counted. Call it "
          "before the first row that unmaps.")
      .def(
          "bind",
          [](started_change& self, const py::dict& bound) {
            auto read = read_bindings(bound);
            const without_gil release;
            self.what->bind(std::move(read));
          },
          py::arg("bound"),
          "Row -> (descriptor or memory, bytes), for rows that need one. TypeError, ValueError, BufferError.")
      .def(
          "advance",
          [](started_change& self, std::size_t end, double gives_up) {
            advance(*self.what, *self.of->what, end, gives_up);
          },
          py::arg("end"), py::arg("gives_up") = std::numeric_limits<double>::infinity(),
          "Runs rows up to `end` for some milliseconds. gives_up: when the search for an address ends, by "
          "time.monotonic(). HipError, AddressTaken; RuntimeError if the change is decided, or a row has "
          "failed already.")
      .def_property_readonly(
          "searching", [](const started_change& self) { return self.what->is_searching(); },
          "Whether advance() has returned in the middle of a search for an address, which the next one goes "
          "on "
          "with.")
      .def_property_readonly(
          "failed", [](const started_change& self) { return self.what->failed(); },
          "Whether the row after the done ones has failed.")
      .def_property_readonly("done", [](const started_change& self) { return self.what->done(); })
      .def(
          "time_of",
          [](const started_change& self, std::size_t row) {
            const auto time = self.what->time_of(row);
            return std::tuple(time.began_ns, time.ns, time.retries);
          },
          py::arg("row"), "(begin as of time.monotonic_ns, nanoseconds, retried calls) in a timed change.")
      .def("commit", &started_change::commit, py::arg("state"),
           "Makes the new snapshot the layout's, with this state. False if it was rolled back already. "
           "RuntimeError if rows are left.")
      .def(
          "roll_back", [](started_change& self) { self.what->roll_back(); }, no_gil(),
          "Keeps the old snapshot. Does nothing if the change is decided.")
      .def_property_readonly("undecided", [](const started_change& self) { return self.what->undecided(); })
      .def_property_readonly("committed", [](const started_change& self) { return self.what->committed(); });
  bind_snapshot(module);
}

}  // namespace hipplan
