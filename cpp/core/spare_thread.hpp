// A pool of threads for short jobs that repeat.
//
// Starting a thread takes 50 to 200 us on virtual machines, waking one takes a third of that. The pool grows
// to as many threads as were busy at once.
#pragma once

#include <functional>

namespace hipplan {

/// Runs a job, which must not throw, on an idle thread, else on a new one. Throws std::system_error or
/// std::bad_alloc if no thread can be started. A forked child has none of its parent's threads.
void run_on_spare_thread(std::function<void()> job);

/// Announces a job within some microseconds: an idle thread, if any, wakes up and polls for it. Waking takes
/// 20 to 170 us on virtual machines; so it happens while the caller prepares the job.
void expect_job_for_spare_thread();

}  // namespace hipplan
