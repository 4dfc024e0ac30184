#include "attached.hpp"

#include <array>
#include <stdexcept>
#include <utility>

#include "core/change.hpp"
#include "core/queries.hpp"
#include "core/readings.hpp"
#include "core/with_memory.hpp"
#include "core/words.hpp"
#include "failure.hpp"
#include "hip_library.hpp"

namespace hipplan::c {
namespace {

std::string hexadecimal_of(const std::string& bytes) {
  static constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (const auto letter : bytes) {
    const auto byte = static_cast<unsigned char>(letter);
    out += digits[byte >> 4];
    out += digits[byte & 15];
  }
  return out;
}

/// A value of JSON. text: without signs that JSON escapes.
std::string in_quotes(const std::string& text) { return '"' + text + '"'; }

std::string request(const std::string& want, const wish& wished, const std::string& more = {}) {
  return "{\"want\": " + in_quotes(want) + ", \"number\": " + std::to_string(request_number) +
         ", \"timeout_s\": " + decimal(wished.timeout_s) + ", \"hipplan\": " + in_quotes(HIPPLAN_VERSION) +
         more + "}";
}

/// What this process sees, as rows_for_c.py describes it. Throws hip_error.
std::string seen(hip::runtime& runtime, int count, const wish& wished) {
  std::string devices;
  std::string links;
  for (int device = 0; device < count; ++device) {
    auto pci = pci_bus_id(runtime, {device});
    if (pci.find_first_not_of("0123456789abcdefABCDEF:.") != pci.npos) pci.clear();
    devices += (device ? ", [" : "[") + in_quotes(hexadecimal_of(device_uuid(runtime, {device}))) + ", " +
               in_quotes(pci) + "]";
    for (int peer = 0; peer < count; ++peer) {
      if (peer == device || !can_access_peer(runtime, {device}, {peer})) continue;
      links += (links.empty() ? "[" : ", [") + std::to_string(device) + ", " + std::to_string(peer) + "]";
    }
  }
  return ", \"access\": " + in_quotes(wished.access) +
         ", \"sees\": {\"form\": 1, \"family\": " + in_quotes(family_of(runtime)) +
         ", \"addresses\": " + in_quotes(wished.addresses) + ", \"devices\": [" + devices +
         "], \"links\": [" + links + "]}";
}

/// What was freed, and what was not.
struct undone {
  undo_report report;
  std::string failures;  ///< lines
};

std::string call_of(const hip::hip_error& error) {
  return error.call() + "(" + error.arguments() + ") -> " + error.name() + " (" +
         std::to_string(error.code()) + ")";
}

/// Frees all that is retired, after a wait for the devices. Throws std::bad_alloc if there is no memory for 5
/// s.
undone undo(retired& what) {
  undone out;
  if (!what.any()) return out;
  for (const auto& named : what.to_wait_for()) {
    try {
      with_memory([&] { synchronize(what.runtime(), named.second); });
    } catch (const hip::hip_error& error) {
      out.failures += "device '" + named.first + "' is not idle: " + call_of(error) + "\n";
    }
  }
  while (
      with_memory([&] { return what.free_some(out.report, std::chrono::steady_clock::time_point::max()); })) {
  }
  for (const auto& leak : out.report.leaks) {
    out.failures += "not released: " + leak.identity + ": " + call_of(leak.error) + "\n";
  }
  return out;
}

std::string summary(const undone& what) {
  const auto leaks = what.report.leaks.size();
  return "undone: " + std::to_string(what.report.freed) + " of " + std::to_string(what.report.freed + leaks) +
         " objects released, " + (leaks ? std::to_string(leaks) + " leaked" : "nothing leaked") + "\n" +
         what.failures;
}

[[noreturn]] void differs(const row& of, const wrong_reading& wrong) {
  const bool is_right = std::holds_alternative<set_rights>(of.what);
  const auto shown = [is_right](std::uint64_t value) {
    return is_right ? text_of(access_words, value) : hexadecimal(static_cast<std::uintptr_t>(value));
  };
  throw failure({402,
                 "'" + of.name.text() + "' differs from the plan: " + (is_right ? "access" : "mapped piece"),
                 {},
                 {},
                 "- desired: " + shown(wrong.desired) + "\n+ current: " + shown(wrong.current) + "\n"});
}

/// Reads everything back. Throws hip_error, failure (HP402).
void check(const snapshot& made, const answer& given) {
  std::vector<device_id> devices;
  devices.reserve(given.devices.size());
  for (const auto& device : given.devices) devices.push_back({device.ordinal});
  const auto have = read_back(made, *given.rows, devices);
  if (have.wrong) differs(given.rows->rows[have.wrong->row], *have.wrong);
  for (const auto& next : given.rows->rows) {
    const auto* const range = std::get_if<reserve_range>(&next.what);
    if (!range || range->alignment_bytes == 0 || made.address(next.slot) % range->alignment_bytes == 0)
      continue;
    const auto what = "address modulo " + std::to_string(range->alignment_bytes);
    throw failure({402, "'" + next.name.text() + "' differs from the plan: " + what, {}, {}, {}});
  }
}

/// Why the change stopped. row: the one under way; null while reading back.
diagnostic reason(const hip::hip_error& error, const row* next, std::size_t done, std::size_t all) {
  auto where = std::string("step: read back\n");
  auto what = "reading back failed for " + error.subject();
  std::string why;
  if (next) {
    where = "step: " + std::to_string(done + 1) + " of " + std::to_string(all) + "\n";
    what = error.call() + " failed for '" + next->name.text() + "'";
    why = error.subject();
  }
  return {401, what, why, {}, "driver: " + call_of(error) + "\n" + where};
}

diagnostic reason(const address_taken& error, const row& next) {
  const auto& range = std::get<reserve_range>(next.what);
  return {404, "'" + next.name.text() + "' cannot be at " + hexadecimal(range.wanted), error.what(),
          "free what is there, or set hipplan_options.addresses to \"any\"",
          "the driver placed it at " + hexadecimal(error.address) + "\n"};
}

}  // namespace

attached::attached(const wish& wished) {
  using seconds = std::chrono::duration<double>;
  const auto until =
      std::chrono::steady_clock::now() +
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(seconds(wished.timeout_s));
  const auto& holder = wished.holder;
  runtime_ = open_library(wished.library, [&] {
    const auto link = find_holder(holder, until);
    return read_family(exchange(link, holder, request("family", wished), wished.timeout_s, until).text,
                       holder);
  });
  int count = 0;
  std::string see;
  try {
    count = device_count(*runtime_);
    if (count == 0) throw failure({407, "no device was found", runtime_->path() + " says so", {}, {}});
    see = seen(*runtime_, count, wished);
  } catch (const hip::hip_error& error) {
    throw failure({407, "the runtime cannot describe this machine: " + error.name(), error.what(), {}, {}});
  }
  link_ = std::make_unique<connection>(find_holder(holder, until));
  const auto received =
      exchange(link_->link(), holder, request("attach", wished, see), wished.timeout_s, until);
  answer_ = read_answer(received.text, holder, count, received.descriptors.size());
  try {
    map(received, until);
  } catch (const std::logic_error& error) {  // rows that do not fit together
    no_answer(holder, std::string("the answer is not in order: ") + error.what());
  }
  list_objects();
}

void attached::map(const message& received, time_point until) {
  auto leases = std::make_shared<lease_book>();
  auto state = std::make_shared<layout_state>(runtime_, plan_name(answer_.plan));
  auto freed_later = std::make_shared<retired>(std::move(state), std::move(leases));
  retired::devices waited_for;
  for (const auto& device : answer_.devices) waited_for.emplace_back(device.name, device_id{device.ordinal});
  freed_later->set_devices(std::move(waited_for));
  memory_ = std::make_shared<holdings>(freed_later);
  const auto& rows = answer_.rows->rows;
  std::vector<binding> bound;
  bound.reserve(answer_.imports.size());
  for (std::size_t i = 0; i < answer_.imports.size(); ++i) {
    bound.push_back({answer_.imports[i], received.descriptors[i].get(), nullptr});
  }
  change_plan plan;
  plan.rows = answer_.rows;
  plan.slots = answer_.slots;
  change making(memory_, std::move(plan));
  making.bind(std::move(bound));
  const auto roll_back = [&](diagnostic why) {
    making.roll_back();
    why.notes += summary(undo(*freed_later));
    throw failure(std::move(why));
  };
  try {
    while (making.done() < rows.size()) making.advance(rows.size(), time_point::max(), until);
    check(*making.new_snapshot(), answer_);
    (void)making.commit([] { return std::shared_ptr<const void>(); });
  } catch (const hip::hip_error& error) {
    roll_back(reason(error, making.failed() ? &rows[making.done()] : nullptr, making.done(), rows.size()));
  } catch (const address_taken& error) {
    roll_back(reason(error, rows[making.done()]));
  } catch (const failure& error) {
    roll_back(error.about);
  }
}

void attached::list_objects() {
  const auto now = memory_->current();
  objects_.reserve(answer_.objects.size());
  for (const auto& object : answer_.objects) {
    const char* uuid = "";
    for (const auto& device : answer_.devices) {
      if (device.ordinal == object.device) uuid = device.uuid.c_str();
    }
    objects_.push_back({object.name.c_str(), object.kind.c_str(),
                        pointer_at(now->address(object.range) + object.offset), object.size_bytes,
                        object.dtype.c_str(), object.shape.size(), object.shape.data(), object.device, uuid,
                        object.writable ? 1 : 0});
    by_name_.emplace(object.name, &objects_.back());
  }
}

const hipplan_object* attached::find(std::string_view name) const {
  const auto place = by_name_.find(name);
  return place == by_name_.end() ? nullptr : place->second;
}

void attached::detach() {
  (void)with_memory([&] { return memory_->close(true); });
  const auto result = undo(*memory_->retired_objects());
  link_.reset();
  if (!result.failures.empty()) {
    throw failure(
        {403, "something could not be released", {}, "it is freed when the process ends", result.failures});
  }
}

}  // namespace hipplan::c
