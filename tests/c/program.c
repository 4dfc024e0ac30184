/* Does with hipplan.h what the lines of its standard input say, and answers each with one line or more and a dot.
   Compiled as C11 and as C++17. It links no HIP library. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <hipplan.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int (*copies)(void*, const void*, size_t, int);

static hipplan_layout* layout = NULL;
static hipplan_layout* first = NULL; /* while a second one is attached */
static hipplan_error error;

static int packets_left = 0; /* until this process is killed; 0: it is not */

static void count_packet(void) {
  if (packets_left && !--packets_left) raise(SIGKILL);
}

/* The library's calls come here, too: those of a program go before those of the C library. */
ssize_t send(int link, const void* bytes, size_t size, int flags) {
  count_packet();
  return syscall(SYS_sendto, link, bytes, size, flags, NULL, 0);
}

ssize_t recvmsg(int link, struct msghdr* message, int flags) {
  count_packet();
  return syscall(SYS_recvmsg, link, message, flags);
}

static int report(int code) {
  printf("%d\n%s\n", code, code ? error.text : "");
  if (code != error.code) printf("the code in the error is %d\n", error.code);
  return code;
}

static const hipplan_object* found(const char* name) {
  const hipplan_object* object = NULL;
  return report(hipplan_find(layout, name, &object, &error)) ? NULL : object;
}

static void show(const hipplan_object* object) {
  size_t i;
  printf("%s %s %p %llu %s %d %d %s", object->name, object->kind, object->address, (unsigned long long)object->bytes,
         object->dtype, object->device, object->writable, object->uuid);
  for (i = 0; i < object->rank; ++i) printf(" %llu", (unsigned long long)object->shape[i]);
  printf("\n");
}

/* The function of the HIP library that has this name. */
static void* function(const char* name) {
  void* library = dlopen(getenv("LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
  return library ? dlsym(library, name) : NULL;
}

/* hipMemcpy, with a device current that may access the memory. */
static copies copier(int device) {
  copies copy = NULL;
  int (*set_device)(int) = NULL;
  void* symbol = function("hipSetDevice");
  memcpy(&set_device, &symbol, sizeof set_device);
  if (!set_device || set_device(device)) return NULL;
  symbol = function("hipMemcpy");
  memcpy(&copy, &symbol, sizeof copy);
  return copy;
}

static void move(const char* name, int writes) {
  const hipplan_object* object = found(name);
  const copies copy = object ? copier(object->device) : NULL;
  unsigned char* bytes;
  unsigned long long sum = 0;
  size_t i;
  int result;
  if (!object || !copy) {
    printf("no object or no copy\n");
    return;
  }
  bytes = (unsigned char*)malloc(object->bytes);
  if (writes) memset(bytes, 0x5A, object->bytes);
  result = writes ? copy(object->address, bytes, object->bytes, 4) : copy(bytes, object->address, object->bytes, 4);
  for (i = 0; i < object->bytes; ++i) sum = sum * 31 + bytes[i];
  free(bytes);
  printf("%d %llu\n", result, sum);
}

static void fail(const char* rules) {
  int (*arm)(const char*) = NULL;
  void* symbol = function("hipsim_fail");
  memcpy(&arm, &symbol, sizeof arm);
  printf("%d\n", arm ? arm(rules) : -1);
}

static void fired(void) {
  uint64_t (*count)(void) = NULL;
  void* symbol = function("hipsim_fail_fired");
  memcpy(&count, &symbol, sizeof count);
  printf("%llu\n", count ? (unsigned long long)count() : 0ULL);
}

static void ledger(void) {
  size_t (*tell)(char*, size_t) = NULL;
  void* symbol = function("hipsim_ledger");
  char* text;
  size_t size;
  memcpy(&tell, &symbol, sizeof tell);
  if (!tell) return;
  size = tell(NULL, 0) + 1;
  text = (char*)malloc(size);
  tell(text, size);
  printf("%s\n", text);
  free(text);
}

static void* one_thread(void* name) {
  hipplan_layout* own = NULL;
  hipplan_options options = HIPPLAN_OPTIONS;
  const hipplan_object* object = NULL;
  size_t failed = 0;
  int i;
  options.addresses = "any";
  for (i = 0; i < 10; ++i) {
    if (hipplan_attach((const char*)name, &options, &own, NULL)) {
      ++failed;
      continue;
    }
    failed += hipplan_find(own, "model.b", &object, NULL) != 0 || hipplan_lost(own) != NULL;
    failed += hipplan_detach(own, NULL) != 0;
  }
  return (void*)failed;
}

static void in_threads(char* name) {
  pthread_t threads[4];
  void* failed;
  size_t all = 0, i;
  for (i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, one_thread, name);
  for (i = 0; i < 4; ++i) {
    pthread_join(threads[i], &failed);
    all += (size_t)failed;
  }
  printf("%zu\n", all);
}

static void in_child(const char* name) {
  int status = 0;
  pid_t child;
  fflush(stdout);
  child = fork();
  if (child == 0) {
    const hipplan_object* object;
    hipplan_layout* other;
    report(hipplan_find(layout, "model.b", &object, &error));
    report(hipplan_attach(name, NULL, &other, &error));
    printf("%s\n", hipplan_lost(layout));
    report(hipplan_detach(layout, &error));
    fflush(stdout);
    _exit(0);
  }
  waitpid(child, &status, 0);
  printf("%d\n", status);
}

int main(void) {
  char line[4096];
  setlocale(LC_ALL, "");
  while (fgets(line, sizeof line, stdin)) {
    char* word[8] = {NULL};
    int count = 0;
    char* next = strtok(line, " \n");
    for (; next && count < 8; next = strtok(NULL, " \n")) word[count++] = next;
    if (!count) continue;
    if (!strcmp(word[0], "attach")) { /* NAME ACCESS ADDRESSES TIMEOUT LIBRARY, - for none */
      hipplan_options options = HIPPLAN_OPTIONS;
      first = layout;
      if (word[2] && strcmp(word[2], "-")) options.access = word[2];
      if (word[3] && strcmp(word[3], "-")) options.addresses = word[3];
      if (word[4]) options.timeout_s = atof(word[4]);
      if (word[5]) options.library = word[5];
      report(hipplan_attach(word[1] && strcmp(word[1], "-") ? word[1] : NULL, word[2] ? &options : NULL, &layout, &error));
    } else if (!strcmp(word[0], "list")) {
      size_t i;
      for (i = 0; i < hipplan_count(layout); ++i) show(hipplan_at(layout, i));
      if (hipplan_at(layout, i)) printf("one too many\n");
    } else if (!strcmp(word[0], "find")) {
      const hipplan_object* object = found(word[1]);
      if (object) show(object);
    } else if (!strcmp(word[0], "read") || !strcmp(word[0], "write")) {
      move(word[1], word[0][0] == 'w');
    } else if (!strcmp(word[0], "lost")) {
      const char* lost = hipplan_lost(layout);
      printf("%s\n", lost ? lost : "no");
    } else if (!strcmp(word[0], "fail")) { /* RULES, or nothing to end it */
      fail(word[1]);
    } else if (!strcmp(word[0], "number")) { /* as this process's locale writes it */
      printf("%.1f\n", 0.5);
    } else if (!strcmp(word[0], "fired")) {
      fired();
    } else if (!strcmp(word[0], "ledger")) {
      ledger();
    } else if (!strcmp(word[0], "threads")) {
      in_threads(word[1]);
    } else if (!strcmp(word[0], "fork")) {
      in_child(word[1]);
    } else if (!strcmp(word[0], "kill")) { /* NUMBER of the packet before which this process is killed */
      packets_left = atoi(word[1]);
    } else if (!strcmp(word[0], "detach")) {
      report(hipplan_detach(layout, &error));
      layout = NULL;
    } else if (!strcmp(word[0], "wrong")) {
      hipplan_options options = HIPPLAN_OPTIONS;
      const hipplan_object* object;
      hipplan_layout* other = layout;
      report(hipplan_attach("w", NULL, NULL, &error));
      report(hipplan_find(NULL, "model", &object, &error));
      report(hipplan_find(layout, NULL, &object, &error));
      report(hipplan_find(layout, "model", NULL, &error));
      options.size = 8;
      report(hipplan_attach("w", &options, &other, &error));
      printf("%s\n", other || hipplan_attach("w", &options, &other, NULL) != HIPPLAN_WRONG_USE ? "not refused" : "");
      report(hipplan_detach(NULL, &error));
      printf("%s %zu\n%s\n", hipplan_version(), hipplan_count(NULL), hipplan_lost(NULL));
    }
    printf(".\n");
    fflush(stdout);
  }
  return 0;
}
