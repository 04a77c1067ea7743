/* Stands for the CUDA driver on a machine without a GPU: libcuda.so.1 with the calls that a context needs.

   It has two devices, or as many as CUDA_VISIBLE_DEVICES lists when it is initialised. Every context that is made adds a line with
   its process to the file STAND_IN_CONTEXTS. A process that lives and has one takes 400 MiB of the first device, which has
   STAND_IN_MIB of them; without that variable it has memory without end. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

enum { kSuccess = 0, kOutOfMemory = 2, kNotInitialized = 3, kNoDevice = 100, kInvalidDevice = 101 };
enum { kContextMib = 400, kMostProcesses = 4096 };

static int devices;

int cuInit(unsigned flags) {
  const char* shown = getenv("CUDA_VISIBLE_DEVICES");
  (void)flags;
  devices = 2;
  if (shown) for (devices = *shown && *shown != '-'; *shown; ++shown) devices += *shown == ',';
  return devices ? kSuccess : kNoDevice;
}

int cuDeviceGetCount(int* count) {
  if (!devices) return kNotInitialized;
  *count = devices;
  return kSuccess;
}

/* The processes of the file that live, each of them once, without this one. */
static int holders(const char* name) {
  static int seen[kMostProcesses];
  int count = 0, pid;
  FILE* file = fopen(name, "r");
  if (!file) return 0;
  while (count < kMostProcesses && fscanf(file, "%d", &pid) == 1) {
    int i = 0;
    while (i < count && seen[i] != pid) ++i;
    if (i == count && pid != getpid() && kill(pid, 0) == 0) seen[count++] = pid;
  }
  fclose(file);
  return count;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  const char* memory = getenv("STAND_IN_MIB");
  const char* name = getenv("STAND_IN_CONTEXTS");
  char line[64];
  int file, result = kSuccess;
  if (!devices) return kNotInitialized;
  if (device >= devices) return kInvalidDevice;
  file = open(name, O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (file < 0 || flock(file, LOCK_EX)) return kInvalidDevice;
  if (memory && (holders(name) + 1) * kContextMib > atoi(memory)) {
    result = kOutOfMemory;
  } else if (write(file, line, sprintf(line, "%d\n", getpid())) < 0) {
    result = kInvalidDevice;
  }
  close(file);
  *context = line;
  return result;
}

int cuCtxSynchronize(void) { return devices ? kSuccess : kNotInitialized; }
