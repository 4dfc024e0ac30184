#include "find_holder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "failure.hpp"
#include "sha256.hpp"

namespace hipplan::c {
namespace {

constexpr auto busy = std::chrono::seconds(5);
/// The id that the kernel reports for users of other namespaces without an id in this one.
constexpr uid_t overflow_user = 65534;

[[noreturn]] void in_doubt(const std::string& name, std::string why, std::string hint) {
  throw failure(
      {456, "whether there is a holder '" + name + "' is not certain", std::move(why), std::move(hint), {}});
}

bool is_ours(const struct stat& status) {
  return S_ISDIR(status.st_mode) && status.st_uid == geteuid() && !(status.st_mode & 0077);
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

/// The folders that this user's processes use for sockets, as folders.py lists them.
std::vector<std::string> socket_folders(const std::string& only) {
  if (!only.empty()) return {only};
  const auto user = std::to_string(geteuid());
  std::vector<std::string> out;
  for (const auto& folder : {environment("XDG_RUNTIME_DIR"), "/run/user/" + user}) {
    const auto path = folder + "/hipplan";
    if (folder.starts_with('/') && std::ranges::find(out, path) == out.end()) out.push_back(path);
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> shared(opendir("/tmp"), closedir);
  std::vector<std::string> found;
  while (const auto* const entry = shared ? readdir(shared.get()) : nullptr) {
    const std::string name = entry->d_name;
    struct stat status {};
    if (!name.starts_with("hipplan-" + user + "-") || lstat(("/tmp/" + name).c_str(), &status) != 0) continue;
    if (status.st_uid == geteuid()) found.push_back("/tmp/" + name);
  }
  std::ranges::sort(found);
  out.insert(out.end(), found.begin(), found.end());
  return out;
}

/// A connection to the socket at an address; none if no process listens there.
descriptor connected(const std::string& name, std::string_view address, time_point until) {
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  if (address.size() >= sizeof where.sun_path) return {};
  std::memcpy(where.sun_path, address.data(), address.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
  descriptor link(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!link) {
    const char* const limit = errno == EMFILE ? " (ulimit -n)" : "";
    no_answer(name, "this process gets no socket: " + std::string(std::strerror(errno)) + limit);
  }
  until = std::min(until, std::chrono::steady_clock::now() + busy);
  while (connect(link.get(), reinterpret_cast<const sockaddr*>(&where), length) != 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return {};
    if (std::chrono::steady_clock::now() > until) no_answer(name, "it accepts no connection");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ucred other{};
  socklen_t size = sizeof other;
  const bool is_known = getsockopt(link.get(), SOL_SOCKET, SO_PEERCRED, &other, &size) == 0;
  if (!is_known || other.uid != geteuid() || other.uid == overflow_user) {
    in_doubt(name,
             "process " + std::to_string(other.pid) + " of user " + std::to_string(other.uid) +
                 " has taken this name",
             "choose another name");
  }
  return link;
}

/// The same for a socket in an open folder, whose path may be too long for an address.
descriptor connected_in(const std::string& name, const descriptor& folder, const std::string& file,
                        time_point until) {
  return connected(name, "/proc/self/fd/" + std::to_string(folder.get()) + "/" + file, until);
}

descriptor at_path(const std::string& path, time_point until) {
  const auto slash = path.rfind('/');
  const auto parent = slash == 0 ? "/" : path.substr(0, slash);
  const descriptor folder(open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  return folder ? connected_in(path, folder, path.substr(slash + 1), until) : descriptor();
}

/// The address of the lock of a name, as guard.py makes it. only: HIPPLAN_SOCKETS.
std::string lock_of(const std::string& name, std::string only) {
  using namespace std::string_literals;
  const auto prefix = "\0hipplan-held-"s + std::to_string(geteuid()) + "-";
  if (only.empty()) return prefix + "-" + name;
  while (only.size() > 1 && only.ends_with('/')) only.pop_back();
  const auto slash = only.rfind('/') + 1;  // a relative path begins at 0
  const auto parent = slash > 1 ? only.substr(0, slash - 1) : slash ? "/"s : "."s;
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(parent.c_str(), nullptr), std::free);
  auto path = real ? std::string(real.get()) : parent;
  if (!path.ends_with('/')) path += '/';
  return prefix + sha256(path + only.substr(slash)).substr(0, 16) + "-" + name;
}

void require_valid(const std::string& name) {
  const auto is_plain = [](char letter) {
    return (letter >= '0' && letter <= '9') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= 'a' && letter <= 'z');
  };
  const bool is_valid = !name.empty() && name.size() <= 64 && is_plain(name.front()) &&
                        std::ranges::all_of(name, [&](char letter) {
                          return is_plain(letter) || letter == '_' || letter == '-';
                        });
  if (is_valid) return;
  const auto why = "'" + name.substr(0, 80) +
                   "' is not 1 to 64 letters, digits, - and _, the first of them a letter or a digit";
  throw failure({451, "this name is not valid for a holder", why, {}, {}});
}

/// Why a folder of this user that exists is not searched; empty if it may be, or does not exist.
std::string doubt(const std::string& path, bool is_only) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 || is_ours(status)) return {};
  if (!is_only && status.st_uid != geteuid()) return {};
  return path + " is not a folder that only this user can enter";
}

}  // namespace

descriptor find_holder(const std::string& name, time_point until) {
  std::vector<std::string> doubts;
  std::string hint = "if it is yours, move it away, or allow only yourself: chmod 700";
  if (name.find('/') != name.npos) {
    if (auto link = at_path(name, until)) return link;
  } else {
    require_valid(name);
    const auto only = environment("HIPPLAN_SOCKETS");
    if (!only.empty() && only.front() != '/') {
      doubts.push_back("HIPPLAN_SOCKETS is not an absolute path: " + only);
      hint = "give it an absolute path";
    }
    for (const auto& path : socket_folders(only)) {
      const descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      struct stat status {};
      if (folder && fstat(folder.get(), &status) == 0 && is_ours(status)) {
        if (auto link = connected_in(name, folder, "held-" + name, until)) return link;
      } else if (auto why = doubt(path, !only.empty()); !why.empty()) {
        doubts.push_back(std::move(why));
      }
    }
    if (auto link = connected(name, lock_of(name, only), until)) return link;
  }
  if (!doubts.empty()) in_doubt(name, doubts.front(), hint);
  throw failure({452,
                 "there is no holder '" + name.substr(0, 200) + "'",
                 {},
                 "hipplan up PLAN --name NAME starts one; hipplan ps shows those that run",
                 {}});
}

}  // namespace hipplan::c
