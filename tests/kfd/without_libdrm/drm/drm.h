/* What linux/kfd_ioctl.h takes from drm/drm.h, where a system has none: searched last. */
#include <asm/ioctl.h>
#include <linux/types.h>
