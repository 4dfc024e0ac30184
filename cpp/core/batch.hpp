// Many steps in one go: creating, mapping and granting access by the thousand, with no interpreter between
// the driver calls.
//
// A step of a batch is the same call for the same journal as by itself; only the way there is shorter. All
// that it needs besides is got ready before the first call: after a driver call the processor's caches hold
// the driver's own, and whatever is done then costs many times its usual.
#pragma once

#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "journal.hpp"

namespace hipplan {

struct create_step {
  plan_name name;
  std::size_t size_bytes;
  allocation_properties properties;
};

struct map_step {
  plan_name name;
  entry_id range;
  std::size_t offset_bytes;
  entry_id memory;
  std::size_t size_bytes;
};

struct access_step {
  entry_id mapping;                               ///< 0: what the step before maps
  std::span<const hip::hipMemAccessDesc> rights;  ///< the caller's: thousands of mappings often have the same
  bool together;                                  ///< for all that is mapped in the range
};

struct buffer_step {
  plan_name name;
  device_id device;
  std::size_t size_bytes;
};

using batch_step = std::variant<create_step, map_step, access_step, buffer_step>;

/// How far a batch came.
struct batch_outcome {
  std::vector<entry_id> made;  ///< of each step that was done; 0 where it made nothing
  std::optional<hip::hip_error> failure;
};

/// Makes the steps in order, at least one and then as many as fit until a time; stops at the first failure.
/// Throws what is no driver error (std::out_of_range, std::bad_alloc); what was made is the journal's.
[[nodiscard]] batch_outcome run_batch(journal& owner, std::vector<batch_step> steps,
                                      std::chrono::steady_clock::time_point until);

}  // namespace hipplan
