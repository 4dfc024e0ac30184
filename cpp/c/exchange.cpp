#include "exchange.hpp"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "failure.hpp"

namespace hipplan::c {
namespace {

/// One exchange; its functions throw failure (HP455).
class talk {
 public:
  talk(const descriptor& link, const std::string& holder, double timeout_s, time_point until)
      : link_(link), holder_(holder), timeout_s_(timeout_s), until_(until) {}

  void send(std::string_view packet) {
    while (::send(link_.get(), packet.data(), packet.size(), MSG_NOSIGNAL) < 0) {
      if (errno == EAGAIN) {
        wait(POLLOUT);
      } else if (errno != EINTR) {
        no_answer(holder_, std::strerror(errno));
      }
    }
  }

  message receive() {
    while (!complete()) take(next());
    return std::move(out_);
  }

 private:
  [[nodiscard]] bool complete() const {
    return has_head_ && out_.text.size() == length_ && out_.descriptors.size() == count_;
  }

  void wait(short events) {
    pollfd one{link_.get(), events, 0};
    const auto left =
        std::chrono::duration<double, std::milli>(until_ - std::chrono::steady_clock::now()).count();
    if (left <= 0) late();
    // In steps, because poll() takes an int.
    if (poll(&one, 1, static_cast<int>(std::min(std::ceil(left), 60'000.0))) < 0 && errno != EINTR)
      no_answer(holder_, std::strerror(errno));
  }

  [[noreturn]] void late() const {
    if (has_heard_) no_answer(holder_, "it did not answer in time");
    throw failure({455,
                   "the holder '" + holder_ + "' does not answer",
                   "it gave no sign of life for " + decimal(timeout_s_) + " s",
                   "hipplan down " + holder_ + " --force ends it",
                   {}});
  }

  /// The next packet, without descriptors, which it adds to the message.
  std::string_view next() {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(batch * sizeof(int))> beside;
    while (true) {
      if (std::chrono::steady_clock::now() > until_) late();  // however many packets come
      iovec piece{buffer_.data(), buffer_.size()};
      msghdr head{};
      head.msg_iov = &piece;
      head.msg_iovlen = 1;
      head.msg_control = beside.data();
      head.msg_controllen = beside.size();
      const auto size = recvmsg(link_.get(), &head, MSG_CMSG_CLOEXEC);
      if (size < 0 && errno == EINTR) continue;
      if (size < 0 && errno == EAGAIN) {
        wait(POLLIN);
        continue;
      }
      if (size < 0) no_answer(holder_, std::strerror(errno));
      keep_descriptors(head);
      if (head.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        no_answer(holder_, "a packet was truncated: this process may be out of file descriptors (ulimit -n)");
      }
      has_heard_ = true;
      return {buffer_.data(), static_cast<std::size_t>(size)};
    }
  }

  void keep_descriptors(msghdr& head) {
    for (auto* data = CMSG_FIRSTHDR(&head); data; data = CMSG_NXTHDR(&head, data)) {
      if (data->cmsg_level != SOL_SOCKET || data->cmsg_type != SCM_RIGHTS) continue;
      const auto count = (data->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      std::array<int, batch> numbers{};
      std::memcpy(numbers.data(), CMSG_DATA(data), count * sizeof(int));
      std::array<descriptor, batch> owned;  // before anything can throw
      for (std::size_t i = 0; i < count; ++i) owned[i] = descriptor(numbers[i]);
      for (std::size_t i = 0; i < count; ++i) out_.descriptors.push_back(std::move(owned[i]));
    }
    if (out_.descriptors.size() > count_) no_answer(holder_, "it sent more than it announced");
  }

  void take(std::string_view packet) {
    if (packet.empty() || packet == "closed") no_answer(holder_, "it has ended");
    if (packet == "L") return;  // a sign of life
    const auto kind = packet.front();
    packet.remove_prefix(1);
    if (kind == 'H' && !has_head_ && packet.size() == 8) {
      begin(packet);
    } else if (kind == 'J' && has_head_ && packet.size() <= length_ - out_.text.size()) {
      out_.text += packet;
    } else if (kind == 'F' && has_head_) {
      send("A");
    } else {
      no_answer(holder_, "it sent an unexpected message");
    }
  }

  void begin(std::string_view sizes) {
    std::array<std::uint32_t, 2> numbers{};
    std::memcpy(numbers.data(), sizes.data(), sizes.size());
    length_ = ntohl(numbers[0]);
    count_ = ntohl(numbers[1]);
    if (length_ > text_max || count_ > descriptors_max) no_answer(holder_, "the message is too long");
    has_head_ = true;
  }

  const descriptor& link_;
  const std::string& holder_;
  double timeout_s_;
  time_point until_;
  std::vector<char> buffer_ = std::vector<char>(packet_bytes + 1);
  message out_;
  bool has_head_ = false;
  bool has_heard_ = false;
  std::size_t length_ = 0;
  std::size_t count_ = 0;
};

}  // namespace

std::string decimal(double number) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr};
}

message exchange(const descriptor& link, const std::string& holder, const std::string& request,
                 double timeout_s, time_point until) {
  talk with(link, holder, timeout_s, until);
  const std::array<std::uint32_t, 2> sizes{htonl(static_cast<std::uint32_t>(request.size())), 0};
  std::string packet(1, 'H');
  packet.append(reinterpret_cast<const char*>(sizes.data()), sizeof sizes);
  with.send(packet);
  for (std::size_t at = 0; at < request.size(); at += packet_bytes) {
    packet.assign(1, 'J').append(request, at, packet_bytes);
    with.send(packet);
  }
  return with.receive();
}

}  // namespace hipplan::c
