// One object that a layout owns, of whichever kind; or an alteration of one that a roll back takes back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "address_range.hpp"
#include "allocation.hpp"
#include "alteration.hpp"
#include "buffer.hpp"
#include "mapping.hpp"
#include "peer_link.hpp"
#include "stream.hpp"

namespace hipplan {

struct held {
  /// Empty before its row, and after it was given back.
  using owner = std::variant<std::monostate, allocation, address_range, mapping, device_buffer, pinned_buffer,
                             registered_buffer, managed_buffer, stream, peer_link, alteration>;

  owner what;
  std::uint64_t made = 0;  ///< its place in the order in which the layout made things; given back in reverse

  /// Owns an object of the driver's now.
  // NOLINTNEXTLINE(bugprone-exception-escape): never valueless: nothing throws while it is put in
  [[nodiscard]] bool full() const noexcept {
    return std::visit(
        [](const auto& one) {
          if constexpr (requires { one.empty(); }) return !one.empty();
          return false;
        },
        what);
  }
  /// Nothing is left to do about it: it owns nothing, and no failure is untold.
  // NOLINTNEXTLINE(bugprone-exception-escape): as above
  [[nodiscard]] bool done() const noexcept {
    return std::visit(
        [](const auto& one) {
          if constexpr (requires { one.untold(); }) return one.empty() && !one.untold();
          return true;
        },
        what);
  }
  // NOLINTNEXTLINE(bugprone-exception-escape): as above
  void clear() noexcept { what.emplace<std::monostate>(); }
};

/// What one change makes, side by side in the order of making; never resized, so that pointers into it stay.
using segment = std::vector<held>;
using segment_ptr = std::shared_ptr<segment>;

}  // namespace hipplan
