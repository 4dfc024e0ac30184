// The functions of hipplan.h: no exception leaves them.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "attached.hpp"
#include "failure.hpp"
#include "hipplan.h"

struct hipplan_layout {
  explicit hipplan_layout(const hipplan::c::wish& wished) : memory(wished) {}
  hipplan::c::attached memory;
};

namespace {

using hipplan::c::failure;
using hipplan::c::refuse;

constexpr double timeout_max_s = 86400.0;  // as requested.py has it

int put(hipplan_error* error, int code, std::string_view text) noexcept {
  if (!error) return code;
  auto size = std::min(text.size(), sizeof error->text - 1);
  // Not within a letter of UTF-8.
  while (size < text.size() && size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  error->code = code;
  std::memcpy(error->text, text.data(), size);
  error->text[size] = '\0';
  return code;
}

template <class Work>
int guarded(hipplan_error* error, Work work) noexcept {
  try {
    work();
    return put(error, HIPPLAN_OK, "");
  } catch (const failure& why) {
    try {
      return put(error, why.about.code, why.about.text());
    } catch (const std::bad_alloc&) {
      return put(error, why.about.code, why.what());
    }
  } catch (const std::bad_alloc&) {
    return put(error, HIPPLAN_NO_MEMORY, "error[HP459]: this process has no host memory left");
  } catch (const std::exception& why) {
    return put(error, HIPPLAN_NO_MEMORY, why.what());
  } catch (...) {
    return put(error, HIPPLAN_NO_MEMORY, "error[HP459]: this process has no host memory left");
  }
}

/// One of two words, or what NULL stands for.
std::string word(const char* given, const char* field, const char* first, const char* second,
                 const char* otherwise) {
  if (!given) return otherwise;
  const std::string text = given;
  if (text != first && text != second) {
    refuse(std::string("hipplan_options.") + field + " is NULL, \"" + first + "\" or \"" + second + "\"",
           "it is \"" + text.substr(0, 40) + "\"");
  }
  return text;
}

hipplan::c::wish wish_of(const char* name, const hipplan_options* given) {
  hipplan::c::wish out;
  const char* const holder = name ? name : std::getenv("HIPPLAN_HOLDER");
  if (!holder || !*holder) {
    throw failure(
        {HIPPLAN_NO_HOLDER,
         "no holder was named",
         {},
         "hipplan_attach(NAME, ...), or the environment variable HIPPLAN_HOLDER, which `hipplan attach` sets",
         {}});
  }
  out.holder = holder;
  if (!given) return out;
  if (given->size < sizeof(hipplan_options)) {
    refuse("hipplan_options.size is too small", {}, "hipplan_options options = HIPPLAN_OPTIONS;");
  }
  out.access = word(given->access, "access", "r", "rw", "plan");
  out.addresses = word(given->addresses, "addresses", "same", "any", "same");
  out.library = given->library ? given->library : "";
  if (!(given->timeout_s >= 0 && given->timeout_s <= timeout_max_s)) {
    refuse("hipplan_options.timeout_s is a number of seconds from 0 to 86400");
  }
  if (given->timeout_s > 0) out.timeout_s = given->timeout_s;
  return out;
}

}  // namespace

int hipplan_attach(const char* name, const hipplan_options* options, hipplan_layout** layout,
                   hipplan_error* error) {
  if (layout) *layout = nullptr;
  return guarded(error, [&] {
    if (!layout) refuse("hipplan_attach() needs a place for the layout");
    *layout = std::make_unique<hipplan_layout>(wish_of(name, options)).release();
  });
}

int hipplan_find(const hipplan_layout* layout, const char* name, const hipplan_object** object,
                 hipplan_error* error) {
  if (object) *object = nullptr;
  return guarded(error, [&] {
    if (!layout || !name || !object)
      refuse("hipplan_find() needs a layout, a name and a place for the object");
    if (layout->memory.is_of_parent()) refuse("a layout of the parent process: a forked child cannot use it");
    *object = layout->memory.find(name);
    if (!*object) {
      refuse("the layout has no '" + std::string(name).substr(0, 200) + "'", {},
             "hipplan_at() lists its objects");
    }
  });
}

size_t hipplan_count(const hipplan_layout* layout) { return layout ? layout->memory.objects().size() : 0; }

const hipplan_object* hipplan_at(const hipplan_layout* layout, size_t number) {
  return number < hipplan_count(layout) ? &layout->memory.objects()[number] : nullptr;
}

const char* hipplan_lost(hipplan_layout* layout) { return layout ? layout->memory.lost() : "ended"; }

int hipplan_detach(hipplan_layout* layout, hipplan_error* error) {
  const std::unique_ptr<hipplan_layout> owned(layout);
  return guarded(error, [&] {
    if (owned) owned->memory.detach();
  });
}

const char* hipplan_version(void) { return HIPPLAN_VERSION; }
