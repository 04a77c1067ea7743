// The program shoal-worker: a zygote, or a single worker, for native environments. Not for people:
// a parent starts it.
#include "shoal/process/launch/worker_main.h"
#include "shoal/vector/worker_program/native_worker.h"

int main() {
  shoal::process::EntryTable entries;
  entries.add(std::string(shoal::vector::kNativePoolEntry), shoal::vector::native_pool_entry);
  return shoal::process::worker_main(entries);
}
