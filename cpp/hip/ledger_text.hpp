// The text of a ledger, for the simulator and the stand-in driver: JSON, and its file.
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace hip {

/// Just enough of a JSON writer: objects in a list, fields in an object.
class json_writer {
 public:
  void open(const char* key) { out_ += separator() + '"' + key + "\": [", first_ = true; }
  void close() { out_ += ']', first_ = false; }
  void begin() { out_ += separator() + '{', first_ = true; }
  void end() { out_ += '}', first_ = false; }
  template <class Number>
  void number(const char* key, Number value) {
    field(key, std::to_string(value));
  }
  void address(const char* key, std::uint64_t value) {
    char text[2 + 16 + 3];
    std::snprintf(text, sizeof text, "\"0x%llx\"", static_cast<unsigned long long>(value));
    field(key, text);
  }
  void text(const char* key, const char* value) { field(key, '"' + std::string(value) + '"'); }
  void flag(const char* key, bool value) { field(key, value ? "true" : "false"); }
  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  void field(const char* key, const std::string& value) { out_ += separator() + '"' + key + "\": " + value; }
  std::string separator() {
    const bool first = std::exchange(first_, false);
    return first ? "" : ", ";
  }
  std::string out_;
  bool first_ = true;
};

/// Appends a text in one piece, because other processes may append to the same file. Returns false, and
/// errno. It opens and closes by system calls: the stand-in driver replaces open() and close().
inline bool append_to_file(const char* path, std::string_view text) {
  const int file =
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (file < 0) return false;
  while (!text.empty()) {
    const auto done = write(file, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) break;
    text.remove_prefix(static_cast<std::size_t>(done));
  }
  const int error = errno;
  syscall(SYS_close, file);
  errno = error;
  return text.empty();
}

/// Writes a ledger, with the process's id, to the file that an environment variable names, or to stderr.
inline void write_ledger(const char* program, const char* variable, const std::string& ledger) {
  const char* const path = std::getenv(variable);
  if (!path) return;
  const auto line = "{\"pid\": " + std::to_string(getpid()) + ", " + ledger.substr(1) + '\n';
  if (std::strcmp(path, "stderr") == 0) {
    std::fputs(line.c_str(), stderr);
  } else if (!append_to_file(path, line)) {
    std::fprintf(stderr, "%s: %s: cannot write the ledger %s: %s\n", program, variable, path,
                 std::strerror(errno));
  }
}

}  // namespace hip
