/* Preloaded into a Python process: malloc refuses when it is told to, and one call is made after all others. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

void* __libc_malloc(size_t size);

static __thread long until_refused;
static volatile int refuse_others;
static void (*last_call)(void*, long, int, void*);
static void* last_argument;

/* The nth malloc of this thread from now on; 0: none. */
void refuse(long nth) { until_refused = nth; }

/* Every malloc of all threads but the first that is no larger than a pointer: more is needed to start a thread. */
void refuse_small_ones_of_other_threads(int on) { refuse_others = on; }

void* malloc(size_t size) {
  if (until_refused > 0 && --until_refused == 0) return NULL;
  if (refuse_others && size <= sizeof(void*) && syscall(SYS_gettid) != getpid()) return NULL;
  return __libc_malloc(size);
}

/* As an allocator gives back its last block when the process ends, behind every library that came later. */
void free_at_the_end(void (*give_back)(void*, long, int, void*), void* block) {
  last_call = give_back;
  last_argument = block;
}

static void at_the_end(void) {
  if (last_call) last_call(last_argument, 0, 0, NULL);
}

__attribute__((constructor)) static void before_all_others(void) { atexit(at_the_end); }
