#include "change.hpp"

#include <algorithm>
#include <stdexcept>
#include <type_traits>

namespace hipplan {
namespace {

/// The most rows that are prepared in advance: about as many as run before signals are checked again.
constexpr std::size_t most_at_once = 512;

/// Whether a roll back has to undo the row: it alters an object that stays.
bool is_logged(const row& next) {
  if (const auto* const access = std::get_if<set_rights>(&next.what)) return access->before.has_value();
  if (const auto* const advice = std::get_if<advise_range>(&next.what)) return advice->before.has_value();
  return std::holds_alternative<unmap_memory>(next.what);
}

}  // namespace

change::change(std::shared_ptr<holdings> of, change_plan plan)
    : holdings_(std::move(of)),
      state_(holdings_->state()),
      plan_(std::move(plan)),
      is_plain_(mapping::is_plain(*state_->runtime)) {
  const auto lock = state_->locked();  // until the change is the layout's
  if (holdings_->closed_) throw std::logic_error("the layout is closed");
  if (holdings_->retired_->has_freeable_locked())
    throw std::logic_error("objects of an earlier change are not freed yet");
  if (holdings_->change_) throw std::logic_error("the layout is being changed already");
  old_snapshot_ = holdings_->current_;
  const auto& rows = plan_.rows->rows;
  const auto owners = static_cast<std::size_t>(
      std::ranges::count_if(rows, [](const auto& next) { return next.makes() || is_logged(next); }));
  take_segment(owners);
  if (plan_.extra_slots > table_.max_size() - std::min(plan_.slots, table_.max_size())) {
    throw std::length_error("more slots than a table can have");
  }
  table_.assign(plan_.slots + plan_.extra_slots, nullptr);
  place_kept_objects();
  choose_what_is_freed_behind();
  choose_spares();
  place_new_objects(owners);
  if (plan_.timed) times_.resize(rows.size());

  auto segments = segments_;
  if (owners != 0 && (segments.empty() || segments.back() != segment_)) segments.push_back(segment_);
  new_snapshot_ = std::make_shared<snapshot>(state_, table_, segments, in_order_);
  after_ = new_snapshot_;
  if (plan_.extra_slots != 0) {
    const auto end = table_.begin() + static_cast<std::ptrdiff_t>(plan_.slots);
    after_ =
        std::make_shared<snapshot>(state_, std::vector(table_.begin(), end), std::move(segments), in_order_);
  }
  holdings_->retired_->make_room_locked();
  holdings_->made_count_ += owners;
  segment_->used += owners;
  holdings_->open_ = segment_;
  holdings_->change_ = this;
}

change::~change() {
  if (!runtime().may_call()) {  // a thread of the parent, or one that sleeps at exit, may hold the lock
    if (holdings_->change_ == this) holdings_->change_ = nullptr;
    return;
  }
  roll_back();
  holdings_->retired_->free_all();
}

void change::place_kept_objects() {
  const auto& old = old_snapshot_->table();
  const auto same = plan_.same_slots;
  if (same > std::min(plan_.slots, old.size())) throw std::out_of_range("more slots stay than there are");
  std::copy_n(old.begin(), same, table_.begin());
  for (const auto slot : plan_.renewed) {
    if (slot >= same || !table_[slot])
      throw std::out_of_range("a slot whose object is renewed does not stay");
    replaced_owners_.owners.push_back(std::exchange(table_[slot], nullptr));
  }
  std::vector<bool> stays(old.size() - same);
  for (const auto& objects : plan_.kept) {
    if (objects.count > table_.size() || objects.to > table_.size() - objects.count ||
        objects.count > old.size() || objects.from > old.size() - objects.count)
      throw std::out_of_range("a slot that stays is not in the table");
    for (std::size_t i = 0; i < objects.count; ++i) {
      const auto to = objects.to + i;
      const auto from = objects.from + i;
      if (to < same || table_[to]) throw std::out_of_range("a slot that something stays in is taken");
      table_[to] = old[from];
      if (to >= plan_.slots) continue;
      if (from < same || stays[from - same]) throw std::out_of_range("one object would stay in two slots");
      stays[from - same] = true;
    }
  }
  replaced_owners_.segments = segments_;
  for (auto slot = same; slot < old.size(); ++slot) {
    if (old[slot] && !stays[slot - same]) replaced_owners_.owners.push_back(old[slot]);
  }
  std::ranges::sort(replaced_owners_.owners, {}, &held::made);
}

/// Creates the owner of each row's object, empty, before the first row runs; also those that undo
/// alterations.
void change::place_new_objects(std::size_t owners) {
  new_owners_.owners.reserve(owners);
  new_owners_.segments.push_back(segment_);
  in_order_ = old_snapshot_->in_order() && plan_.same_slots == old_snapshot_->size();
  auto expected = plan_.same_slots;
  for (const auto& next : plan_.rows->rows) {
    if (!next.makes() && !is_logged(next)) continue;
    auto& out = segment_->owners[segment_->used + new_owners_.owners.size()];
    new_owners_.owners.push_back(&out);
    out.made = holdings_->made_count_ + new_owners_.owners.size();
    if (!next.makes()) {
      log_.push_back(&out);
      continue;
    }
    if (next.slot >= table_.size() || table_[next.slot])
      throw std::out_of_range("a row's slot is taken, or not in the table");
    table_[next.slot] = &out;
    in_order_ = in_order_ && next.slot == expected++;
    if (next.slot >= plan_.slots) replaced_owners_.owners.push_back(&out);  // exists only during the change
  }
  if (!replaced_owners_.owners.empty()) replaced_owners_.segments.push_back(segment_);
}

std::vector<leased> change::bar(bool force, bool spares_devices) {
  std::vector<std::pair<std::uintptr_t, std::size_t>> ranges;
  {
    const auto lock = state_->locked();
    for (const auto* const owner : replaced_owners_.owners) {
      std::visit(
          [&](const auto& what) {
            // Ranges too: there may be views of memory in it that sleeps, and is not mapped.
            if constexpr (requires { what.address(); }) {
              if (!what.empty()) ranges.emplace_back(what.address(), what.size_bytes());
            }
          },
          owner->what);
    }
  }
  std::ranges::sort(ranges);
  barred_.reserve(ranges.size());
  for (std::size_t i = 0; i < ranges.size();) {
    auto [address, size_bytes] = ranges[i++];
    for (; i < ranges.size() && ranges[i].first <= address + size_bytes; ++i) {
      size_bytes = std::max(size_bytes, ranges[i].first + ranges[i].second - address);
    }
    auto holders = holdings_->leases()->bar(address, size_bytes, force, spares_devices);
    if (!holders.empty() && !force) {
      for (const auto& [begin, bytes] : barred_) holdings_->leases()->unbar(begin, bytes);
      barred_.clear();
      return holders;
    }
    barred_.emplace_back(address, size_bytes);
  }
  return {};
}

void change::bind(std::vector<binding> bound) {
  const auto lock = state_->locked();
  if (undecided()) bound_.swap(bound);  // the old bindings are destroyed after the lock
}

void change::advance(std::size_t end, time until, time gives_up) {
  const auto lock = state_->locked();
  if (!undecided()) throw std::logic_error("the change is decided");
  if (failed_) throw std::logic_error("a row of the change has failed: it can only be rolled back");
  end = std::min(end, plan_.rows->rows.size());
  deadline stop(until);
  struct restores_device {
    change& self;
    ~restores_device() {
      self.current_.reset();
      self.device_ = {-1};
    }
  } const at_the_end{*this};
  failed_ = true;
  bool is_row_done = true;
  while (done_ < end && !stop.over() && is_row_done) {
    if (done_ >= first_ready_ + ready_.size()) get_ready(end);
    if (const auto size = count_plain_rows(end)) {
      run_plain_rows(size, stop);
    } else {
      is_row_done = run_single_row(stop, until, gives_up);
    }
  }
  failed_ = false;
  // The next call prepares about as many rows as this one had time to run.
  const auto used = done_ - first_ready_;
  if (stop.over() && used < ready_.size())
    at_once_ = std::clamp<std::size_t>(used + used / 8, 16, most_at_once);
}

void change::get_ready(std::size_t end) {
  ready_.clear();
  calls_.clear();
  first_ready_ = done_;
  const auto last = std::min(end, done_ + at_once_);
  ready_.reserve(last - done_);
  calls_.reserve(last - done_);
  for (auto at = done_; at < last; ++at) {
    if (!add_ready(plan_.rows->rows[at])) break;
  }
  if (!ready_.empty()) at_once_ = std::min(2 * at_once_, most_at_once);
}

/// False for a row that cannot be prepared: of a rarer kind, or it needs an object that does not exist yet.
bool change::add_ready(const row& next) {
  ready_row ready;
  if (const auto* const create = std::get_if<create_allocation>(&next.what)) {
    const auto& where = create->properties;
    if (!holdings_->spares_.owners.empty()) return false;  // it may take one of them
    if (where.location_type == hip::hipMemLocationTypeDevice) ready.device = {where.location_id};
    ready.made = table_[next.slot];
    ready.made->what.emplace<allocation>(runtime(), next.name, create->size_bytes, where);
    ready.plain = true;
  } else if (const auto* const map = std::get_if<map_memory>(&next.what)) {
    const auto& range = get<address_range>(map->range);
    ready.memory = &get<allocation>(map->memory);
    if (range.empty() || ready.memory->empty()) return false;
    ready.made = table_[next.slot];
    ready.made->what.emplace<mapping>(runtime(), next.name, range, map->offset_bytes, map->size_bytes);
    ready.plain = is_plain_;
  } else if (const auto* const access = std::get_if<set_rights>(&next.what); access && !access->before) {
    ready.mapped = &get<mapping>(next.slot);
    ready.access = access;
    ready.plain = is_plain_;
  } else if (const auto* const buffer = std::get_if<create_device_buffer>(&next.what)) {
    ready.device = buffer->device;
    ready.made = table_[next.slot];
    ready.made->what.emplace<device_buffer>(runtime(), next.name, buffer->device, buffer->size_bytes);
  } else {
    return false;
  }
  calls_.push_back(ready.plain ? call_of(ready) : driver_call{});
  ready_.push_back(ready);
  return true;
}

driver_call change::call_of(const ready_row& ready) const {
  if (!ready.made) return ready.mapped->access_call(ready.access->now, ready.access->together);
  if (ready.memory) return std::get<mapping>(ready.made->what).make_call(*ready.memory);
  return std::get<allocation>(ready.made->what).make_call();
}

/// Passes the result of a call to the row's owner. Throws the row's error.
void change::take_result(const ready_row& ready, const driver_call& call, hip::hipError_t result) {
  if (!ready.made) return ready.mapped->take_access_result(ready.access->now, result);
  if (ready.memory) return std::get<mapping>(ready.made->what).take_make_result(*ready.memory, result);
  std::get<allocation>(ready.made->what).take_make_result(call, result);
}

/// Counts the next rows that are one plain call each with the same device current, and makes it current.
std::size_t change::count_plain_rows(std::size_t end) {
  if (plan_.timed) return 0;
  std::size_t size = 0;
  const auto last = std::min(end, first_ready_ + ready_.size());
  for (auto at = done_; at < last; ++at) {
    const auto& next = ready_[at - first_ready_];
    if (!next.plain || (size > 0 && needs_another(next.device))) break;
    make_current(next.device);
    ++size;
  }
  return size;
}

void change::run_plain_rows(std::size_t size, deadline& stop) {
  const auto calls = std::span(calls_).subspan(done_ - first_ready_, size);
  const auto outcome = make_calls(runtime(), calls, stop);
  for (const auto& call : calls.first(outcome.done)) {
    take_result(ready_[done_ - first_ready_], call, hip::hipSuccess);
    ++done_;
  }
  if (outcome.thrown) std::rethrow_exception(outcome.thrown);
  if (outcome.result != hip::hipSuccess) {
    take_result(ready_[done_ - first_ready_], calls[outcome.done], outcome.result);
  }
}

/// Returns false in the middle of a search for an address.
bool change::run_single_row(deadline& stop, time until, time gives_up) {
  using steady = std::chrono::steady_clock;
  const auto& next = plan_.rows->rows[done_];
  const auto nanoseconds = [](steady::duration from) {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(from).count());
  };
  if (plan_.timed && !search_) {
    times_[done_].began_ns = nanoseconds(steady::now().time_since_epoch());
    times_[done_].retries = hip::runtime::retries_of_this_thread();
  }
  const auto note = [&] {
    if (!plan_.timed) return;
    auto& noted = times_[done_];
    noted.ns = nanoseconds(steady::now().time_since_epoch()) - noted.began_ns;
    noted.retries = hip::runtime::retries_of_this_thread() - noted.retries;
  };
  try {
    if (const auto* const range = std::get_if<reserve_range>(&next.what)) {
      if (!reserve(next, *range, stop, until, gives_up)) return false;
    } else {
      next.makes() ? make(next) : alter(next);
    }
  } catch (...) {
    search_.reset();
    note();
    throw;
  }
  note();
  ++done_;
  stop.call_made();
  return true;
}

bool change::is_searching() const {
  const auto lock = state_->locked();
  return search_.has_value();
}

void change::end_search() {
  const auto lock = state_->locked();
  search_.reset();
}

bool change::needs_another(device_id wanted) const {
  return wanted.value >= 0 && !(current_ && device_ == wanted);
}

/// One scope for all successive rows of a device: each new scope costs a hipGetDevice.
void change::make_current(device_id wanted) {
  if (!needs_another(wanted)) return;
  current_.reset();
  current_.emplace(runtime(), wanted);
  device_ = wanted;
}

void change::commit_locked() noexcept {
  decision_ = decision::commit;
  holdings_->current_ = after_;
  holdings_->leases()->settle();
  for (auto* const owner : log_) owner->clear();
  count_gone(log_);
  count_gone(replaced_owners_.owners);
  if (behind_) {
    for (auto* const owner : owners_behind_) {
      behind_->take(std::move(*std::get_if<pinned_buffer>(&owner->what)));
      owner->clear();
    }
    holdings_->retired_->add_behind_locked(behind_);
  }
  keep_spares();
  retire_rest(std::move(replaced_owners_));
}

void change::roll_back() noexcept {
  if (state_->in_forked_child()) {
    if (undecided()) decision_ = decision::roll_back;
    if (holdings_->change_ == this) holdings_->change_ = nullptr;
    return;
  }
  std::vector<binding> bound;  // destroyed after the lock
  const std::lock_guard lock(state_->mutex);
  bound = roll_back_locked();
}

std::vector<binding> change::roll_back_locked() noexcept {
  if (!undecided()) return {};
  decision_ = decision::roll_back;
  search_.reset();
  for (const auto& [address, size_bytes] : barred_) holdings_->leases()->unbar(address, size_bytes);
  for (auto* const owner : new_owners_.owners) {
    if (owner->done()) owner->clear();  // releases memory that was to be registered
  }
  count_gone(new_owners_.owners);
  retire_rest(std::move(new_owners_));
  return std::exchange(bound_, {});
}

/// Ends the change and retires the losing side.
void change::retire_rest(retirement&& rest) noexcept {
  holdings_->change_ = nullptr;
  holdings_->retired_->add_locked(std::move(rest));
  holdings_->retired_->add_locked(std::move(leftovers_));
}

}  // namespace hipplan
