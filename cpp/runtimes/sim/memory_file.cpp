#include "memory_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <string_view>
#include <system_error>
#include <vector>

#include "address_space.hpp"

namespace hipsim {
namespace {

constexpr std::uint64_t pool_bytes = std::uint64_t{1} << 62;
constexpr std::string_view name_prefix = "hipsim-";

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

[[noreturn]] void throw_transfer_error(const char* what) {
  if (errno == EFAULT) throw bad_host_pointer(what);
  if (errno == ENOSPC || errno == ENOMEM) throw std::bad_alloc();  // the real machine is out of memory
  throw_errno(what);
}

// A lock on the first byte, owned by the open file, not by a process: it ends with the last descriptor in any
// process, which nothing else reports.
struct flock first_byte(short type) {
  struct flock out {};
  out.l_type = type;
  out.l_whence = SEEK_SET;
  out.l_len = 1;
  return out;
}

void mark_as_shared(int descriptor) {
  auto mark = first_byte(F_RDLCK);
  (void)fcntl(descriptor, F_OFD_SETLK, &mark);  // if refused, the memory counts as free too early
}

int new_file(const std::string& owner, std::uint64_t bytes) {
  struct rlimit limit {};
  // Above the limit, ftruncate would end the process with SIGXFSZ.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
    throw std::system_error(EFBIG, std::generic_category(),
                            "simulated memory needs files without a limit on their size (ulimit -f)");
  }
  return memfd_create((std::string(name_prefix) + owner).c_str(), MFD_CLOEXEC);
}

}  // namespace

memory_file::memory_file(const std::string& owner, std::uint64_t bytes)
    : descriptor_(new_file(owner, bytes)) {
  if (descriptor_ < 0) throw_errno("memfd_create");
  if (ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) {
    const int error = errno;
    close(descriptor_);
    errno = error;
    throw_errno("ftruncate");
  }
}

std::shared_ptr<memory_file> memory_file::duplicate(int descriptor) {
  const int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) throw_errno("dup");
  mark_as_shared(copy);  // a descriptor opened through /proc has no lock yet
  return std::shared_ptr<memory_file>(new memory_file(copy));
}

std::shared_ptr<memory_file> memory_file::open(const shared_file& name) {
  const auto link = "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.descriptor);
  const int opened = ::open(link.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) return nullptr;
  std::shared_ptr<memory_file> file(new memory_file(opened));
  if (owner_of_memory_file(opened).empty() || file->identity() != name.identity) return nullptr;
  mark_as_shared(opened);
  return file;
}

shared_file memory_file::name() const { return {getpid(), descriptor_, identity()}; }

memory_file::~memory_file() { close(descriptor_); }

std::uint64_t memory_file::bytes() const {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) throw_errno("fstat");
  return static_cast<std::uint64_t>(status.st_size);
}

std::uint64_t memory_file::identity() const {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) throw_errno("fstat");
  return static_cast<std::uint64_t>(status.st_ino);  // memory files share one kernel-internal mount
}

bool memory_file::is_behind(int descriptor) const {
  struct stat status {};
  return fstat(descriptor, &status) == 0 && status.st_ino == identity() &&
         !owner_of_memory_file(descriptor).empty();
}

int memory_file::share() const {
  const auto link = "/proc/self/fd/" + std::to_string(descriptor_);
  const int out = ::open(link.c_str(), O_RDWR | O_CLOEXEC);  // another open file, with a lock of its own
  if (out >= 0) mark_as_shared(out);
  return out;
}

bool memory_file::is_shared() const {
  auto mark = first_byte(F_WRLCK);
  return fcntl(descriptor_, F_OFD_GETLK, &mark) == 0 && mark.l_type != F_UNLCK;
}

void memory_file::read(std::uint64_t offset, void* to, std::size_t bytes) const {
  auto* out = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const auto done = pread(descriptor_, out, bytes, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw_transfer_error("the CPU cannot write the destination");
    if (done == 0) throw std::runtime_error("a shared memory file was truncated");
    out += done;
    offset += static_cast<std::uint64_t>(done);
    bytes -= static_cast<std::size_t>(done);
  }
}

void memory_file::write(std::uint64_t offset, const void* from, std::size_t bytes) {
  const auto* in = static_cast<const std::byte*>(from);
  while (bytes > 0) {
    const auto done = pwrite(descriptor_, in, bytes, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw_transfer_error("the CPU cannot read the source");
    in += done;
    offset += static_cast<std::uint64_t>(done);
    bytes -= static_cast<std::size_t>(done);
  }
}

std::uint64_t memory_file::written_from(std::uint64_t offset, std::uint64_t end) const noexcept {
  const auto found = lseek(descriptor_, static_cast<off_t>(offset), SEEK_DATA);
  if (found < 0) return errno == ENXIO ? end : offset;  // if the kernel does not report it: assume all of it
  return std::min(static_cast<std::uint64_t>(found), end);
}

std::uint64_t memory_file::unwritten_from(std::uint64_t offset, std::uint64_t end) const noexcept {
  // SEEK_HOLE would walk all written pages behind `end`, too: of a device whose memory is full, at each copy.
  auto page = offset;
  do {
    page += page_bytes - page % page_bytes;
  } while (page < end && written_from(page, end) == page);
  return std::min(page, end);
}

bool memory_file::discard(std::uint64_t offset, std::uint64_t bytes) noexcept {
  return fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                   static_cast<off_t>(bytes)) == 0;
}

std::string owner_of_memory_file(int descriptor) {
  char target[128];
  const auto link = "/proc/self/fd/" + std::to_string(descriptor);
  const auto length = readlink(link.c_str(), target, sizeof target);
  if (length <= 0) return {};
  const std::string_view name(target, static_cast<std::size_t>(length));
  const std::string prefix = "/memfd:" + std::string(name_prefix);
  if (!name.starts_with(prefix)) return {};
  return std::string(name.substr(prefix.size(), name.find(' ') - prefix.size()));  // " (deleted)" follows
}

void extent::move_to_own_file(const std::string& owner) {
  auto file = std::make_shared<memory_file>(owner, bytes_);
  std::vector<std::byte> bounce(std::min<std::uint64_t>(bytes_, bounce_bytes));
  const auto end = offset_ + bytes_;
  for (auto at = file_->written_from(offset_, end); at < end; at = file_->written_from(at, end)) {
    const auto step = std::min<std::uint64_t>(file_->unwritten_from(at, end) - at, bounce.size());
    file_->read(at, bounce.data(), step);
    file->write(at - offset_, bounce.data(), step);
    at += step;
  }
  *this = extent(std::move(file), 0, bytes_);
}

extent memory_pool::take(std::uint64_t bytes) {
  if (!file_) file_ = std::make_shared<memory_file>(owner_, pool_bytes);
  extent out(file_, next_, bytes);
  next_ += bytes;
  return out;
}

}  // namespace hipsim
