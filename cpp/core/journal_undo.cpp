// The journal in reverse.
#include <algorithm>
#include <array>
#include <optional>

#include "journal.hpp"

namespace hipplan {
namespace {

/// Entries that an undo looks up, gives back and drops together. After a driver call the processor's caches
/// hold the driver's own: then each free or search costs many times what it does among its like. Kept on the
/// stack, so that giving back needs no memory.
constexpr std::size_t at_once = 256;
constexpr auto is_nothing = [](const auto& one) { return std::holds_alternative<std::monostate>(*one.what); };

/// The one call that gives an object back, where that is all there is to it; only of the kinds that come by
/// the thousand.
template <class Owner>
std::optional<driver_call> releasing(const Owner& owner) {
  const auto* const mapped = std::get_if<mapping>(&owner);
  if (mapped && !mapped->empty() && mapped->releases_plainly()) return mapped->releasing();
  const auto* const memory = std::get_if<allocation>(&owner);
  if (memory && !memory->empty()) return memory->releasing();
  return std::nullopt;
}

/// Gives something back, and reports what came of it. Throws std::bad_alloc where there is no memory for a
/// failure's words; then it is to be called again.
template <class Kind, class GiveBack>
void note(Kind& what, undo_report& report, GiveBack give_back) {
  constexpr bool is_change = std::is_same_v<Kind, change>;
  try {
    give_back();
    ++(is_change ? report.restored : report.undone);
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

}  // namespace

void journal::undo(entry_list& entries, undo_report& report, std::chrono::steady_clock::time_point until) {
  const std::lock_guard lock(mutex_);
  while (!entries.empty() && !undo_some(entries, report, until)) {
  }
}

bool journal::undo_some(entry_list& entries, undo_report& report,
                        std::chrono::steady_clock::time_point until) {
  // All are looked for before the first call, and all dropped after the last one.
  std::array<owner*, at_once> places{};
  std::array<entry_id, at_once> wanted{};
  const auto found = std::span(places).first(entries.highest(wanted));
  std::transform(wanted.begin(), wanted.begin() + found.size(), found.begin(), [&](entry_id entry) {
    const auto at = locate(entry);
    return at == slots_.end() ? nullptr : at->what.get();
  });
  deadline stop(until);
  std::size_t done = 0;
  const auto conclude = [&] {
    entries.pop_back(done);
    drop(found.first(done));
  };
  try {
    while (done < found.size() && !stop.over()) {
      const auto rest = found.subspan(done);
      if (undo_row(rest, done, report, stop)) continue;
      if (rest.front()) undo(*rest.front(), report);
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

bool journal::undo_row(std::span<owner* const> owners, std::size_t& done, undo_report& report,
                       deadline& stop) {
  std::array<driver_call, at_once> calls;
  std::size_t count = 0;
  for (; count < owners.size(); ++count) {
    const auto call = owners[count] ? releasing(*owners[count]) : std::nullopt;
    if (!call) break;
    calls[count] = *call;
  }
  if (count == 0) return false;
  const auto outcome = make_row(*runtime_, std::span(calls).first(count), stop);
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
        *owners[i]);
  }
  if (outcome.thrown) std::rethrow_exception(outcome.thrown);
  return true;
}

void journal::drop(std::span<owner* const> undone) {
  bool gaps = false;
  for (owner* const what : undone) {
    if (!what) continue;
    what->emplace<std::monostate>();
    if (slots_.back().what.get() == what) {
      slots_.pop_back();
    } else {  // all gaps are closed at once
      gaps = true;
    }
  }
  if (gaps) {
    std::erase_if(slots_, is_nothing);
  }
}

void journal::undo(owner& what, undo_report& report) {
  std::visit(
      [&](auto& one) {
        if constexpr (requires { one.empty(); }) {
          if (one.empty() && !one.untold()) return;  // a mapping that was taken out
        }
        if constexpr (requires { one.release(); }) note(one, report, [&] { one.release(); });
      },
      what);
}

}  // namespace hipplan
