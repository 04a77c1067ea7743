// The worker program of the tests: a zygote, or a single worker, that knows toys.
#include "shoal/process/launch/worker_main.h"
#include "shoal/vector/testing/toy_stepper.h"
#include "shoal/vector/testing/who_am_i.h"

int main() { return shoal::process::worker_main(shoal::vector::testing::test_entries()); }
