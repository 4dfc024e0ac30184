// enter FOLDER COMMAND...: runs the command where the C and C++ libraries of FOLDER lie over this machine's own, in a mount
// namespace of its own. As root, or as any user if the kernel allows user namespaces.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const kSystem = "/usr/lib/x86_64-linux-gnu";
static const char *const kEntered = "HIPPLAN_AMD_ENTERED"; // a command in here may start another

static int give_up(const char *what) {
  fprintf(stderr, "enter: %s: %s\n", what, strerror(errno));
  return 125;
}

static int write_text(const char *path, const char *text) {
  int file = open(path, O_WRONLY);
  if (file < 0) return -1;
  ssize_t done = write(file, text, strlen(text));
  close(file);
  return done == (ssize_t)strlen(text) ? 0 : -1;
}

// A namespace of users in which this user may mount, and is still who he was.
static int become_able_to_mount(void) {
  char map[64];
  uid_t user = geteuid();
  gid_t group = getegid();
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS)) return -1;
  snprintf(map, sizeof map, "%u %u 1", user, user);
  if (write_text("/proc/self/uid_map", map) || write_text("/proc/self/setgroups", "deny")) return -1;
  snprintf(map, sizeof map, "%u %u 1", group, group);
  return write_text("/proc/self/gid_map", map);
}

static int lay_over(const char *folder, const char *name) {
  char from[PATH_MAX], to[PATH_MAX], real[PATH_MAX];
  struct stat status;
  snprintf(from, sizeof from, "%s/%s", folder, name);
  if (lstat(from, &status) || !S_ISREG(status.st_mode)) return 0;
  // libstdc++ carries its version in the file's name: the link to it does not.
  snprintf(to, sizeof to, "%s/%s", kSystem, strncmp(name, "libstdc++", 9) ? name : "libstdc++.so.6");
  if (!realpath(to, real)) return 0; // the machine does not have it
  return mount(from, real, NULL, MS_BIND, NULL);
}

int main(int count, char **arguments) {
  if (count < 3) {
    fprintf(stderr, "usage: enter FOLDER COMMAND...\n");
    return 125;
  }
  if (!getenv(kEntered)) {
    if (unshare(CLONE_NEWNS) && become_able_to_mount()) return give_up("no mount namespace");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) return give_up("the namespace cannot be made private");
    DIR *folder = opendir(arguments[1]);
    if (!folder) return give_up(arguments[1]);
    for (struct dirent *entry; (entry = readdir(folder));)
      if (lay_over(arguments[1], entry->d_name)) return give_up(entry->d_name);
    closedir(folder);
    setenv(kEntered, "1", 1);
  }
  execvp(arguments[2], arguments + 2);
  return give_up(arguments[2]);
}
