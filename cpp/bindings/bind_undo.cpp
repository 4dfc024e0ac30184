// Undo: waits for the devices, then frees retired objects; both check Python's signals.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>

#include "bindings.hpp"
#include "core/idle_wait.hpp"
#include "core/retired.hpp"
#include "core/spare_thread.hpp"
#include "core/with_memory.hpp"

namespace hipplan {
namespace {

using clock = std::chrono::steady_clock;

/// Waits for devices, then frees objects in the one loop of retired.hpp. No exception ends it: it keeps the
/// first one that a signal's handler raises for the caller, calls on_interrupt, and goes on. on_interrupt may
/// abandon a device that has been busy for too long.
class undo_run : public std::enable_shared_from_this<undo_run> {
 public:
  undo_run(std::shared_ptr<retired> what, double patience_s, bool waits_behind)
      : retired_(std::move(what)),
        devices_(retired_->to_wait_for()),
        patience_(std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(patience_s))),
        waits_behind_(waits_behind) {}

  /// on_busy: called with a device's name once it has been busy for too long. on_interrupt: called when a
  /// signal's handler has raised. Returns the first exception, or None. It is not stored in this object: its
  /// traceback may refer to the owner of this object. Throws std::bad_alloc where there is no memory for too
  /// long: what is not freed by then stays, and the leak log names it.
  py::object run(const std::shared_ptr<undo_report>& report, const py::object& on_busy,
                 const py::object& on_interrupt) {
    const registered_here active(shared_from_this());
    for (memory_wait wait; !finished_;) {
      try {
        const auto busy_too_long = step(*report);
        wait = {};
        if (!busy_too_long.empty()) call(on_busy, busy_too_long);
      } catch (const std::bad_alloc&) {  // memory may become free
        if (!waited(wait)) {
          finished_ = true;
          const without_gil no_interpreter;
          if (!retired_->any()) break;
          retired_->keep_all();
          throw;
        }
      }
      if (PyErr_CheckSignals() != 0) interrupted(on_interrupt);
    }
    return interrupt_ ? std::move(interrupt_) : py::none();
  }

  /// The name of the device that it waits for.
  [[nodiscard]] std::optional<std::string> busy() const {
    if (!waiting_) return std::nullopt;
    const auto place = waiting_->busy();
    if (!place) return std::nullopt;
    return devices_[*place].first;
  }
  /// The objects that stay because the wait was abandoned.
  [[nodiscard]] const std::vector<described>& left_over() const { return left_over_; }
  [[nodiscard]] bool overdue() const { return clock::now() - began_ >= patience_; }
  /// Abandons the wait, unless it is over: the first decision counts, from any thread. Returns whether it is
  /// abandoned.
  bool abandon_wait() {
    if (const auto device = busy(); device && !abandoned()) abandoned_device_ = *device;
    auto none = decision::none;
    return decided_.compare_exchange_strong(none, decision::abandon_wait) || none == decision::abandon_wait;
  }
  [[nodiscard]] bool abandoned() const { return decided_ == decision::abandon_wait; }
  [[nodiscard]] const std::string& abandoned_device() const { return abandoned_device_; }
  [[nodiscard]] bool finished() const { return finished_; }
  [[nodiscard]] std::uint64_t retried() const { return retried_ + (waiting_ ? waiting_->retried() : 0); }
  [[nodiscard]] py::list failures() const {
    py::list out;
    if (!waiting_) return out;
    for (const auto& [place, error] : waiting_->failures()) {
      out.append(py::make_tuple(devices_[place].first, as_python(error)));
    }
    return out;
  }

  /// The runs under way, in all threads.
  [[nodiscard]] static std::vector<std::shared_ptr<undo_run>> all() {
    const std::lock_guard lock(list().mutex);
    return list().all;
  }

 private:
  enum class decision { none, free_some, abandon_wait };

  struct active_list {
    std::mutex mutex;
    std::vector<std::shared_ptr<undo_run>> all;
  };
  static active_list& list() {
    static auto* const here = new active_list;
    return *here;
  }
  class registered_here {
   public:
    explicit registered_here(std::shared_ptr<undo_run> what) : retired_(std::move(what)) {
      const std::lock_guard lock(list().mutex);
      list().all.push_back(retired_);
    }
    registered_here(const registered_here&) = delete;
    registered_here& operator=(const registered_here&) = delete;
    ~registered_here() {
      const std::lock_guard lock(list().mutex);
      std::erase(list().all, retired_);
    }

   private:
    std::shared_ptr<undo_run> retired_;
  };

  static bool waited(memory_wait& wait) {
    const without_gil no_interpreter;
    return wait.again();
  }
  /// Keeps the first exception that a signal's handler or a callback has raised. Without
  /// py::error_already_set, which allocates.
  void interrupted(const py::object& on_interrupt) {
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (value && trace) PyException_SetTraceback(value, trace);
    const bool memory = value && PyErr_GivenExceptionMatches(value, PyExc_MemoryError);
    if (!interrupt_ && value && !memory) interrupt_ = py::reinterpret_borrow<py::object>(value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    if (memory) {
      memory_wait moment;
      waited(moment);
      return;
    }
    if (PyObject* const result = PyObject_CallNoArgs(on_interrupt.ptr())) {
      Py_DECREF(result);
    } else {
      PyErr_Clear();  // the first exception is kept already
    }
  }
  void call(const py::object& on_busy, const std::string& device) {
    PyObject* const result = PyObject_CallFunction(on_busy.ptr(), "s", device.c_str());
    if (result) {
      Py_DECREF(result);
    } else {
      interrupted(py::none());
    }
  }

  /// Waits or frees for some milliseconds. Returns the name of a device that has been busy for too long,
  /// once.
  std::string step(undo_report& report) {
    if (!retired_->runtime().may_call()) {  // a signal's handler has forked: this is the child
      finished_ = true;
      return {};
    }
    if (!waiting_) {  // hipMemUnmap does not synchronise
      auto begun = [&] {
        const without_gil no_interpreter;
        std::vector<device_id> ids;
        for (const auto& [name, device] : devices_) ids.push_back(device);
        return std::make_unique<idle_wait>(retired_->state()->runtime, std::move(ids));
      }();
      waiting_ = std::move(begun);  // with the GIL: other threads call busy()
    }
    if (abandoned()) return keep_rest();
    if (!idle_) {
      {
        const without_gil no_interpreter;
        idle_ = waiting_->wait_until(signals_due());
      }
      if (!idle_ && !busy_reported_ && overdue()) {
        const auto device = busy();
        busy_reported_ = device.has_value();
        return device.value_or(std::string());
      }
      if (!idle_) return {};
    }
    auto none = decision::none;
    if (!decided_.compare_exchange_strong(none, decision::free_some) && none == decision::abandon_wait)
      return keep_rest();
    const auto before = hip::runtime::retries_of_this_thread();
    const bool more = [&] {
      const without_gil no_interpreter;
      return retired_->free_some(report, signals_due());
    }();
    retried_ += hip::runtime::retries_of_this_thread() - before;
    if (!more && waits_behind_) {
      const without_gil no_interpreter;
      if (!retired_->wait_behind(signals_due())) return {};
      retired_->report_behind(report);
    }
    if (!more) finished_ = true;
    return {};
  }
  std::string keep_rest() {
    auto left_over = [&] {
      const without_gil no_interpreter;
      auto all = retired_->contents();
      retired_->abandon();
      return all;
    }();
    left_over_ = std::move(left_over);
    finished_ = true;
    return {};
  }

  // Written only with the GIL: other threads read these meanwhile.
  std::shared_ptr<retired> retired_;
  retired::devices devices_;
  std::vector<described> left_over_;
  std::string abandoned_device_;  ///< the device's name
  clock::duration patience_;
  clock::time_point began_ = clock::now();
  std::unique_ptr<idle_wait> waiting_;
  std::atomic<decision> decided_{decision::none};
  py::object interrupt_;
  std::uint64_t retried_ = 0;
  const bool waits_behind_;
  bool idle_ = false;
  bool busy_reported_ = false;
  bool finished_ = false;
};

/// Waits, and raises what a signal's handler raises. done_until: waits until a moment, and returns whether it
/// is done.
template <class DoneUntil>
bool wait(double seconds, DoneUntil done_until) {
  // A bound of some days: infinity would overflow the clock.
  const double bounded = std::isnan(seconds) ? 0 : std::clamp(seconds, 0.0, 1e6);
  const auto until =
      clock::now() + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(bounded));
  for (;;) {
    const bool done = [&] {
      const without_gil no_interpreter;
      return done_until(std::min(until, signals_due()));
    }();
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (done || clock::now() >= until) return done;
  }
}

py::list as_list(const std::vector<described>& all) {
  py::list out;
  for (const auto& object : all) out.append(py::make_tuple(object.made, object.name, object.identity));
  return out;
}

py::list failures(const idle_wait& self) {
  py::list out;
  for (const auto& [place, error] : self.failures()) out.append(py::make_tuple(place, as_python(error)));
  return out;
}

}  // namespace

void bind_undo(py::module_& module) {
  py::class_<leak>(module, "Leak",
                   "An object that could not be freed, or an alteration that could not be undone.")
      .def_readonly("name", &leak::name)
      .def_readonly("identity", &leak::identity)
      .def_readonly("is_change", &leak::is_change)
      .def_property_readonly("call", [](const leak& self) { return self.error.call(); })
      .def_property_readonly("code", [](const leak& self) { return self.error.code(); })
      .def_property_readonly("error", [](const leak& self) { return self.error.name(); })
      .def_property_readonly("arguments", [](const leak& self) { return self.error.arguments(); });
  py::class_<undo_report, std::shared_ptr<undo_report>>(module, "UndoReport")
      .def("__init__", constructor(+[] { return std::make_shared<undo_report>(); }), is_constructor())
      .def_readonly("freed", &undo_report::freed)
      .def_readonly("restored", &undo_report::restored)
      .def_property_readonly("leaks", [](const undo_report& self) { return self.leaks; })
      .def_readonly("kept", &undo_report::kept);
  py::class_<retired, std::shared_ptr<retired>>(
      module, "Retired", "Objects that a layout no longer needs, until they are freed.")
      .def("__init__",
           constructor(+[](runtime_ptr runtime, std::shared_ptr<lease_book> leases, std::string layout) {
             auto state = std::make_shared<layout_state>(std::move(runtime), std::move(layout));
             return ended_without_gil(new retired(std::move(state), std::move(leases)));
           }),
           is_constructor(), py::arg("runtime"), py::arg("leases"), py::arg("layout") = "",
           "For a new layout, with its plan's name.")
      .def("__init__", constructor(+[](std::size_t place) {
             const without_gil release;
             return waiting::all().at(place);
           }),
           is_constructor(), py::arg("waiting"),
           "Objects that wait for views, of a layout that is closed or destroyed. IndexError.")
      .def_property_readonly("any", py::cpp_function(&retired::any, no_gil()))
      .def_property_readonly("freeable", py::cpp_function(&retired::has_freeable, no_gil()),
                             "Whether some of them do not wait for views.")
      .def_property_readonly("waits", py::cpp_function(&retired::waits_for_views, no_gil()),
                             "Whether some of them wait for views that still exist.")
      .def(
          "set_devices",
          [](retired& self, const std::vector<std::pair<std::string, int>>& devices) {
            retired::devices all;
            for (const auto& [name, ordinal] : devices) all.emplace_back(name, device_id{ordinal});
            self.set_devices(std::move(all));
          },
          py::arg("devices"), no_gil(),
          "(name, ordinal) of the devices to wait for: those that may access the objects.")
      .def(
          "contents",
          [](const retired& self) {
            const auto found = [&] {
              const without_gil release;
              return self.contents();
            }();
            return as_list(found);
          },
          "(place in the order of creation, name, identity) of each object.")
      .def_property_readonly("behind", py::cpp_function([](const retired& self) {
                               const auto all = [&] {
                                 const without_gil release;
                                 return self.behind();
                               }();
                               return as_list(all);
                             }),
                             "The same for what is freed behind the caller and was not reported yet.")
      .def("report_behind", &retired::report_behind, py::arg("report"), no_gil(),
           "Adds what could not be freed behind the caller, once, of all that has ended.");
  py::class_<undo_run, std::shared_ptr<undo_run>>(module, "UndoRun",
                                                  "Waits for devices, then frees objects, latest first.")
      .def("__init__", constructor(+[](std::shared_ptr<retired> what, double patience_s, bool waits_behind) {
             return std::make_shared<undo_run>(std::move(what), patience_s, waits_behind);
           }),
           is_constructor(), py::arg("retired"), py::arg("patience"), py::arg("waits_behind") = false,
           "waits_behind: also for what is freed behind the caller.")
      .def(
          "run", &undo_run::run, py::arg("report"), py::arg("on_busy"), py::arg("on_interrupt"),
          "Runs until all is freed, or the wait for a device is abandoned. Raises nothing: returns the first "
          "exception that was raised meanwhile, or None.")
      .def("abandon_wait", &undo_run::abandon_wait, "Stops waiting for the device; False if it is too late.")
      .def_property_readonly("busy", &undo_run::busy, "The device that it waits for, or None.")
      .def_property_readonly(
          "left_over", [](const undo_run& self) { return as_list(self.left_over()); },
          "(place, name, identity) of objects that stay because the wait was abandoned.")
      .def_property_readonly("overdue", &undo_run::overdue)
      .def_property_readonly("abandoned", &undo_run::abandoned)
      .def_property_readonly("abandoned_device", &undo_run::abandoned_device)
      .def_property_readonly("finished", &undo_run::finished)
      .def_property_readonly("failures", &undo_run::failures,
                             "(name, HipError) of devices for which the wait failed.")
      .def_property_readonly("retried", &undo_run::retried)
      .def_static("active", &undo_run::all, "The runs under way, in all threads.");
  module.def("waiting", &waiting::count, no_gil(),
             "How many Retired objects of closed layouts wait for views: Retired(0) to Retired(count - 1).");
  module.def("add_waiting", &waiting::add, py::arg("retired"), no_gil());
  module.def("remove_waiting", &waiting::remove, py::arg("retired"), no_gil());
  module.def(
      "wait_until_freed", [](double seconds) { return wait(seconds, &freed_behind::all_done_until); },
      py::arg("seconds"),
      "Waits for everything that is freed behind a caller. False at the time limit. Raises what a signal's "
      "handler "
      "raises.");
  module.def("expect_idle_wait", &expect_job_for_spare_thread,
             "Announces a wait for devices within some microseconds, to wake its thread up meanwhile.");
  py::class_<idle_wait>(module, "IdleWait", "Waits for devices, one after the other, on a thread of its own.")
      .def("__init__", constructor(+[](runtime_ptr runtime, const std::vector<int>& devices) {
             const without_gil release;
             return std::make_unique<idle_wait>(std::move(runtime), device_ids(devices));
           }),
           is_constructor(), py::arg("runtime"), py::arg("devices"))
      .def(
          "wait",
          [](const idle_wait& self, double seconds) {
            return wait(seconds, [&](clock::time_point until) { return self.wait_until(until); });
          },
          py::arg("seconds"),
          "True when all are idle or have failed, False at the time limit. Raises what a signal's handler "
          "raises.")
      .def_property_readonly("busy", &idle_wait::busy,
                             "The index in the list of the device that it waits for, or None.")
      .def_property_readonly("failures", &failures, "(index in the list, HipError) of the failures so far.")
      .def_property_readonly("retried", &idle_wait::retried,
                             "Calls repeated because the driver returned NotReady.");
}

}  // namespace hipplan
