/* Preloaded into a Python process: memory is refused where a test says so, and one call is made after all others. */
#define _GNU_SOURCE
#include <errno.h>
#include <execinfo.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* block, size_t size);

static __thread long until_refused;
static __thread int refused_for_ever;
static volatile int refuse_others;
static void *spared_begin, *spared_end;
static void (*last_call)(void*, long, int, void*);
static void* last_argument;

/* The nth request of this thread from now on; 0: none. How many were left before the one that was to be refused. */
long refuse(long nth) {
  const long left = until_refused;
  until_refused = nth;
  refused_for_ever = 0;
  return left;
}

/* The nth request of this thread from now on and all that follow it. */
void refuse_from(long nth) {
  until_refused = nth;
  refused_for_ever = 1;
}

/* A library whose requests are neither counted nor refused, also those that others make for it. */
void spare(void* begin, void* end) {
  void* once[1];
  backtrace(once, 1); /* it needs memory the first time */
  spared_begin = begin;
  spared_end = end;
}

static int is_spared(void) {
  void* callers[48];
  if (!spared_end) return 0;
  const int count = backtrace(callers, 48);
  for (int i = 0; i < count; ++i) {
    if (callers[i] >= spared_begin && callers[i] < spared_end) return 1;
  }
  return 0;
}

/* Who waits for memory that stays refused need not: nobody else gives any back. */
int clock_nanosleep(clockid_t clock, int flags, const struct timespec* until, struct timespec* left) {
  if (refused_for_ever && until_refused == 1) return 0;
  return (int)syscall(SYS_clock_nanosleep, clock, flags, until, left) ? errno : 0;
}

int nanosleep(const struct timespec* time, struct timespec* left) {
  const int code = clock_nanosleep(CLOCK_REALTIME, 0, time, left);
  if (code) errno = code;
  return code ? -1 : 0;
}

static int is_refused(void) {
  if (until_refused <= 0 || is_spared()) return 0;
  if (until_refused > 1) {
    --until_refused;
    return 0;
  }
  if (!refused_for_ever) until_refused = 0;
  errno = ENOMEM;
  return 1;
}

/* Every malloc of all threads but the first that is no larger than a pointer: more is needed to start a thread. */
void refuse_small_ones_of_other_threads(int on) { refuse_others = on; }

void* malloc(size_t size) {
  if (is_refused()) return NULL;
  if (refuse_others && size <= sizeof(void*) && syscall(SYS_gettid) != getpid()) return NULL;
  return __libc_malloc(size);
}

void* calloc(size_t count, size_t size) { return is_refused() ? NULL : __libc_calloc(count, size); }

void* realloc(void* block, size_t size) { return is_refused() ? NULL : __libc_realloc(block, size); }

/* As an allocator gives back its last block when the process ends, behind every library that came later. */
void free_at_the_end(void (*give_back)(void*, long, int, void*), void* block) {
  last_call = give_back;
  last_argument = block;
}

static void at_the_end(void) {
  if (last_call) last_call(last_argument, 0, 0, NULL);
}

__attribute__((constructor)) static void before_all_others(void) { atexit(at_the_end); }
