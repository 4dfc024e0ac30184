// What each kind of row does.
#include <algorithm>
#include <stdexcept>
#include <type_traits>

#include "change.hpp"
#include "transfer.hpp"

namespace hipplan {
namespace {

template <class... Kinds>
struct overloaded : Kinds... {
  using Kinds::operator()...;
};
template <class... Kinds>
overloaded(Kinds...) -> overloaded<Kinds...>;

}  // namespace

void change::make(const row& next) {
  auto& out = table_[next.slot]->what;
  const auto empty = [&]<class Kind, class... More>(std::type_identity<Kind>, More&&... more) -> Kind& {
    // The constructor may throw; the move into the slot may not.
    Kind made(runtime(), next.name, std::forward<More>(more)...);
    return out.emplace<Kind>(std::move(made));
  };
  std::visit(
      overloaded{
          [&](const link_peer& link) {
            empty(std::type_identity<peer_link>{}, link.device, link.peer).make();
          },
          [&](const create_allocation& create) {
            if (create.properties.location_type == hip::hipMemLocationTypeDevice) {
              make_current({create.properties.location_id});
            }
            auto& memory = empty(std::type_identity<allocation>{}, create.size_bytes, create.properties);
            if (!holdings_->take_spare(memory)) memory.make();
          },
          [&](const import_allocation& given) {
            const auto at = std::ranges::find(bound_, done_, &binding::row);
            if (at == bound_.end())
              throw std::invalid_argument("nothing is bound to '" + next.name.text() + "'");
            if (given.device.value >= 0) make_current(given.device);
            empty(std::type_identity<allocation>{}, given.size_bytes, allocation_properties{})
                .import(at->descriptor);
          },
          [&](const map_memory& map) {
            const auto& memory = get<allocation>(map.memory);
            empty(std::type_identity<mapping>{}, get<address_range>(map.range), map.offset_bytes,
                  map.size_bytes)
                .make(memory);
          },
          [&](const create_stream& create) { empty(std::type_identity<stream>{}).make(create.device); },
          [&](const create_device_buffer& create) {
            make_current(create.device);
            empty(std::type_identity<device_buffer>{}, create.device, create.size_bytes).make();
          },
          [&](const register_buffer& given) {
            const auto at = std::ranges::find(bound_, done_, &binding::row);
            auto memory = given.bound          ? (at == bound_.end() ? nullptr : at->memory)
                          : given.file.empty() ? map_anonymous(given.size_bytes, given.numa_node, given.pages)
                                               : map_file(given.file, given.size_bytes, given.read_only);
            if (!memory) throw std::invalid_argument("nothing is bound to '" + next.name.text() + "'");
            empty(std::type_identity<registered_buffer>{}, std::move(memory)).make(given.device, given.flags);
          },
          [&]<plain_buffer Row>(const Row& create) {
            create.make(empty(std::type_identity<typename Row::owner>{}, create.size_bytes));
          },
          [](const auto&) { throw std::logic_error("a row that makes nothing"); },
      },
      next.what);
}

/// Returns whether the range is reserved; else the next call goes on.
bool change::reserve(const row& next, const reserve_range& what, deadline& stop, time until, time gives_up) {
  if (!search_) search_.emplace(runtime(), next.name, state_->name, what, *table_[next.slot], leftovers_);
  if (!search_->go_on(stop, until, gives_up)) return false;
  search_.reset();
  return true;
}

void change::alter(const row& next) {
  const auto queue = [&](slot_id slot) {
    return slot == no_slot ? hip::hipStream_t{} : get<stream>(slot).get();
  };
  std::visit(
      overloaded{
          [&](const set_rights& access) {
            const auto& what = get<mapping>(next.slot);
            if (!access.before) return what.set_access(access.now, access.together);
            // With several devices it is undone even if the call fails: HIP sets one device's right after
            // another, and keeps those before the one that it refuses.
            logged(
                what.shared_name(), "the access of " + what.identify(),
                [&what, rows = plan_.rows, &access] { what.set_access(*access.before, access.together); },
                access.now.size() > 1, [&] { what.set_access(access.now, access.together); });
          },
          [&](const unmap_memory& unmap) {
            auto& what = get<mapping>(next.slot);
            if (what.empty()) throw std::out_of_range("a mapping that is not mapped cannot be unmapped");
            const auto back = [&what, &memory = get<allocation>(unmap.memory), rows = plan_.rows, &unmap] {
              // Not empty: an earlier try mapped it, and then found no memory to report that the rights
              // failed.
              if (what.empty()) what.make(memory);
              if (!unmap.before.empty()) what.set_access(unmap.before, unmap.together);
            };
            logged(what.shared_name(), what.identify() + " (to be mapped back)", back, false,
                   [&] { what.unmap_for_restore(); });
          },
          [&](const advise_range& advice) {
            const auto& what = get<managed_buffer>(next.slot);
            const auto advise = [&calls = runtime(), &what, rows = plan_.rows,
                                 &advice](const auto& advice_on) {
              what.advise(calls, advice.offset_bytes, advice.size_bytes, advice_on.first, advice_on.second);
            };
            if (!advice.before) return advise(advice.now);
            logged(
                what.shared_name(), "the advice of " + what.identify(),
                [advise, &advice] { advise(*advice.before); }, false, [&] { advise(advice.now); });
          },
          [&](const prefetch_range& prefetch) {
            const scoped_device current(runtime(), prefetch.on);
            get<managed_buffer>(next.slot).prefetch(runtime(), prefetch.offset_bytes, prefetch.size_bytes,
                                                    prefetch.device, queue(prefetch.stream));
          },
          [&](const attach_stream& attach) {
            const scoped_device current(runtime(), attach.on);
            get<managed_buffer>(next.slot).attach(runtime(), queue(attach.stream), attach.flags);
          },
          [&](const await_stream& await) {
            const scoped_device current(runtime(), await.on);
            const auto subject = [&] {
              return next.slot == no_slot ? "the null stream of " + text(await.on)
                                          : get<stream>(next.slot).identify();
            };
            runtime().check(runtime().hipStreamSynchronize(queue(next.slot)), "hipStreamSynchronize",
                            [&] { return std::pair(subject(), std::string()); });
          },
          [&](const copy_memory& copy) {
            copy_peer(runtime(), get<mapping>(next.slot).address(), copy.device,
                      get<mapping>(copy.source).address(), copy.source_device, copy.size_bytes);
          },
          [](const auto&) { throw std::logic_error("a row that alters nothing"); },
      },
      next.what);
}

/// Makes a call that alters an object, after storing its undo. keeps_failed: a call that fails may have
/// altered something in spite of the error.
template <class Call>
void change::logged(plan_name name, std::string identity, std::function<void()> back, bool keeps_failed,
                    Call call) {
  auto& entry = log_.at(logged_++)->what;
  alteration undo(std::move(name), std::move(identity), std::move(back));
  entry.emplace<alteration>(std::move(undo));
  try {
    call();
  } catch (...) {
    if (!keeps_failed) entry.emplace<std::monostate>();
    throw;
  }
}

}  // namespace hipplan
