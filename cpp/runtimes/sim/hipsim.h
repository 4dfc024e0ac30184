/* The simulator's own interface, for tests and tools: what HIP has no call for.
 *
 * A program finds these with dlsym on the loaded library; AMD's library does not have them. All functions may
 * be called from any thread. Those that return int return 0 on success; otherwise hipsim_last_message()
 * returns the reason, for the calling thread.
 */
#ifndef HIPSIM_H
#define HIPSIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Replaces the machine by the one a profile text describes (docs/simulator.md); null or empty: the default.
 * 1: the text is invalid. 2: objects of the present machine are alive. */
int hipsim_configure(const char* profile_text);

/* The reason of the calling thread's last failure in one of these functions; "" if there was none. */
const char* hipsim_last_message(void);

/* Everything alive as one JSON object. Writes at most `capacity` bytes, the final zero included, and returns
 * the bytes the whole text needs without it, as snprintf does. */
size_t hipsim_ledger(char* out, size_t capacity);

/* Arms fault rules such as "hipMemMap@3=hipErrorOutOfMemory"; null or empty disarms. Counting restarts. */
int hipsim_fail(const char* rules);

/* Calls made to fail, and calls counted, since the rules were armed; 0 in a forked child. */
uint64_t hipsim_fail_fired(void);
uint64_t hipsim_fail_calls(void);

/* Appends one JSON line per call to a file; null or empty stops. */
int hipsim_trace(const char* path);

/* Checks whether a kernel on `device` could access the bytes: mode 1 reads, 2 writes, 3 both. Returns 0, or
 * the code of the GPU fault (hipErrorIllegalAddress, 700); hipsim_last_message() then explains it. It moves
 * no bytes. */
enum { HIPSIM_READ = 1, HIPSIM_WRITE = 2 };
int hipsim_touch(int device, const void* address, size_t bytes, int mode);

/* Sets how much of a device's memory other processes use, which hipMemGetInfo and allocations see. */
int hipsim_set_in_use(int device, uint64_t bytes);

/* Names and meanings of the quirks a profile may switch on, one "name: meaning" per line. */
const char* hipsim_quirks(void);

#ifdef __cplusplus
}
#endif

#endif
