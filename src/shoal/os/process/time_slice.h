// How long the scheduler lets a thread run at a time beside others.
#pragma once

namespace shoal::os {

/// Asks for the shortest time slices there are, 0.1 ms, for the calling thread and those that it
/// starts from now on. Its share of the CPU stays the same; when it wakes, it takes the place of a
/// thread with longer slices at once, where it would otherwise wait for the end of that one's,
/// some milliseconds. For threads that work for less than that at a time, and are waited for.
///
/// False, and nothing has changed, where the kernel does not let it (a seccomp filter), or where
/// the thread is not under the normal scheduling policy. Linux before 6.12 takes the request and
/// goes on as before (its EEVDF scheduler has had slices of threads since then).
bool shorten_time_slices() noexcept;

}  // namespace shoal::os
