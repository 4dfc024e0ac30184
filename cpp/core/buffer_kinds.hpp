// The list of the kinds of buffers: of each the row that makes it, with its owner.
#pragma once

#include <variant>

#include "buffers/coherent.hpp"
#include "buffers/device.hpp"
#include "buffers/managed.hpp"
#include "buffers/pinned.hpp"
#include "buffers/registered.hpp"

namespace hipplan {

template <class... Members>
struct types {
  static constexpr std::size_t size = sizeof...(Members);
};

using buffer_rows = types<create_device_buffer, create_coherent_buffer, create_pinned_buffer, register_buffer,
                          create_managed_buffer>;

/// The variants with the members of lists, those of buffers between the others.
template <class First, class Rows, class Last>
struct joined;
template <class... First, class... Rows, class... Last>
struct joined<types<First...>, types<Rows...>, types<Last...>> {
  using rows = std::variant<First..., Rows..., Last...>;
  using owners = std::variant<First..., typename Rows::owner..., Last...>;
};

/// A buffer of which its row and its size are enough to make it.
template <class Row>
concept plain_buffer = requires(const Row& row, typename Row::owner& empty) { row.make(empty); };

}  // namespace hipplan
