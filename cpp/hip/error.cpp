#include "error.hpp"

#include "intercept.hpp"

namespace hip {
namespace {

std::string message(std::uint32_t code, const std::string& call, const std::string& subject,
                    const std::string& arguments) {
  return call + "(" + arguments + ") -> " + error_name(code) + " (" + std::to_string(code) + ") for " +
         subject;
}

}  // namespace

hip_error::hip_error(std::uint32_t code, std::string call, std::string subject, std::string arguments)
    : std::runtime_error(message(code, call, subject, arguments)),
      code_(code),
      name_(error_name(code)),
      call_(std::move(call)),
      subject_(std::move(subject)),
      arguments_(std::move(arguments)) {}

}  // namespace hip
