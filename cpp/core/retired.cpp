#include "retired.hpp"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <new>
#include <optional>
#include <string_view>

#include "queries.hpp"
#include "with_memory.hpp"

namespace hipplan {
namespace {

/// How many owners are freed in one batch. A driver call fills the processor's caches with its own data, so
/// hipplan's bookkeeping is faster when it runs for many owners together. The batch is on the stack, so that
/// freeing needs no memory.
constexpr std::size_t at_once = 256;

/// The call that frees an object, if it takes only one; only for the kinds that plans have by the thousand.
std::optional<driver_call> plain_release_call(const held& owner) {
  const auto* const mapped = std::get_if<mapping>(&owner.what);
  if (mapped && !mapped->empty() && mapped->releases_plainly()) return mapped->release_call();
  const auto* const memory = std::get_if<allocation>(&owner.what);
  if (memory && !memory->empty()) return memory->release_call();
  return std::nullopt;
}

void free_one(held& owner, undo_report& report) {
  std::visit(
      [&](auto& what) {
        if constexpr (requires { what.release(); }) {
          if (what.empty() && !what.has_unreported_failure())
            return;  // it was never made, or is unmapped already
          release_into(report, what, [&] { what.release(); });
        }
      },
      owner.what);
}

/// Its name in the plan, which lives as long as the owner.
std::string_view name_in(const held& owner) {
  return std::visit(
      [](const auto& what) -> std::string_view {
        if constexpr (requires { what.name(); }) return what.name();
        return {};
      },
      owner.what);
}

bool owns_something(const retirement& what) {
  return std::ranges::any_of(what.owners, [](const held* owner) { return owner && !owner->done(); });
}

/// Leaks the owners: their destructors, which would call the driver, never run.
void never_destroy(retirement&& what) noexcept {
  alignas(retirement) std::array<std::byte, sizeof(retirement)> place{};
  new (place.data()) retirement(std::move(what));
}

struct waiting_list {
  std::mutex mutex;
  std::vector<std::shared_ptr<retired>> all;
};

/// Never destroyed. A forked child owns none of it.
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

retired::~retired() {
  free_all();
  if (!state_->runtime->may_call()) return;
  for (const auto& work : behind_) {
    if (work->wait_until(std::chrono::steady_clock::time_point::max())) work->log_failures();
  }
}

void retired::free_all() noexcept {
  if (!state_->runtime->may_call() || !any()) return;
  const auto report = [](const std::exception& error) { report_leak(std::string_view(error.what())); };
  try {
    for (const auto& named : devices_) {
      const auto device = named.second;  // clang 15 captures no structured binding
      try {
        with_memory([&] { synchronize(*state_->runtime, device); });
      } catch (const hip::hip_error& error) {
        report(error);
      }
    }
    undo_report done;
    while (with_memory([&] { return free_some(done, std::chrono::steady_clock::time_point::max()); })) {
    }
    for (const auto& leak : done.leaks) report(leak.error);
  } catch (const std::bad_alloc&) {
    keep_all();
  } catch (const std::exception& error) {
    report(error);
  }
}

void retired::keep_all() noexcept {
  if (state_->in_forked_child()) return;
  {
    const std::lock_guard lock(state_->mutex);
    for (const auto* const some : {&lists_.kept, &lists_.going}) {
      for (const auto& part : *some) report_kept(part.owners);
    }
  }
  abandon();
}

void retired::set_devices(devices all) {
  if (state_->in_forked_child()) return;
  const std::lock_guard lock(state_->mutex);
  devices_ = std::move(all);
}

retired::devices retired::to_wait_for() const {
  if (state_->in_forked_child()) return {};
  const std::lock_guard lock(state_->mutex);
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
  if (state_->in_forked_child()) return false;
  const std::lock_guard lock(state_->mutex);
  return !lists_.going.empty() || !lists_.kept.empty();
}

bool retired::has_freeable() const {
  if (state_->in_forked_child()) return false;
  const std::lock_guard lock(state_->mutex);
  return has_freeable_locked();
}

bool retired::waits_for_views() const {
  if (state_->in_forked_child()) return false;
  const std::lock_guard lock(state_->mutex);
  if (leases_->size() == 0) return false;
  return spared_ == spared::all || (lists_.going.empty() && !lists_.kept.empty());
}

bool retired::must_stay(const held& owner) const {
  if (leases_->size() == 0) return false;
  if (spared_ == spared::all) return true;
  if (std::holds_alternative<mapping>(owner.what)) return false;
  if (std::holds_alternative<stream>(owner.what)) return true;  // copies may be under way in it
  return std::visit(
      [&](const auto& what) {
        if constexpr (requires { what.address(); }) {
          return !leases_->overlapping(what.address(), what.size_bytes()).empty();
        }
        return false;
      },
      owner.what);
}

/// Moves objects with leases to the list of kept ones. Throws std::bad_alloc, and changes nothing then.
void retired::choose(undo_report& report) {
  auto& [old_going, old_kept] = lists_;
  lists chosen;
  std::vector<std::string> names;
  for (const auto* const some : {&old_kept, &old_going}) {
    for (const auto& part : *some) {
      retirement go{{}, part.segments};
      retirement stay{{}, part.segments};
      for (auto* const owner : part.owners) {
        // A mapping that was unmapped for a swap stays in the list: an alteration freed before it may restore
        // it.
        if (!owner || (owner->done() && !std::holds_alternative<mapping>(owner->what))) continue;
        (must_stay(*owner) ? stay : go).owners.push_back(owner);
      }
      for (const auto* const owner : stay.owners) {
        if (!owner->done()) names.emplace_back(name_in(*owner));
      }
      if (!go.owners.empty()) chosen.going.push_back(std::move(go));
      if (!stay.owners.empty()) chosen.kept.push_back(std::move(stay));
    }
  }
  report.kept = std::move(names);
  lists_ = std::move(chosen);
}

bool retired::free_some(undo_report& report, std::chrono::steady_clock::time_point until) {
  if (state_->in_forked_child()) return false;
  const std::lock_guard lock(state_->mutex);
  if (spared_ != spared::nothing && (leases_->size() != 0 || !lists_.kept.empty())) choose(report);
  auto& going = lists_.going;
  while (!going.empty()) {
    if (going.back().owners.empty()) {
      going.pop_back();
    } else if (free_batch(going.back().owners, report, until)) {
      break;
    }
  }
  while (!going.empty() && going.back().owners.empty()) going.pop_back();
  return !going.empty();
}

bool retired::free_batch(std::vector<held*>& owners, undo_report& report,
                         std::chrono::steady_clock::time_point until) {
  std::array<held*, at_once> latest{};
  const auto some = std::span(latest).first(std::min(at_once, owners.size()));
  std::reverse_copy(owners.end() - static_cast<std::ptrdiff_t>(some.size()), owners.end(), some.begin());
  deadline stop(until);
  std::size_t done = 0;
  const auto conclude = [&] {
    for (auto* const owner : some.first(done)) {
      if (owner) owner->clear();
    }
    owners.resize(owners.size() - done);
  };
  try {
    while (done < some.size() && !stop.over()) {
      const auto rest = some.subspan(done);
      if (free_plain(rest, done, report, stop)) continue;
      if (rest.front()) free_one(*rest.front(), report);
      if (!report.leaks.empty() && report.leaks.back().is_change) state_->damaged = true;
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

bool retired::free_plain(std::span<held* const> owners, std::size_t& done, undo_report& report,
                         deadline& stop) {
  std::array<driver_call, at_once> calls;
  std::size_t count = 0;
  for (; count < owners.size(); ++count) {
    const auto call = owners[count] ? plain_release_call(*owners[count]) : std::nullopt;
    if (!call) break;
    calls[count] = *call;
  }
  if (count == 0) return false;
  const auto outcome = make_calls(*state_->runtime, std::span(calls).first(count), stop);
  const bool failed = !outcome.thrown && outcome.result != hip::hipSuccess;
  const auto answered = outcome.done + (failed ? 1 : 0);
  for (std::size_t i = 0; i < answered; ++i, ++done) {  // only the last may throw: only it can have failed
    const auto result = i < outcome.done ? hip::hipSuccess : outcome.result;
    std::visit(
        [&](auto& what) {
          if constexpr (requires { what.take_release_result(result); })
            release_into(report, what, [&] { what.take_release_result(result); });
        },
        owners[i]->what);
  }
  if (outcome.thrown) std::rethrow_exception(outcome.thrown);
  return true;
}

std::vector<described> retired::contents() const {
  if (state_->in_forked_child()) return {};
  const std::lock_guard lock(state_->mutex);
  std::vector<described> out;
  for (const auto* const some : {&lists_.kept, &lists_.going}) {
    for (const auto& part : *some) {
      for (const auto* const owner : part.owners) {
        if (owner) describe(*owner, out);
      }
    }
  }
  for (const auto& work : behind_) out.insert(out.end(), work->contents().begin(), work->contents().end());
  std::ranges::sort(out, {}, &described::made);
  return out;
}

std::vector<std::shared_ptr<freed_behind>> retired::works_behind() const {
  if (state_->in_forked_child()) return {};
  const std::lock_guard lock(state_->mutex);
  return behind_;
}

bool retired::wait_behind(std::chrono::steady_clock::time_point until) const {
  return std::ranges::all_of(works_behind(), [&](const auto& work) { return work->wait_until(until); });
}

void retired::report_behind(undo_report& report) {
  for (const auto& work : works_behind()) {
    if (!work->wait_until(std::chrono::steady_clock::time_point::min())) continue;
    const std::lock_guard lock(state_->mutex);
    const auto at = std::ranges::find(behind_, work);
    if (at == behind_.end()) continue;  // another thread was quicker
    work->report_into(report);
    behind_.erase(at);
  }
}

std::vector<described> retired::behind() const {
  std::vector<described> out;
  for (const auto& work : works_behind())
    out.insert(out.end(), work->contents().begin(), work->contents().end());
  return out;
}

void retired::abandon() noexcept {
  if (state_->in_forked_child()) return;
  const std::lock_guard lock(state_->mutex);
  for (auto* const some : {&lists_.kept, &lists_.going}) {
    for (auto& part : *some) never_destroy(std::move(part));
    some->clear();
  }
  behind_.clear();
}

// NOLINTNEXTLINE(bugprone-exception-escape): a visited owner is never valueless
void report_kept(std::span<held* const> owners) noexcept {
  for (const auto* const owner : owners) {
    if (!owner || owner->done()) continue;
    std::array<char, 240> text{};
    const auto name = name_in(*owner);
    const auto size =
        std::snprintf(text.data(), text.size(), "'%.*s': kept, because there was no memory to free it",
                      static_cast<int>(name.size()), name.data());
    report_leak(std::string_view(text.data(), std::min(text.size() - 1, static_cast<std::size_t>(size))));
  }
}

void describe(const held& owner, std::vector<described>& out) {
  std::visit(
      [&](const auto& what) {
        if constexpr (requires { what.identify(); }) {
          if (!what.empty() || what.has_unreported_failure())
            out.push_back({owner.made, what.name(), what.identify()});
        }
      },
      owner.what);
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
  std::shared_ptr<retired> gone;  // destroyed after the lock
  const std::lock_guard lock(list().mutex);
  const auto at = std::ranges::find(list().all, some);
  if (at == list().all.end()) return;
  gone = std::move(*at);
  list().all.erase(at);
}

}  // namespace hipplan
