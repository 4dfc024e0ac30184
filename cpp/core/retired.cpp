#include "retired.hpp"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <new>
#include <optional>

#include "queries.hpp"
#include "with_memory.hpp"

namespace hipplan {
namespace {

/// Owners that are looked up, given back and dropped together. After a driver call the processor's caches
/// hold the driver's own: then each free or search costs many times what it does among its like. Kept on the
/// stack, so that giving back needs no memory.
constexpr std::size_t at_once = 256;

/// The one call that gives an object back, where that is all there is to it; only of the kinds that come by
/// the thousand.
std::optional<driver_call> releasing(const held& one) {
  const auto* const mapped = std::get_if<mapping>(&one.what);
  if (mapped && !mapped->empty() && mapped->releases_plainly()) return mapped->releasing();
  const auto* const memory = std::get_if<allocation>(&one.what);
  if (memory && !memory->empty()) return memory->releasing();
  return std::nullopt;
}

/// Gives something back, and reports what came of it. Throws std::bad_alloc where there is no memory for a
/// failure's words; then it is to be called again.
template <class Kind, class GiveBack>
void note(Kind& what, undo_report& report, GiveBack give_back) {
  constexpr bool is_change = std::is_same_v<Kind, alteration>;
  try {
    give_back();
    ++(is_change ? report.put_back : report.given_back);
  } catch (const hip::hip_error& error) {
    report.leaks.push_back({what.name(), what.identify(), error, is_change});
    what.told();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (
      const std::exception& error) {  // none is known; but what throws each time must not be tried for ever
    const hip::hip_error unknown(hip::hipErrorUnknown, "undo", what.identify(), error.what());
    report.leaks.push_back({what.name(), what.identify(), unknown, is_change});
    what.told();
  }
}

void give_one(held& one, undo_report& report) {
  std::visit(
      [&](auto& what) {
        if constexpr (requires { what.release(); }) {
          if (what.empty() && !what.untold()) return;  // it was never made, or is unmapped already
          note(what, report, [&] { what.release(); });
        }
      },
      one.what);
}

std::string name_of(const held& one) {
  return std::visit(
      [](const auto& what) -> std::string {
        if constexpr (requires { what.name(); }) return what.name();
        return {};
      },
      one.what);
}

bool owns_something(const retirement& what) {
  return std::ranges::any_of(what.owners, [](const held* one) { return one && !one->done(); });
}

/// Nor are its destructors run, which would call the driver.
void keep_for_ever(retirement&& what) noexcept {
  alignas(retirement) std::array<std::byte, sizeof(retirement)> place{};
  new (place.data()) retirement(std::move(what));
}

struct waiting_list {
  std::mutex mutex;
  std::vector<std::shared_ptr<retired>> all;
};

/// Never destroyed. In a forked child nothing of it is ours.
waiting_list& list() {
  static auto* const here = [] {
    pthread_atfork([] { list().mutex.lock(); }, [] { list().mutex.unlock(); },
                   [] {
                     new std::vector<std::shared_ptr<retired>>(std::move(list().all));
                     list().all.clear();
                     list().mutex.unlock();
                   });
    return new waiting_list;
  }();
  return *here;
}

}  // namespace

retired::~retired() { give_all_back(); }

void retired::give_all_back() noexcept {
  if (!home_->runtime->may_call() || !any()) return;  // in a forked child nothing of this is ours to undo
  const auto report = [](const std::exception& error) {
    report_leak([&] { return std::string(error.what()); });
  };
  try {
    for (const auto& one : devices_) {
      const auto device = one.second;  // clang 15 captures no structured binding
      try {
        with_memory([&] { synchronize(*home_->runtime, device); });
      } catch (const hip::hip_error& error) {
        report(error);
      }
    }
    undo_report done;
    while (with_memory([&] { return give_back(done, std::chrono::steady_clock::time_point::max()); })) {
    }
    for (const auto& leak : done.leaks) report(leak.error);
  } catch (const std::exception& error) {
    report(error);
  }
}

void retired::set_devices(devices all) {
  if (home_->is_parents()) return;
  const std::lock_guard lock(home_->mutex);
  devices_ = std::move(all);
}

retired::devices retired::to_wait_for() const {
  if (home_->is_parents()) return {};
  const std::lock_guard lock(home_->mutex);
  return devices_;
}

void retired::add_locked(retirement&& more) noexcept {
  if (owns_something(more)) lists_.going.push_back(std::move(more));
}

void retired::add_last_locked(retirement&& more) noexcept {
  if (!owns_something(more)) return;
  lists_.going.insert(lists_.going.begin(), std::move(more));
}

bool retired::any() const {
  if (home_->is_parents()) return false;
  const std::lock_guard lock(home_->mutex);
  return !lists_.going.empty() || !lists_.kept.empty();
}

bool retired::goes() const {
  if (home_->is_parents()) return false;
  const std::lock_guard lock(home_->mutex);
  return goes_locked();
}

bool retired::waits() const {
  if (home_->is_parents()) return false;
  const std::lock_guard lock(home_->mutex);
  if (leases_->size() == 0) return false;
  return spared_ == spared::all || (lists_.going.empty() && !lists_.kept.empty());
}

bool retired::must_stay(const held& one) const {
  if (leases_->size() == 0) return false;
  if (spared_ == spared::all) return true;
  if (std::holds_alternative<mapping>(one.what)) return false;
  if (std::holds_alternative<stream>(one.what)) return true;  // bytes may be on their way through it
  return std::visit(
      [&](const auto& what) {
        if constexpr (requires { what.address(); }) {
          return !leases_->overlapping(what.address(), what.size_bytes()).empty();
        }
        return false;
      },
      one.what);
}

/// Sets aside what leases are on. Throws std::bad_alloc, and has changed nothing then.
void retired::choose(undo_report& report) {
  auto& [old_going, old_kept] = lists_;
  lists chosen;
  std::vector<std::string> names;
  for (const auto* const some : {&old_kept, &old_going}) {
    for (const auto& part : *some) {
      retirement go{{}, part.segments};
      retirement stay{{}, part.segments};
      for (auto* const one : part.owners) {
        // A mapping that was unmapped for a swap may be put back yet, by what is given back before it.
        if (!one || (one->done() && !std::holds_alternative<mapping>(one->what))) continue;
        (must_stay(*one) ? stay : go).owners.push_back(one);
      }
      for (const auto* const one : stay.owners) {
        if (!one->done()) names.push_back(name_of(*one));
      }
      if (!go.owners.empty()) chosen.going.push_back(std::move(go));
      if (!stay.owners.empty()) chosen.kept.push_back(std::move(stay));
    }
  }
  report.kept = std::move(names);
  lists_ = std::move(chosen);
}

bool retired::give_back(undo_report& report, std::chrono::steady_clock::time_point until) {
  if (home_->is_parents()) return false;
  const std::lock_guard lock(home_->mutex);
  if (spared_ != spared::nothing && (leases_->size() != 0 || !lists_.kept.empty())) choose(report);
  auto& going = lists_.going;
  while (!going.empty()) {
    if (going.back().owners.empty()) {
      going.pop_back();
    } else if (give_some(going.back().owners, report, until)) {
      break;
    }
  }
  while (!going.empty() && going.back().owners.empty()) going.pop_back();
  return !going.empty();
}

bool retired::give_some(std::vector<held*>& owners, undo_report& report,
                        std::chrono::steady_clock::time_point until) {
  std::array<held*, at_once> latest{};
  const auto some = std::span(latest).first(std::min(at_once, owners.size()));
  std::reverse_copy(owners.end() - static_cast<std::ptrdiff_t>(some.size()), owners.end(), some.begin());
  deadline stop(until);
  std::size_t done = 0;
  const auto conclude = [&] {
    for (auto* const one : some.first(done)) {
      if (one) one->clear();
    }
    owners.resize(owners.size() - done);
  };
  try {
    while (done < some.size() && !stop.over()) {
      const auto rest = some.subspan(done);
      if (give_row(rest, done, report, stop)) continue;
      if (rest.front()) give_one(*rest.front(), report);
      if (!report.leaks.empty() && report.leaks.back().is_change) home_->damaged = true;
      ++done;
      stop.call_made();
    }
  } catch (...) {
    conclude();
    throw;
  }
  conclude();
  return stop.over();
}

bool retired::give_row(std::span<held* const> owners, std::size_t& done, undo_report& report,
                       deadline& stop) {
  std::array<driver_call, at_once> calls;
  std::size_t count = 0;
  for (; count < owners.size(); ++count) {
    const auto call = owners[count] ? releasing(*owners[count]) : std::nullopt;
    if (!call) break;
    calls[count] = *call;
  }
  if (count == 0) return false;
  const auto outcome = make_row(*home_->runtime, std::span(calls).first(count), stop);
  const bool failed = !outcome.thrown && outcome.result != hip::hipSuccess;
  const auto answered = outcome.done + (failed ? 1 : 0);
  for (std::size_t i = 0; i < answered;
       ++i, ++done) {  // only the last one may throw: it alone can have failed
    const auto result = i < outcome.done ? hip::hipSuccess : outcome.result;
    std::visit(
        [&](auto& what) {
          if constexpr (requires { what.released(result); })
            note(what, report, [&] { what.released(result); });
        },
        owners[i]->what);
  }
  if (outcome.thrown) std::rethrow_exception(outcome.thrown);
  return true;
}

std::vector<described> retired::contents() const {
  if (home_->is_parents()) return {};
  const std::lock_guard lock(home_->mutex);
  std::vector<described> out;
  for (const auto* const some : {&lists_.kept, &lists_.going}) {
    for (const auto& part : *some) {
      for (const auto* const one : part.owners) {
        if (one) describe(*one, out);
      }
    }
  }
  std::ranges::sort(out, {}, &described::made);
  return out;
}

void retired::abandon() noexcept {
  if (home_->is_parents()) return;
  const std::lock_guard lock(home_->mutex);
  for (auto* const some : {&lists_.kept, &lists_.going}) {
    for (auto& part : *some) keep_for_ever(std::move(part));
    some->clear();
  }
}

void describe(const held& one, std::vector<described>& out) {
  std::visit(
      [&](const auto& what) {
        if constexpr (requires { what.identify(); }) {
          if (!what.empty() || what.untold()) out.push_back({one.made, what.name(), what.identify()});
        }
      },
      one.what);
}

void waiting::add(std::shared_ptr<retired> some) {
  const std::lock_guard lock(list().mutex);
  if (std::ranges::find(list().all, some) == list().all.end()) list().all.push_back(std::move(some));
}

std::size_t waiting::count() {
  const std::lock_guard lock(list().mutex);
  return list().all.size();
}

std::vector<std::shared_ptr<retired>> waiting::all() {
  const std::lock_guard lock(list().mutex);
  return list().all;
}

void waiting::remove(const std::shared_ptr<retired>& some) noexcept {
  std::shared_ptr<retired> gone;  // its end comes after the lock's
  const std::lock_guard lock(list().mutex);
  const auto at = std::ranges::find(list().all, some);
  if (at == list().all.end()) return;
  gone = std::move(*at);
  list().all.erase(at);
}

}  // namespace hipplan
