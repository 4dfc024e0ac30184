// One object that a layout owns, of any kind; or an alteration that a roll back undoes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "address_range.hpp"
#include "allocation.hpp"
#include "alteration.hpp"
#include "buffer_kinds.hpp"
#include "mapping.hpp"
#include "peer_link.hpp"
#include "stream.hpp"

namespace hipplan {

struct held {
  /// Empty before its row has run, and after it was freed.
  using owner = joined<types<std::monostate, allocation, address_range, mapping>, buffer_rows,
                       types<stream, peer_link, alteration>>::owners;

  owner what;
  std::uint64_t made = 0;  ///< place in the order of creation; objects are freed in reverse

  /// Whether it owns a driver object now.
  // NOLINTNEXTLINE(bugprone-exception-escape): never valueless: no assignment to it can throw
  [[nodiscard]] bool full() const noexcept {
    return std::visit(
        [](const auto& object) {
          if constexpr (requires { object.empty(); }) return !object.empty();
          return false;
        },
        what);
  }
  /// Whether nothing is left to do: it owns nothing, and no failure is unreported.
  // NOLINTNEXTLINE(bugprone-exception-escape): as above
  [[nodiscard]] bool done() const noexcept {
    return std::visit(
        [](const auto& object) {
          if constexpr (requires { object.has_unreported_failure(); })
            return object.empty() && !object.has_unreported_failure();
          return true;
        },
        what);
  }
  // NOLINTNEXTLINE(bugprone-exception-escape): as above
  void clear() noexcept { what.emplace<std::monostate>(); }
};

/// The objects that one change makes, in the order of creation; never resized, so that pointers stay valid.
using segment = std::vector<held>;
using segment_ptr = std::shared_ptr<segment>;

}  // namespace hipplan
