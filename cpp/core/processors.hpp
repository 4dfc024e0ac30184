// How many processors this process may use.
#pragma once

namespace hipplan {

/// The number in the calling thread's affinity, limited by the cgroup's CPU quota; at least 1.
[[nodiscard]] unsigned usable_processors();

}  // namespace hipplan
