// What a worker that was promised to hold no GPU (gpu="none") does to keep the promise.
//
// CUDA_VISIBLE_DEVICES="" keeps every well-behaved library from the GPUs; code that undoes it, or
// opens a device by itself, is found out: the process looks at itself, and at who tried.
//
// A fact of the whole process: an audit hook of the interpreter cannot be taken back.
// Threads: with the GIL.
// Fork: a child goes on as its parent.
#pragma once

namespace shoal::python {

/// From now on this process holds no GPU: attempts that Python code makes are remembered with their
/// stacks (a variable that shows devices again, a driver that ctypes loads, a device file that is
/// opened), and check_gpu() looks. A second time does nothing.
void forbid_gpu();

/// Throws InvalidState where the process uses a GPU (process/self/gpu_use.h) though it is
/// forbidden, with what shows it and the stacks of who tried.
void check_gpu();

/// check_gpu() in the first few calls, and then once a second: for after every step. Nothing but a
/// test of a flag where no GPU is forbidden.
void check_gpu_now_and_then();

}  // namespace shoal::python
