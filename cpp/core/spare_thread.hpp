// Threads that stay when their work is done, for work that is short and comes again.
//
// To start a thread and have it run takes 50 to 200 us on virtual machines, to wake one a third of it. There
// are as many as were busy at once.
#pragma once

#include <functional>

namespace hipplan {

/// Runs a job, which must not throw, on a thread that is free, else on a new one. Throws std::system_error or
/// std::bad_alloc where none can be had. A forked child has none of its parent's.
void run_on_spare_thread(std::function<void()> job);

/// A job is coming within some microseconds: wakes a thread that is free, if there is one, to wait for it
/// awake. Being woken up takes 20 to 170 us on virtual machines, which pass while the job gets ready.
void expect_job_for_spare_thread();

}  // namespace hipplan
