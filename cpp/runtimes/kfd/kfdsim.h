/* The interface of the stand-in driver for tests and tools: what the kernel's has no call for.
 *
 * A program that runs on it finds these with dlsym(RTLD_DEFAULT, ...). All may be called from any thread;
 * those that return int return 0 on success. docs/amd.md describes the variables KFDSIM_*.
 */
#ifndef KFDSIM_H
#define KFDSIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Everything alive as one JSON object. Writes at most `capacity` bytes, the final zero included, and returns
 * the bytes the whole text needs without it, as snprintf does. */
size_t kfdsim_ledger(char* out, size_t capacity);

/* Arms fault rules such as "alloc_memory_of_gpu@3=ENOMEM"; null or empty disarms. Counting restarts. Returns
 * 1 if they are invalid; kfdsim_last_message() then returns the reason. */
int kfdsim_fail(const char* rules);
const char* kfdsim_last_message(void);

/* Calls made to fail, and calls counted, since the rules were armed. */
uint64_t kfdsim_fail_fired(void);
uint64_t kfdsim_fail_calls(void);

/* The names that a rule can have, one a line. */
const char* kfdsim_calls(void);

/* Page faults of GPUs so far (counted with KFDSIM_ON_FAULT=count; without it the first ends the process), and
 * launches of the program's own kernels, which are not run. */
uint64_t kfdsim_page_faults(void);
uint64_t kfdsim_kernels_not_run(void);

/* How many bytes of a GPU's memory are in use. */
uint64_t kfdsim_used(int gpu);

/* How many bytes of host memory a process may take in all: this machine has no more, whatever the profile
 * says. */
uint64_t kfdsim_backing_limit(void);

#ifdef __cplusplus
}
#endif

#endif
