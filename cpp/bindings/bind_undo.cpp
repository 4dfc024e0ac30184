// Giving back: the wait for the devices, and the journal's loop, both with an eye on Python's signals.
#include <algorithm>
#include <cmath>

#include "bindings.hpp"
#include "core/idle_wait.hpp"
#include "core/journal.hpp"
#include "core/spare_thread.hpp"

namespace hipplan {
namespace {

using clock = std::chrono::steady_clock;

/// Some of a journal's entries on their way back. The report is kept here, so that an interrupt behind a call
/// of run() cannot lose it: the next one gives it again.
class undoing {
 public:
  using choice = std::function<entry_list(undo_report&)>;

  undoing(journal& owner, choice choose)
      : keeper_(keeper_of(owner)), owner_(owner), choose_(std::move(choose)) {}

  undo_report run() {
    do {
      if (!owner_.runtime().may_call()) break;  // a signal's handler has forked: this is the child
      {
        const without_gil no_interpreter;
        const auto before = hip::runtime::retries_of_this_thread();
        if (choose_) choose();
        owner_.undo(rest_, report_, clock::now() + between_signals);
        retried += hip::runtime::retries_of_this_thread() - before;
      }
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    } while (!rest_.empty());
    return report_;
  }

  std::uint64_t retried = 0;

 private:
  /// Once; where there is no memory for the answer, the next call chooses again.
  void choose() {
    undo_report begun;
    rest_ = choose_(begun);
    report_ = std::move(begun);
    choose_ = nullptr;
  }

  py::object keeper_;  ///< of the journal
  journal& owner_;
  choice choose_;
  undo_report report_;
  entry_list rest_;
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
  py::class_<undo_report>(module, "UndoReport")
      .def_readonly("undone", &undo_report::undone)
      .def_readonly("restored", &undo_report::restored)
      .def_property_readonly("leaks", [](const undo_report& self) { return self.leaks; })
      .def_readonly("kept", &undo_report::kept);
  py::class_<undoing>(module, "Undoing", "Some of a journal's entries on their way back, latest first.")
      .def("__init__", constructor(+[](journal& owner, entry_id first) {
             return std::make_unique<undoing>(
                 owner, [&owner, first](undo_report&) { return owner.entries_since(first); });
           }),
           is_constructor(), py::arg("journal"), py::arg("first") = 0, "Every entry from a number on.")
      .def_static(
          "only",
          [](journal& owner, std::vector<entry_id> entries) {
            std::ranges::sort(entries);
            entries.erase(std::unique(entries.begin(), entries.end()), entries.end());
            entry_list chosen;
            for (const auto entry : entries) chosen.push_back(entry);
            return undoing(owner, [chosen = std::move(chosen)](undo_report&) { return chosen; });
          },
          py::arg("journal"), py::arg("entries"),
          "These entries; one that is not there any more is nothing to undo.")
      .def_static(
          "all_but",
          [](journal& owner, std::shared_ptr<lease_book> leases) {
            return undoing(owner, [&owner, leases = std::move(leases)](undo_report& report) {
              return owner.entries_but(*leases, report.kept);
            });
          },
          py::arg("journal"), py::arg("leases"), "All but what leases are on; mappings go all the same.")
      .def("run", &undoing::run,
           "Undoes what is left; one that fails does not stop the others. What a signal raises ends it after "
           "the entry under way: call again. Gives the report of all calls together.")
      .def_readonly("retried", &undoing::retried, "Calls made again because the driver said NotReady.");
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
                             "Calls made again because the driver said NotReady.");
}

}  // namespace hipplan
