// The simulator's libamdhip64.so.5: it prints an error and exits with code 3.
//
// HIP 5.x has other struct layouts and enum values, so running such a program on this simulator would corrupt
// its memory silently. The library is linked to libhipsim, so that the loader can resolve the program's
// symbols and run this constructor, before the program's own code.
#include <unistd.h>

#include <cstring>

namespace {

constexpr int exit_code = 3;  // hipplan's "this machine or runtime cannot hold it"
constexpr char sentence[] =
    "hipsim: this program was built for libamdhip64.so.5; the simulator offers the ABI of HIP 6 and 7 only, "
    "so build it with ROCm 6.1 or later\n";

[[gnu::constructor]] void refuse() {
  (void)!write(STDERR_FILENO, sentence, std::strlen(sentence));
  _exit(exit_code);
}

}  // namespace
