// Steps made and read back by the thousand.
#include <algorithm>
#include <array>

#include "core/readings.hpp"
#include "native_steps.hpp"

namespace hipplan {
namespace {

/// Steps that get ready at once, at most: about as many as can be made before signals are looked at again.
constexpr std::size_t most_at_once = 512;

/// Steps on their way into a journal, and the names of what they have made.
class step_run {
 public:
  step_run(journal& owner, const native_steps& steps, py::dict entries, py::dict offsets)
      : keepers_{keeper_of(owner), keeper_of(steps)},
        owner_(owner),
        steps_(steps),
        entries_(std::move(entries)),
        offsets_(std::move(offsets)),
        made_(steps.size()) {}

  /// (how many steps were done, HipError or None). Stops before a step of Python's, with (done, None).
  py::tuple go_on(std::size_t first) {
    reached_ = first;
    while (reached_ < steps_.size()) {
      auto batch = ready();
      const auto size = batch.size();
      if (batch.empty()) break;
      const auto outcome = [&] {
        const without_gil no_interpreter;
        return run_batch(owner_, std::move(batch), std::chrono::steady_clock::now() + between_signals);
      }();
      for (const auto entry : outcome.made) made_[reached_++] = entry;
      const auto made = outcome.made.size();
      at_once_ = std::clamp<std::size_t>(made < size ? made + made / 8 : 2 * size, 16, most_at_once);
      if (outcome.failure) return py::make_tuple(reached_ - first, as_python(*outcome.failure));
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (!owner_.runtime().may_call()) {
        throw std::runtime_error("a signal's handler has forked: the layout is the parent process's");
      }
    }
    return py::make_tuple(reached_ - first, py::none());
  }

  /// Adds what was made since the last time to the entries.
  void name_made() {
    for (; named_ < reached_; ++named_) {
      if (made_[named_] == 0) continue;
      const auto value = py::reinterpret_steal<py::object>(PyLong_FromUnsignedLongLong(made_[named_]));
      if (!value || PyDict_SetItem(entries_.ptr(), steps_.name(named_).ptr(), value.ptr()) != 0) {
        throw py::error_already_set();
      }
    }
  }

 private:
  /// The next steps, up to one of Python's or one that needs what these themselves make.
  std::vector<batch_step> ready() {
    std::vector<batch_step> out;
    const auto end = std::min(steps_.size(), reached_ + at_once_);
    out.reserve(end - reached_);
    for (auto at = reached_; at < end; ++at) {
      if (!std::visit([&](const auto& step) { return add(out, step); }, steps_[at])) break;
    }
    return out;
  }

  static bool add(std::vector<batch_step>& /*out*/, std::monostate /*step*/) { return false; }
  static bool add(std::vector<batch_step>& out, const create_step& step) { return push(out, step); }
  static bool add(std::vector<batch_step>& out, const buffer_step& step) { return push(out, step); }
  bool add(std::vector<batch_step>& out, const native_map& step) {
    if (range_.entry == 0 || !step.range.is(range_.name)) {
      range_ = {step.range, look_up(entries_, step.range), look_up(offsets_, step.range)};
    }
    const auto memory = entry_of(step.memory);
    if (range_.entry == 0 || memory == 0) return false;
    return push(out, map_step{step.name, range_.entry, range_.offset_bytes + step.offset_bytes, memory,
                              step.size_bytes});
  }
  bool add(std::vector<batch_step>& out, const native_access& step) {
    const bool just_mapped = !out.empty() && std::holds_alternative<map_step>(out.back()) &&
                             step.mapping.made_by == reached_ + out.size() - 1;
    const auto mapping = just_mapped ? 0 : entry_of(step.mapping);
    if (mapping == 0 && !just_mapped) return false;
    return push(out, access_step{mapping, step.rights, step.together});
  }
  template <class Step>
  static bool push(std::vector<batch_step>& out, Step&& step) {
    out.emplace_back(std::forward<Step>(step));
    return true;
  }

  /// 0 where it is not made yet.
  [[nodiscard]] entry_id entry_of(const needed& what) const {
    if (what.made_by >= reached_ && what.made_by != needed::outside) return 0;
    const auto known = what.made_by == needed::outside ? 0 : made_[what.made_by];
    return known != 0 ? known : look_up(entries_, what.name);
  }

  std::array<py::object, 2> keepers_;  ///< of the journal and of the steps
  journal& owner_;
  const native_steps& steps_;
  py::dict entries_;
  py::dict offsets_;
  std::vector<entry_id> made_;  ///< by each step; 0 where it made nothing, is Python's, or is not done yet
  std::size_t reached_ = 0;     ///< the first step that is not done
  std::size_t named_ = 0;
  std::size_t at_once_ = most_at_once / 2;  ///< what got ready and is not made in time gets ready again
  struct {
    py::handle name;
    entry_id entry = 0;
    std::uint64_t offset_bytes = 0;
  } range_;  ///< the latest: thousands of mappings often lie in one
};

/// The entry that a step is about.
entry_id required(const py::dict& entries, py::handle name) {
  if (const auto found = look_up(entries, name)) return found;
  throw std::out_of_range("nothing is named " + text_of(name));
}

readings read_steps(const journal& owner, const std::shared_ptr<hip::runtime>& runtime,
                    const native_steps& steps, const py::dict& entries, const std::vector<int>& ordinals) {
  std::vector<reading> wanted;
  wanted.reserve(steps.size());
  for (std::size_t place = 0; place < steps.size(); ++place) {
    const auto entry = [&] { return required(entries, steps.name(place)); };
    if (const auto* const create = std::get_if<create_step>(&steps[place])) {
      wanted.emplace_back(allocation_reading{entry(), create->properties});
    } else if (const auto* const map = std::get_if<native_map>(&steps[place])) {
      wanted.emplace_back(mapping_reading{entry(), map->size_bytes});
    } else if (const auto* const access = std::get_if<native_access>(&steps[place])) {
      wanted.emplace_back(access_reading{entry(), access->rights});
    }
  }
  const without_gil no_interpreter;
  return read_back(owner, *runtime, wanted, device_ids(ordinals));
}

}  // namespace

void bind_batch(py::module_& module) {
  py::class_<readings>(module, "Readings", "What was read back of many steps.")
      .def_readonly("values", &readings::values)
      .def_readonly("as_desired", &readings::as_desired);
  py::class_<native_steps>(module, "NativeSteps", "A program's steps in native form.")
      .def("__init__",
           constructor(+[](py::tuple steps) { return std::make_unique<native_steps>(std::move(steps)); }),
           is_constructor(), py::arg("steps"));
  py::class_<step_run>(module, "StepRun", "Steps on their way into a journal.")
      .def("__init__",
           constructor(+[](journal& owner, const native_steps& steps, py::dict entries, py::dict offsets) {
             return std::make_unique<step_run>(owner, steps, std::move(entries), std::move(offsets));
           }),
           is_constructor(), py::arg("journal"), py::arg("steps"), py::arg("entries"), py::arg("offsets"))
      .def(
          "go_on", &step_run::go_on, py::arg("first"),
          "(how many steps were done, HipError or None). Stops before a step of Python's, with (done, None).")
      .def("name_made", &step_run::name_made, "Adds what was made to the entries.");
  auto self = py::reinterpret_borrow<py::class_<journal>>(module.attr("Journal"));
  self.def("read_steps", &read_steps, py::arg("runtime"), py::arg("steps"), py::arg("entries"),
           py::arg("devices"));
}

}  // namespace hipplan
