// A stand-in for OpenBLAS: a pool of one idle thread, which it ends before every fork. Nobody else can.
#include <pthread.h>
#include <semaphore.h>

namespace {

pthread_t pool;
sem_t end;
bool runs = false;

void* wait_for_work(void*) {
  while (::sem_wait(&end) != 0) {
  }
  return nullptr;
}

void shut_down() {
  if (!runs) return;
  ::sem_post(&end);
  ::pthread_join(pool, nullptr);
  runs = false;
}

}  // namespace

extern "C" void scipy_openblas_set_num_threads64_(int) {
  if (!runs) runs = ::pthread_create(&pool, nullptr, &wait_for_work, nullptr) == 0;
}

__attribute__((constructor)) static void load() {
  ::sem_init(&end, 0, 0);
  ::pthread_atfork(&shut_down, nullptr, nullptr);
  scipy_openblas_set_num_threads64_(2);
}
