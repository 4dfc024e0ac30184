// Peer access and copies between devices.
#include "calls.hpp"

namespace hipcuda {
namespace {

bool can_reach(int device, int peer) {
  int can = 0;
  check(driver().cuDeviceCanAccessPeer(&can, device_handle(device), device_handle(peer)));
  return can != 0;
}

/// The peer's context. As in HIP, every impossible peer is InvalidDevice.
CUcontext context_of_peer(int peer) {
  const int self = current_device();
  require(is_device(peer) && peer != self && can_reach(self, peer), hipErrorInvalidDevice);
  return primary_context(peer);
}

}  // namespace

void hipDeviceCanAccessPeer(int* canAccessPeer, int device, int peer) {
  require(canAccessPeer);
  *canAccessPeer = 0;
  if (device != peer) *canAccessPeer = can_reach(device, peer);  // equal numbers: 0, even for no device
}

void hipDeviceEnablePeerAccess(int peer, unsigned int flags) {
  require(flags == 0);
  check(driver().cuCtxEnablePeerAccess(context_of_peer(peer), flags));
}

void hipDeviceDisablePeerAccess(int peer) { check(driver().cuCtxDisablePeerAccess(context_of_peer(peer))); }

void hipMemcpyPeer(void* dst, int dstDevice, const void* src, int srcDevice, std::size_t sizeBytes) {
  hipMemcpyPeerAsync(dst, dstDevice, src, srcDevice, sizeBytes, nullptr);
  check(driver().cuStreamSynchronize(nullptr));  // cuMemcpyPeer would return before the copy is done
}

void hipMemcpyPeerAsync(void* dst, int dstDevice, const void* src, int srcDevice, std::size_t sizeBytes,
                        hipStream_t stream) {
  require(is_device(dstDevice) && is_device(srcDevice), hipErrorInvalidDevice);
  if (sizeBytes == 0) return;
  require(dst && src);
  check(driver().cuMemcpyPeerAsync(to_address(dst), primary_context(dstDevice), to_address(src),
                                   primary_context(srcDevice), sizeBytes, to_cuda(stream)));
}

void hipDeviceGetP2PAttribute(int* value, hipDeviceP2PAttr attribute, int srcDevice, int dstDevice) {
  require(value);
  require(srcDevice != dstDevice, hipErrorInvalidDevice);
  const CUdevice source = device_handle(srcDevice), target = device_handle(dstDevice);
  check(driver().cuDeviceGetP2PAttribute(value, to_cuda(attribute), source, target));
}

void hipExtGetLinkTypeAndHopCount(int device1, int device2, std::uint32_t* linkType,
                                  std::uint32_t* hopCount) {
  require(linkType && hopCount && device1 >= 0 && device2 >= 0 && device1 != device2);
  require(is_device(device1) && is_device(device2), hipErrorInvalidDevice);
  // HIP has no number for NVLink, and the driver reports neither a link's kind nor its hops. What it knows is
  // in hipDeviceGetP2PAttribute.
  fail(hipErrorNotSupported);
}

}  // namespace hipcuda
