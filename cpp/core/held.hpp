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

/// Memory for the objects that changes make, one change behind the other, in the order of creation.
///
/// An object never moves, and its place is not used again, because an old snapshot may still have it. Several
/// changes share a segment, and snapshots drop the segments of which nothing is left: so thousands of small
/// changes do not make the next one slower. The layout's mutex protects the numbers.
struct segment {
  explicit segment(std::size_t size) : owners(size) {}

  [[nodiscard]] std::size_t room() const noexcept { return owners.size() - used; }
  /// Whether no later snapshot has an object in it.
  [[nodiscard]] bool nothing_left() const noexcept { return gone == used; }
  /// Whether a change has made this object in it.
  [[nodiscard]] bool has(const held& owner) const noexcept {
    return used != 0 && owner.made - owners.front().made < used;  // what is older wraps around
  }

  std::vector<held> owners;  ///< never resized where a snapshot has one of them
  std::size_t used = 0;      ///< the first ones, which changes have
  std::size_t gone = 0;      ///< those of them that are in no later snapshot
};
using segment_ptr = std::shared_ptr<segment>;

}  // namespace hipplan
