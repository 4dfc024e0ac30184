// How many processors this process may use.
#pragma once

namespace hipplan {

/// Those of the calling thread's affinity, as many as the process's control group pays for; at least 1.
[[nodiscard]] unsigned usable_processors();

}  // namespace hipplan
