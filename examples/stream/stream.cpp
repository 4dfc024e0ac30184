// STREAM on the arrays a, b and c of a plan. hipcc and nvcc make it a program for GPUs; any other compiler
// one whose kernels are loops of the CPU, for the simulator.
#include <hipplan.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#if defined(__HIP__)
#include <hip/hip_runtime.h>
#define GPU(name) hip##name
#elif defined(__CUDACC__)
#include <cuda_runtime.h>
#define GPU(name) cuda##name
#endif

namespace {

constexpr int times = 20;  // as NTIMES of STREAM; the first does not count
constexpr double scalar = 3.0;

enum class kernel { init, copy, scale, add, triad };
constexpr const char* names[] = {"init", "copy", "scale", "add", "triad"};
constexpr int arrays[] = {3, 2, 2, 3, 3};  // that a kernel reads or writes

#ifdef GPU
#define ON_GPU __host__ __device__
#else
#define ON_GPU
#endif

ON_GPU inline void element(kernel which, double& a, double& b, double& c) {
  switch (which) {
    case kernel::init:
      a = 2.0, b = 0.5, c = 0.5;
      break;
    case kernel::copy:
      c = a;
      break;
    case kernel::scale:
      b = scalar * c;
      break;
    case kernel::add:
      c = a + b;
      break;
    case kernel::triad:
      a = b + scalar * c;
      break;
  }
}

struct stream {
  double* a;
  double* b;
  double* c;
  size_t count;
};

#ifdef GPU
void require(GPU(Error_t) result, const char* what) {
  if (result == GPU(Success)) return;
  std::fprintf(stderr, "%s: %s\n", what, GPU(GetErrorString)(result));
  std::exit(1);
}

template <kernel which>
__global__ void run_elements(stream on) {
  const size_t at = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at < on.count) element(which, on.a[at], on.b[at], on.c[at]);
}

template <kernel which>
void run(const stream& on) {
  const unsigned block = 256;
  run_elements<which><<<static_cast<unsigned>((on.count + block - 1) / block), block>>>(on);
  require(GPU(GetLastError)(), "launch");
  require(GPU(DeviceSynchronize)(), "kernel");
}

void use(int device) { require(GPU(SetDevice)(device), "device"); }

void read(std::vector<double>& out, const double* from) {
  require(GPU(Memcpy)(out.data(), from, out.size() * sizeof(double), GPU(MemcpyDeviceToHost)), "read");
}
#else
template <kernel which>
void run(const stream& on) {
  for (size_t at = 0; at < on.count; ++at) element(which, on.a[at], on.b[at], on.c[at]);
}

void use(int) {}

void read(std::vector<double>& out, const double* from) { out.assign(from, from + out.size()); }
#endif

/// Seconds.
template <kernel which>
double time_of(const stream& on) {
  const auto began = std::chrono::steady_clock::now();
  run<which>(on);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

/// Ends the program if an array has other values than the kernels make.
void check(const stream& on) {
  double a = 0;
  double b = 0;
  double c = 0;
  element(kernel::init, a, b, c);
  for (int i = 0; i < times; ++i) {
    for (const auto which : {kernel::copy, kernel::scale, kernel::add, kernel::triad})
      element(which, a, b, c);
  }
  std::vector<double> values(on.count);
  const struct {
    const double* array;
    double expected;
  } all[] = {{on.a, a}, {on.b, b}, {on.c, c}};
  for (const auto& one : all) {
    read(values, one.array);
    for (const double value : values) {
      const double error = (value - one.expected) / one.expected;
      if (error < 1e-13 && error > -1e-13) continue;
      std::fprintf(stderr, "a value is %g and not %g\n", value, one.expected);
      std::exit(1);
    }
  }
}

hipplan_error error;

void require(int code) {
  if (code == HIPPLAN_OK) return;
  std::fprintf(stderr, "%s\n", error.text);
  std::exit(1);
}

const hipplan_object& find(const hipplan_layout* layout, const char* name) {
  const hipplan_object* object = nullptr;
  require(hipplan_find(layout, name, &object, &error));
  if (object->writable) return *object;
  std::fprintf(stderr, "'%s' may not be written: attached: rw in the plan\n", name);
  std::exit(1);
}

}  // namespace

int main() {
  hipplan_layout* layout = nullptr;
  require(hipplan_attach(nullptr, nullptr, &layout, &error));
  const auto& c = find(layout, "c");
  const auto array = [layout](const char* name) { return static_cast<double*>(find(layout, name).address); };
  const stream on{array("a"), array("b"), array("c"), static_cast<size_t>(c.bytes / sizeof(double))};
  use(c.device);
  run<kernel::init>(on);
  double fastest[] = {0, 1e9, 1e9, 1e9, 1e9};
  for (int i = 0; i < times; ++i) {
    const double now[] = {0, time_of<kernel::copy>(on), time_of<kernel::scale>(on), time_of<kernel::add>(on),
                          time_of<kernel::triad>(on)};
    for (int which = 1; which < 5 && i > 0; ++which) {
      if (now[which] < fastest[which]) fastest[which] = now[which];
    }
  }
  check(on);
  for (int which = 1; which < 5;
       ++which) {  // each byte that is read or written counts once; 1 GB is 10^9 bytes
    std::printf("%s\"%s\": %.3f", which == 1 ? "{" : ", ", names[which],
                arrays[which] * (c.bytes / fastest[which]) / 1e9);
  }
  std::printf("}\n");
  require(hipplan_detach(layout, &error));
  return 0;
}
