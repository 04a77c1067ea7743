// Stands in for libcuda.so.1: cuDeviceGetCount fails before cuInit, as the driver's does.
namespace {
constexpr int kSuccess = 0;
constexpr int kNotInitialized = 3;
int devices = 0;
}  // namespace

extern "C" int cuInit(unsigned) {
  devices = 2;
  return kSuccess;
}

extern "C" int cuDeviceGetCount(int* count) {
  if (devices == 0) return kNotInitialized;
  *count = devices;
  return kSuccess;
}
