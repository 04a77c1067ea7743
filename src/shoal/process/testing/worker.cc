// The program that the tests of this layer start as zygote and as spawned worker.
#include "shoal/process/launch/worker_main.h"
#include "shoal/process/testing/entries.h"

int main() { return shoal::process::worker_main(shoal::process::testing::entries()); }
