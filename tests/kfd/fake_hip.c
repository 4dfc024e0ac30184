/* In the place of libamdhip64 where there is none of AMD's: counts the GPUs that the driver shows, and launches. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int hsa_is_there(void);

static int last_error = 0, launches = 0;

int hipLaunchKernel(void* function, int blocks) {
  launches += blocks + (function != 0);
  last_error = 0;
  return last_error + hsa_is_there() - 1; /* long enough for a jump */
}

int hipCtxSynchronize(void) { return last_error = 801; }
int hipPeekAtLastError(void) { return last_error; }
int launches_done(void) { return launches; }

int hipGetDeviceCount(int* count) {
  *count = -1 + hsa_is_there(); /* 0, and libhsa-runtime64 is needed */
  const int driver = open("/dev/kfd", O_RDWR | O_CLOEXEC);
  if (driver < 0) return 100;
  close(driver);
  for (int node = 0;; node++) {
    char path[128];
    unsigned id = 0;
    snprintf(path, sizeof path, "/sys/class/kfd/kfd/topology/nodes/%d/gpu_id", node);
    FILE* file = fopen(path, "r");
    if (!file) return 0;
    *count += fscanf(file, "%u", &id) == 1 && id != 0;
    fclose(file);
  }
}
