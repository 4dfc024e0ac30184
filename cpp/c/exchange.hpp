// One message to a holder and one from it, in packets as docs/peers.md describes them.
#pragma once

#include <string>
#include <vector>

#include "descriptor.hpp"
#include "find_holder.hpp"

namespace hipplan::c {

// As in packets.py; tests/c compares them.
inline constexpr std::size_t text_max = std::size_t{64} << 20;
inline constexpr std::size_t descriptors_max = std::size_t{1} << 20;
inline constexpr std::size_t packet_bytes = std::size_t{1} << 16;
inline constexpr std::size_t batch = 253;

/// A number as JSON has it: with a point, whatever the locale of the process is.
[[nodiscard]] std::string decimal(double number);

struct message {
  std::string text;
  std::vector<descriptor> descriptors;
};

/// Sends a request, which has no descriptors, and returns the answer. holder: for errors. timeout_s: for how
/// long the caller waits, for errors. Throws failure (HP455): the holder has ended, broke the protocol, or is
/// late; and std::bad_alloc.
[[nodiscard]] message exchange(const descriptor& link, const std::string& holder, const std::string& request,
                               double timeout_s, time_point until);

}  // namespace hipplan::c
