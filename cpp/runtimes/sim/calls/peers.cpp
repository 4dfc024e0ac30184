// Peer access between devices, and their links.
#include "calls/support.hpp"

namespace hipsim::calls {
namespace {

bool is_peer(const machine& m, int device, int peer) {
  return m.is_device(peer) && peer != device && m.profile.linked(device, peer);
}

std::uint64_t linked_to(const machine& m, int owner) {
  std::uint64_t devices = 0;
  for (int device = 0; device < m.device_count(); ++device) {
    if (is_peer(m, device, owner)) devices |= std::uint64_t{1} << device;
  }
  return devices;
}

// Quirk peer_access_opens_mappings: what lies behind an opened piece without a hole is opened, too, whatever
// range and device it is of. Throws std::bad_alloc; then some stay closed.
void open_mappings(machine& m, int owner) {
  const auto linked = linked_to(m, owner);
  std::uintptr_t end = 0;
  for (auto& [address, piece] : m.mappings) {
    const bool first = !piece.opened && m.reported_device(piece) == owner;
    if (!first && address != end) continue;
    const auto device = m.memory_of(piece).device;
    const auto reached = device == host_device ? linked : linked & (linked_to(m, device) | 1ULL << device);
    auto changed = piece;  // stored only after update_cpu_view succeeds
    changed.readers |= reached;
    changed.writers |= reached;
    changed.opened |= first;
    m.update_cpu_view(address, changed);
    piece = changed;
    end = address + piece.bytes;
  }
}

constexpr std::uint32_t no_link = 0xFFFF'FFFF;  // AMD's library reports this without an error

// The numbers of hsa_amd_link_info_type_t. NVLink has none and is reported as XGMI.
std::uint32_t link_number(link_type type) { return type == link_type::pcie ? 2 : 4; }

}  // namespace

hipError_t hipDeviceCanAccessPeer(int* canAccessPeer, int device, int peer) {
  if (!canAccessPeer) return hipErrorInvalidValue;
  if (device == peer) {  // checked before the range: (99, 99) is not an error
    *canAccessPeer = 0;
    return hipSuccess;
  }
  const reading m;
  if (!m->is_device(device) || !m->is_device(peer)) return hipErrorInvalidDevice;
  *canAccessPeer = m->profile.linked(device, peer);
  return hipSuccess;
}

hipError_t hipDeviceEnablePeerAccess(int peer, unsigned int flags) {
  if (flags != 0) return hipErrorInvalidValue;
  writing m;
  const int device = current_device();
  if (!is_peer(*m, device, peer)) return hipErrorInvalidDevice;
  auto& peers = m->at(device).peers;
  const auto bit = std::uint64_t{1} << peer;
  if ((peers & bit) != 0) return hipErrorPeerAccessAlreadyEnabled;
  const bool for_all = m->quirk("peer_access_for_all");  // may throw std::bad_alloc, so before any change
  if (m->quirk("peer_access_opens_mappings")) open_mappings(*m, peer);
  peers |= bit;
  m->at(peer).open_to_links |= for_all;
  return hipSuccess;
}

hipError_t hipDeviceDisablePeerAccess(int peer) {
  writing m;
  const int device = current_device();
  if (!is_peer(*m, device, peer)) return hipErrorInvalidDevice;
  auto& peers = m->at(device).peers;
  const auto bit = std::uint64_t{1} << peer;
  if ((peers & bit) == 0) return hipErrorPeerAccessNotEnabled;
  peers &= ~bit;
  return hipSuccess;
}

hipError_t hipDeviceGetP2PAttribute(int* value, hipDeviceP2PAttr attribute, int srcDevice, int dstDevice) {
  if (!value) return hipErrorInvalidValue;
  const reading m;
  const bool too_large = srcDevice >= m->device_count() || dstDevice >= m->device_count();
  if (srcDevice == dstDevice || too_large) return hipErrorInvalidDevice;
  if (attribute > hipDevP2PAttrHipArrayAccessSupported) return hipErrorInvalidValue;
  if (srcDevice < 0 || dstDevice < 0) return hipErrorInvalidDevice;
  const auto link = m->profile.links.find({srcDevice, dstDevice});
  const bool linked = link != m->profile.links.end();
  const bool atomics =
      !linked || link->second.type != link_type::pcie;  // AMD reports them also without a link
  switch (attribute) {
    case hipDevP2PAttrPerformanceRank:
      *value = linked ? static_cast<int>(link_number(link->second.type)) : static_cast<int>(no_link);
      return hipSuccess;
    case hipDevP2PAttrAccessSupported:
    case hipDevP2PAttrHipArrayAccessSupported:
      *value = linked;
      return hipSuccess;
    case hipDevP2PAttrNativeAtomicSupported:
      *value = atomics;
      return hipSuccess;
  }
  return hipErrorInvalidValue;
}

hipError_t hipExtGetLinkTypeAndHopCount(int device1, int device2, std::uint32_t* linkType,
                                        std::uint32_t* hopCount) {
  if (!linkType || !hopCount || device1 == device2 || device1 < 0 || device2 < 0) return hipErrorInvalidValue;
  const reading m;
  if (!m->is_device(device1) || !m->is_device(device2)) return hipErrorInvalidDevice;
  const auto link = m->profile.links.find({device1, device2});
  const bool linked = link != m->profile.links.end();
  *linkType = linked ? link_number(link->second.type) : no_link;
  *hopCount = linked ? static_cast<std::uint32_t>(link->second.hops) : 0;
  return hipSuccess;
}

}  // namespace hipsim::calls
