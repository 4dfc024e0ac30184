#include "change.hpp"

#include <algorithm>
#include <stdexcept>
#include <type_traits>

namespace hipplan {
namespace {

/// Rows that get ready at once, at most: about as many as can be made before signals are looked at again.
constexpr std::size_t most_at_once = 512;

/// Whether a roll back has to take the row back: it alters what stays.
bool is_logged(const row& one) {
  if (const auto* const access = std::get_if<set_rights>(&one.what)) return access->before.has_value();
  if (const auto* const advice = std::get_if<advise_range>(&one.what)) return advice->before.has_value();
  return std::holds_alternative<unmap_memory>(one.what);
}

}  // namespace

change::change(std::shared_ptr<holdings> of, change_plan plan)
    : of_(std::move(of)),
      home_(of_->home()),
      plan_(std::move(plan)),
      is_plain_(mapping::is_plain(*home_->runtime)) {
  const auto lock = home_->locked();  // until the change is the layout's
  if (of_->closed_) throw std::logic_error("the layout is closed");
  if (of_->retired_->goes_locked())
    throw std::logic_error("something of an earlier change is not given back yet");
  if (of_->change_) throw std::logic_error("the layout is being changed already");
  before_ = of_->current_;
  const auto& rows = plan_.rows->rows;
  const auto owners = static_cast<std::size_t>(
      std::ranges::count_if(rows, [](const auto& one) { return one.makes() || is_logged(one); }));
  segment_ = std::make_shared<segment>(owners);
  if (plan_.extra_slots > table_.max_size() - std::min(plan_.slots, table_.max_size())) {
    throw std::length_error("more slots than a table can have");
  }
  table_.assign(plan_.slots + plan_.extra_slots, nullptr);
  find_what_stays();
  place_what_comes();
  if (plan_.timed) times_.resize(rows.size());

  auto segments = before_->segments();
  if (!segment_->empty()) segments.push_back(segment_);
  making_ = std::make_shared<snapshot>(home_, table_, segments, in_order_);
  after_ = making_;
  if (plan_.extra_slots != 0) {
    const auto end = table_.begin() + static_cast<std::ptrdiff_t>(plan_.slots);
    after_ =
        std::make_shared<snapshot>(home_, std::vector(table_.begin(), end), std::move(segments), in_order_);
  }
  of_->retired_->make_room_locked();
  of_->made_ += owners;
  of_->change_ = this;
}

change::~change() {
  if (!runtime().may_call()) {  // a thread that the child has not got, or that sleeps at the end, may have
                                // the lock
    if (of_->change_ == this) of_->change_ = nullptr;
    return;
  }
  roll_back();
  of_->retired_->give_all_back();
}

void change::find_what_stays() {
  const auto& old = before_->table();
  const auto same = plan_.same_slots;
  if (same > std::min(plan_.slots, old.size())) throw std::out_of_range("more slots stay than there are");
  std::copy_n(old.begin(), same, table_.begin());
  std::vector<bool> stays(old.size() - same);
  for (const auto& [to, from] : plan_.kept) {
    if (to >= table_.size() || from >= old.size())
      throw std::out_of_range("a slot that stays is not in the table");
    if (to < same || table_[to]) throw std::out_of_range("a slot that something stays in is taken");
    table_[to] = old[from];
    if (to >= plan_.slots) continue;
    if (from < same || stays[from - same]) throw std::out_of_range("one object would stay in two slots");
    stays[from - same] = true;
  }
  old_ones_.segments = before_->segments();
  for (auto slot = same; slot < old.size(); ++slot) {
    if (old[slot] && !stays[slot - same]) old_ones_.owners.push_back(old[slot]);
  }
  std::ranges::sort(old_ones_.owners, {}, &held::made);
}

/// What a row makes has its place before the first row runs, empty; so has what takes an alteration back.
void change::place_what_comes() {
  new_ones_.owners.reserve(segment_->size());
  new_ones_.segments.push_back(segment_);
  in_order_ = before_->in_order() && plan_.same_slots == before_->size();
  auto expected = plan_.same_slots;
  for (const auto& next : plan_.rows->rows) {
    if (!next.makes() && !is_logged(next)) continue;
    auto& out = (*segment_)[new_ones_.owners.size()];
    new_ones_.owners.push_back(&out);
    out.made = of_->made_ + new_ones_.owners.size();
    if (!next.makes()) {
      log_.push_back(&out);
      continue;
    }
    if (next.slot >= table_.size() || table_[next.slot])
      throw std::out_of_range("a row's slot is taken, or not in the table");
    table_[next.slot] = &out;
    in_order_ = in_order_ && next.slot == expected++;
    if (next.slot >= plan_.slots) old_ones_.owners.push_back(&out);  // it is there only meanwhile
  }
  if (!old_ones_.owners.empty()) old_ones_.segments.push_back(segment_);
}

std::vector<leased> change::bar(bool force) {
  std::vector<std::pair<std::uintptr_t, std::size_t>> ranges;
  {
    const auto lock = home_->locked();
    for (const auto* const one : old_ones_.owners) {
      std::visit(
          [&](const auto& what) {
            // Of a range, too: views may be out of what sleeps in it, and is not mapped.
            if constexpr (requires { what.address(); }) {
              if (!what.empty()) ranges.emplace_back(what.address(), what.size_bytes());
            }
          },
          one->what);
    }
  }
  std::ranges::sort(ranges);
  barred_.reserve(ranges.size());
  for (std::size_t i = 0; i < ranges.size();) {
    auto [address, size_bytes] = ranges[i++];
    for (; i < ranges.size() && ranges[i].first <= address + size_bytes; ++i) {
      size_bytes = std::max(size_bytes, ranges[i].first + ranges[i].second - address);
    }
    auto holders = of_->leases()->bar(address, size_bytes, force);
    if (!holders.empty() && !force) {
      for (const auto& [begin, bytes] : barred_) of_->leases()->unbar(begin, bytes);
      barred_.clear();
      return holders;
    }
    barred_.emplace_back(address, size_bytes);
  }
  return {};
}

void change::bind(std::vector<binding> bound) {
  const auto lock = home_->locked();
  if (undecided()) bound_.swap(bound);  // what there was is let go behind the lock
}

void change::advance(std::size_t end, std::chrono::steady_clock::time_point until) {
  const auto lock = home_->locked();
  if (!undecided()) throw std::logic_error("the change is decided");
  if (failed_) throw std::logic_error("a row of the change has failed: it can only be rolled back");
  end = std::min(end, plan_.rows->rows.size());
  deadline stop(until);
  struct puts_device_back {
    change& self;
    ~puts_device_back() {
      self.current_.reset();
      self.device_ = {-1};
    }
  } const at_the_end{*this};
  failed_ = true;
  while (done_ < end && !stop.over()) {
    if (done_ >= first_ready_ + ready_.size()) get_ready(end);
    if (const auto size = row_size(end)) {
      run_row(size, stop);
    } else {
      run_one(stop);
    }
  }
  failed_ = false;
  // About as many as could be made in the time get ready the next time.
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

/// False for a row that is made by itself, or needs what is not made yet.
bool change::add_ready(const row& next) {
  ready_row ready;
  if (const auto* const create = std::get_if<create_allocation>(&next.what)) {
    const auto& where = create->properties;
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
  if (!ready.made) return ready.mapped->setting_access(ready.access->now, ready.access->together);
  if (ready.memory) return std::get<mapping>(ready.made->what).making(*ready.memory);
  return std::get<allocation>(ready.made->what).making();
}

/// Throws what the row failed with.
void change::take_answer(const ready_row& ready, const driver_call& call, hip::hipError_t result) {
  if (!ready.made) return ready.mapped->access_set(ready.access->now, result);
  if (ready.memory) return std::get<mapping>(ready.made->what).made(*ready.memory, result);
  std::get<allocation>(ready.made->what).made(call, result);
}

/// How many of the next rows are one plain call each with the same device current.
std::size_t change::row_size(std::size_t end) {
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

void change::run_row(std::size_t size, deadline& stop) {
  const auto calls = std::span(calls_).subspan(done_ - first_ready_, size);
  const auto outcome = make_row(runtime(), calls, stop);
  for (const auto& call : calls.first(outcome.done)) {
    take_answer(ready_[done_ - first_ready_], call, hip::hipSuccess);
    ++done_;
  }
  if (outcome.thrown) std::rethrow_exception(outcome.thrown);
  if (outcome.result != hip::hipSuccess) {
    take_answer(ready_[done_ - first_ready_], calls[outcome.done], outcome.result);
  }
}

void change::run_one(deadline& stop) {
  using clock = std::chrono::steady_clock;
  const auto& next = plan_.rows->rows[done_];
  const auto began = plan_.timed ? clock::now() : clock::time_point{};
  const auto retries = plan_.timed ? hip::runtime::retries_of_this_thread() : 0;
  const auto note = [&] {
    if (!plan_.timed) return;
    const auto nanoseconds = [](clock::duration time) {
      return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
    };
    times_[done_] = {nanoseconds(began.time_since_epoch()), nanoseconds(clock::now() - began),
                     hip::runtime::retries_of_this_thread() - retries};
  };
  try {
    next.makes() ? make(next) : alter(next);
  } catch (...) {
    note();
    throw;
  }
  note();
  ++done_;
  stop.call_made();
}

bool change::needs_another(device_id wanted) const {
  return wanted.value >= 0 && !(current_ && device_ == wanted);
}

/// One scope for all rows that follow one another on a device: asking which one is current costs a call each
/// time.
void change::make_current(device_id wanted) {
  if (!needs_another(wanted)) return;
  current_.reset();
  current_.emplace(runtime(), wanted);
  device_ = wanted;
}

/// The new snapshot's, of the old one's.
void change::take_place() noexcept {
  decision_ = decision::commit;
  of_->current_ = after_;
  of_->leases()->settle();
  for (auto* const one : log_) one->clear();
  leave(std::move(old_ones_));
}

void change::roll_back() noexcept {
  if (home_->is_parents()) {
    if (undecided()) decision_ = decision::roll_back;
    if (of_->change_ == this) of_->change_ = nullptr;
    return;
  }
  std::vector<binding> bound;  // let go behind the lock
  const std::lock_guard lock(home_->mutex);
  bound = roll_back_locked();
}

std::vector<binding> change::roll_back_locked() noexcept {
  if (!undecided()) return {};
  decision_ = decision::roll_back;
  for (const auto& [address, size_bytes] : barred_) of_->leases()->unbar(address, size_bytes);
  for (auto* const one : new_ones_.owners) {
    if (one->done()) one->clear();  // what was to be registered is the caller's again
  }
  leave(std::move(new_ones_));
  return std::exchange(bound_, {});
}

/// The end, with what it leaves over.
void change::leave(retirement&& over) noexcept {
  of_->change_ = nullptr;
  of_->retired_->add_locked(std::move(over));
}

}  // namespace hipplan
