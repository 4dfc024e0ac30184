// Giving back: the wait for the devices, and the loop, both with an eye on Python's signals.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <thread>

#include "bindings.hpp"
#include "core/idle_wait.hpp"
#include "core/retired.hpp"
#include "core/spare_thread.hpp"

namespace hipplan {
namespace {

using clock = std::chrono::steady_clock;

/// The wait for devices, and then the one loop that gives back, which nothing can break off: what a signal's
/// handler raises meanwhile is kept for the caller, and answered with a word. A device that is past its time
/// can be abandoned by that.
class giving_back : public std::enable_shared_from_this<giving_back> {
 public:
  giving_back(std::shared_ptr<retired> what, double patience_s)
      : what_(std::move(what)),
        devices_(what_->to_wait_for()),
        patience_(std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(patience_s))) {}

  /// on_busy: called with the device's name once it is past its time. on_interrupt: when something was
  /// raised; the first of that is the result, or None. It is not kept here: its traceback may refer to the
  /// object that holds this.
  py::object run(const std::shared_ptr<undo_report>& report, const py::object& on_busy,
                 const py::object& on_interrupt) {
    const active_here active(shared_from_this());
    while (!finished_) {
      try {
        const auto busy_too_long = go_on(*report);
        if (!busy_too_long.empty()) call(on_busy, busy_too_long);
        if (PyErr_CheckSignals() != 0) interrupted(on_interrupt);
      } catch (const std::bad_alloc&) {  // nothing is given up for want of a little memory: it may come back
        pause();
      }
    }
    return interrupt_ ? std::move(interrupt_) : py::none();
  }

  /// The device that is waited for.
  [[nodiscard]] std::optional<std::string> busy() const {
    if (!waiting_) return std::nullopt;
    const auto place = waiting_->busy();
    if (!place) return std::nullopt;
    return devices_[*place].first;
  }
  /// What stays because the wait was abandoned.
  [[nodiscard]] const std::vector<described>& left() const { return left_; }
  [[nodiscard]] bool overdue() const { return clock::now() - began_ >= patience_; }
  /// The first one decides, whichever thread makes it: to give up, or to give back.
  bool give_up() {
    if (const auto device = busy(); device && !given_up()) given_up_on_ = *device;
    auto none = decision::none;
    return decided_.compare_exchange_strong(none, decision::give_up) || none == decision::give_up;
  }
  [[nodiscard]] bool given_up() const { return decided_ == decision::give_up; }
  [[nodiscard]] const std::string& given_up_on() const { return given_up_on_; }
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

  /// Those under way, in whichever thread.
  [[nodiscard]] static std::vector<std::shared_ptr<giving_back>> all() {
    const std::lock_guard lock(list().mutex);
    return list().all;
  }

 private:
  enum class decision { none, give_back, give_up };

  struct active_list {
    std::mutex mutex;
    std::vector<std::shared_ptr<giving_back>> all;
  };
  static active_list& list() {
    static auto* const here = new active_list;
    return *here;
  }
  class active_here {
   public:
    explicit active_here(std::shared_ptr<giving_back> what) : what_(std::move(what)) {
      const std::lock_guard lock(list().mutex);
      list().all.push_back(what_);
    }
    active_here(const active_here&) = delete;
    active_here& operator=(const active_here&) = delete;
    ~active_here() {
      const std::lock_guard lock(list().mutex);
      std::erase(list().all, what_);
    }

   private:
    std::shared_ptr<giving_back> what_;
  };

  static void pause() {
    const without_gil no_interpreter;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  /// Keeps what a signal's handler, or a word to somebody, has raised; the first one counts. No
  /// py::error_already_set, which needs memory.
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
    if (memory) return pause();
    if (PyObject* const said = PyObject_CallNoArgs(on_interrupt.ptr())) {
      Py_DECREF(said);
    } else {
      PyErr_Clear();  // the first one is reported already
    }
  }
  void call(const py::object& on_busy, const std::string& device) {
    PyObject* const said = PyObject_CallFunction(on_busy.ptr(), "s", device.c_str());
    if (said) {
      Py_DECREF(said);
    } else {
      interrupted(py::none());
    }
  }

  /// For some milliseconds; gives the device that has been busy for too long, once.
  std::string go_on(undo_report& report) {
    if (!what_->runtime().may_call()) {  // a signal's handler has forked: this is the child
      finished_ = true;
      return {};
    }
    if (!waiting_) {  // hipMemUnmap does not synchronise
      auto begun = [&] {
        const without_gil no_interpreter;
        std::vector<device_id> ids;
        for (const auto& [name, device] : devices_) ids.push_back(device);
        return std::make_unique<idle_wait>(what_->home()->runtime, std::move(ids));
      }();
      waiting_ = std::move(begun);  // other threads ask which device it is, with the GIL
    }
    if (given_up()) return abandon();
    if (!idle_) {
      {
        const without_gil no_interpreter;
        idle_ = waiting_->wait_until(clock::now() + between_signals);
      }
      if (!idle_ && !told_ && overdue()) {
        const auto device = busy();
        told_ = device.has_value();
        return device.value_or(std::string());
      }
      if (!idle_) return {};
    }
    auto none = decision::none;
    if (!decided_.compare_exchange_strong(none, decision::give_back) && none == decision::give_up)
      return abandon();
    const auto before = hip::runtime::retries_of_this_thread();
    const bool more = [&] {
      const without_gil no_interpreter;
      return what_->give_back(report, clock::now() + between_signals);
    }();
    retried_ += hip::runtime::retries_of_this_thread() - before;
    if (!more) finished_ = true;
    return {};
  }
  std::string abandon() {
    auto left = [&] {
      const without_gil no_interpreter;
      auto all = what_->contents();
      what_->abandon();
      return all;
    }();
    left_ = std::move(left);
    finished_ = true;
    return {};
  }

  // All of it is written with the GIL: other threads read it meanwhile.
  std::shared_ptr<retired> what_;
  retired::devices devices_;
  std::vector<described> left_;
  std::string given_up_on_;  ///< the device's name
  clock::duration patience_;
  clock::time_point began_ = clock::now();
  std::unique_ptr<idle_wait> waiting_;
  std::atomic<decision> decided_{decision::none};
  py::object interrupt_;
  std::uint64_t retried_ = 0;
  bool idle_ = false;
  bool told_ = false;
  bool finished_ = false;
};

bool wait(idle_wait& self, double seconds) {
  // Days are as good as for ever, and for ever would overflow the clock.
  const double bounded = std::isnan(seconds) ? 0 : std::clamp(seconds, 0.0, 1e6);
  const auto until =
      clock::now() + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(bounded));
  for (;;) {
    const bool done = [&] {
      const without_gil no_interpreter;
      return self.wait_until(std::min(until, clock::now() + between_signals));
    }();
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (done || clock::now() >= until) return done;
  }
}

py::list as_list(const std::vector<described>& all) {
  py::list out;
  for (const auto& one : all) out.append(py::make_tuple(one.made, one.name, one.identity));
  return out;
}

py::list failures(const idle_wait& self) {
  py::list out;
  for (const auto& [place, error] : self.failures()) out.append(py::make_tuple(place, as_python(error)));
  return out;
}

}  // namespace

void bind_undo(py::module_& module) {
  py::class_<leak>(module, "Leak", "What an undo could not give back.")
      .def_readonly("name", &leak::name)
      .def_readonly("identity", &leak::identity)
      .def_readonly("is_change", &leak::is_change)
      .def_property_readonly("call", [](const leak& self) { return self.error.call(); })
      .def_property_readonly("code", [](const leak& self) { return self.error.code(); })
      .def_property_readonly("error", [](const leak& self) { return self.error.name(); })
      .def_property_readonly("arguments", [](const leak& self) { return self.error.arguments(); });
  py::class_<undo_report, std::shared_ptr<undo_report>>(module, "UndoReport")
      .def("__init__", constructor(+[] { return std::make_shared<undo_report>(); }), is_constructor())
      .def_readonly("given_back", &undo_report::given_back)
      .def_readonly("put_back", &undo_report::put_back)
      .def_property_readonly("leaks", [](const undo_report& self) { return self.leaks; })
      .def_readonly("kept", &undo_report::kept);
  py::class_<retired, std::shared_ptr<retired>>(module, "Retired",
                                                "What a layout has no more use for, until it is given back.")
      .def("__init__", constructor(+[](runtime_ptr runtime, std::shared_ptr<lease_book> leases) {
             auto home = std::make_shared<household>(std::move(runtime));
             return ended_without_gil(new retired(std::move(home), std::move(leases)));
           }),
           is_constructor(), py::arg("runtime"), py::arg("leases"), "Of a layout that is to be made.")
      .def("__init__", constructor(+[](std::size_t place) {
             const without_gil release;
             return waiting::all().at(place);
           }),
           is_constructor(), py::arg("waiting"),
           "One that waits for views of a layout that is closed or gone. IndexError.")
      .def_property_readonly("any", py::cpp_function(&retired::any, no_gil()))
      .def_property_readonly("goes", py::cpp_function(&retired::goes, no_gil()),
                             "Something of it does not wait for views.")
      .def_property_readonly("waits", py::cpp_function(&retired::waits, no_gil()), "For views that are out.")
      .def(
          "set_devices",
          [](retired& self, const std::vector<std::pair<std::string, int>>& devices) {
            retired::devices all;
            for (const auto& [name, ordinal] : devices) all.emplace_back(name, device_id{ordinal});
            self.set_devices(std::move(all));
          },
          py::arg("devices"), no_gil(), "(name, ordinal) of those that may reach it: they are waited for.")
      .def(
          "contents",
          [](const retired& self) {
            const auto found = [&] {
              const without_gil release;
              return self.contents();
            }();
            return as_list(found);
          },
          "(place in the order of making, name, identity) of all of it.");
  py::class_<giving_back, std::shared_ptr<giving_back>>(module, "GivingBack",
                                                        "Waits for devices, and gives back, latest first.")
      .def("__init__", constructor(+[](std::shared_ptr<retired> what, double patience_s) {
             return std::make_shared<giving_back>(std::move(what), patience_s);
           }),
           is_constructor(), py::arg("retired"), py::arg("patience"))
      .def("run", &giving_back::run, py::arg("report"), py::arg("on_busy"), py::arg("on_interrupt"),
           "Until all is given back, or the wait for a device was abandoned. Raises nothing: what was raised "
           "meanwhile "
           "first is the result, or None.")
      .def("give_up", &giving_back::give_up, "On the device that is waited for; False where it is too late.")
      .def_property_readonly("busy", &giving_back::busy, "The device that is waited for, or None.")
      .def_property_readonly(
          "left", [](const giving_back& self) { return as_list(self.left()); },
          "(place, name, identity) of what stays because the wait was abandoned.")
      .def_property_readonly("overdue", &giving_back::overdue)
      .def_property_readonly("given_up", &giving_back::given_up)
      .def_property_readonly("given_up_on", &giving_back::given_up_on, "The device.")
      .def_property_readonly("finished", &giving_back::finished)
      .def_property_readonly("failures", &giving_back::failures,
                             "(name, HipError) of devices that are not idle.")
      .def_property_readonly("retried", &giving_back::retried)
      .def_static("all", &giving_back::all, "Those under way, in whichever thread.");
  module.def("waiting", &waiting::count, no_gil(),
             "How many wait for views: Retired(0) to Retired(count - 1).");
  module.def("wait_for_views", &waiting::add, py::arg("retired"), no_gil());
  module.def("waits_no_more", &waiting::remove, py::arg("retired"), no_gil());
  module.def("expect_idle_wait", &expect_job_for_spare_thread,
             "A wait for devices is coming within some microseconds: its thread is woken up meanwhile.");
  py::class_<idle_wait>(module, "IdleWait", "Waits for devices, one after the other, on a thread of its own.")
      .def("__init__", constructor(+[](runtime_ptr runtime, const std::vector<int>& devices) {
             const without_gil release;
             return std::make_unique<idle_wait>(std::move(runtime), device_ids(devices));
           }),
           is_constructor(), py::arg("runtime"), py::arg("devices"))
      .def("wait", &wait, py::arg("seconds"),
           "True when all are idle or have failed, False when the time is over. Raises what a signal raises.")
      .def_property_readonly("busy", &idle_wait::busy,
                             "The place in the list of the one waited for, or None.")
      .def_property_readonly("failures", &failures,
                             "(place in the list, HipError) of those that failed so far.")
      .def_property_readonly("retried", &idle_wait::retried,
                             "Calls repeated because the driver returned NotReady.");
}

}  // namespace hipplan
