// The list of quirks: known defects of real releases, off unless a profile switches them on.
#include "profile.hpp"

namespace hipsim {

const std::vector<quirk_description>& known_quirks() {
  static const std::vector<quirk_description> quirks = {
      {"map_failure_hidden",
       "hipMemMap returns Success whatever happened (up to 7.2); the failure shows at hipMemSetAccess"},
      {"set_access_sums_in_heap_order",
       "hipMemSetAccess adds the sizes of the reservation's pieces in the order of heap addresses, and "
       "refuses a "
       "`size` that no sum meets; here each that some order would not meet (7.0 to 7.2, rocm-systems 2516)"},
      {"unmap_size_unchecked",
       "hipMemUnmap with a wrong size returns Success and drops a reference (6.2 to 6.4)"},
      {"unmap_pieces_leaks",
       "hipMemUnmap over several pieces leaves the reservation in use (ROCR-Runtime 285, before 7.0)"},
      {"address_free_forgets",
       "hipMemAddressFree of a range in use fails and drops the record all the same: it can never be freed "
       "(all)"},
      {"reserve_ignores_alignment", "hipMemAddressReserve gives any page for any alignment (all)"},
      {"free_blocks_first",
       "hipMemAddressReserve ignores the address that it is asked for while freed addresses fit (CUDA)"},
      {"set_access_takes_others_away",
       "hipMemSetAccess for one device takes the rights of all others on the piece away (6.1, 6.2)"},
      {"peer_access_for_all",
       "hipDeviceEnablePeerAccess opens the peer's memory to every device linked to it, for ever (6.1, 6.2)"},
      {"peer_access_opens_mappings",
       "hipDeviceEnablePeerAccess opens mappings of the peer's memory, made while no device had peer access "
       "to "
       "it, and what lies behind them without a hole, to every device linked to it, for reading and writing, "
       "for "
       "ever, each once (7.0 to 7.2)"},
      {"create_on_current_device", "hipMemCreate takes the memory of the current device (7.1 to 10.x)"},
      {"free_memory_with_reservation",
       "memory of unmapped, released pieces comes back when the reservation is freed (ROCm 6021)"},
      {"import_by_pointer",
       "hipMemImportFromShareableHandle takes a pointer to the descriptor alone (6.2 to 7.0, where the other "
       "crashes)"},
      {"import_by_value",
       "hipMemImportFromShareableHandle takes the descriptor itself alone (7.2 and later, perhaps 7.1)"},
      {"export_repeats_first",
       "hipMemExportToShareableHandle fails once the first descriptor it gave is closed (7.14.0, "
       "rocm-systems "
       "8440)"},
      {"import_needs_descriptor",
       "hipMemSetAccess fails once the descriptor of an import is closed (7.14.0, rocm-systems 8440)"},
      {"host_access_to_imports_fails",
       "hipMemSetAccess for the host fails on imported memory (7.15, rocm-systems 11185)"},
      {"free_interior_pointer", "hipFree of an interior pointer frees the whole allocation (all releases)"},
  };
  return quirks;
}

}  // namespace hipsim
