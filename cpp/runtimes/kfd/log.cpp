#include "log.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace kfdsim {
namespace {

int verbosity() {
  static const int level = [] {
    const char* text = std::getenv("KFDSIM_VERBOSE");
    return text ? static_cast<int>(std::strtol(text, nullptr, 10)) : 0;
  }();
  return level;
}

std::FILE* file() {
  static std::FILE* const opened = [] {
    const char* path = std::getenv("KFDSIM_LOG");
    std::FILE* const named = path && *path ? std::fopen(path, "ae") : nullptr;
    return named ? named : stderr;
  }();
  return opened;
}

}  // namespace

void log(int level, const char* format, ...) {
  if (level > verbosity()) return;
  const int error = errno;  // the caller still needs it
  char text[1024];          // written in one piece: other processes may write to the same file
  const int head = std::snprintf(text, sizeof text, "kfdsim[%d]: ", static_cast<int>(getpid()));
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text + head, sizeof text - static_cast<std::size_t>(head), format, arguments);
  va_end(arguments);
  std::fprintf(file(), "%s\n", text);
  std::fflush(file());
  errno = error;
}

}  // namespace kfdsim
