// The library's log: lines on stderr, or in the file of KFDSIM_LOG.
#pragma once

namespace kfdsim {

/// Level 0 is always written, 1 and 2 with KFDSIM_VERBOSE=1 (what is refused) and 2 (everything).
[[gnu::format(printf, 2, 3)]] void log(int level, const char* format, ...);

}  // namespace kfdsim
