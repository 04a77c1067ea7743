#include "tensors/waiting_for_gil.h"

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "tensors/torch_api.h"

namespace nb = nanobind;

namespace shoal::python {
namespace {

/// From so many small things on the main thread is asked to let go of them: each is some hundred
/// bytes.
constexpr std::size_t kMany = 256;

struct Waiting {
  std::mutex mutex;
  std::vector<std::uintptr_t> weak;
  std::vector<PyObject*> objects;
  std::atomic<std::size_t> count{0};
  std::atomic<bool> asked{false};
};

/// Never destroyed: storages are released until the very end of the process.
Waiting& waiting() {
  static Waiting* const instance = [] {
    static Waiting* made = new Waiting;
    pthread_atfork([] { made->mutex.lock(); }, [] { made->mutex.unlock(); },
                   [] { made->mutex.unlock(); });
    return made;
  }();
  return *instance;
}

int let_go_later(void*) {
  waiting().asked = false;
  try {
    WaitingForGil::let_go();
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("storages of torch");
  }
  return 0;
}

/// Where the queue of such calls is full, the next call of let_go() does it.
void ask_main_thread() {
  if (!Py_IsInitialized() || waiting().asked.exchange(true)) return;
  if (Py_AddPendingCall(let_go_later, nullptr) != 0) waiting().asked = false;
}

/// Adds to one of the lists; whether they are many by now.
template <class T>
bool add(std::vector<T> Waiting::* list, T thing) {
  Waiting& all = waiting();
  const std::lock_guard lock(all.mutex);
  (all.*list).push_back(thing);
  return ++all.count % kMany == 0;
}

}  // namespace

void WaitingForGil::free_weak(std::uintptr_t weak) noexcept {
  if (add(&Waiting::weak, weak)) ask_main_thread();
}

void WaitingForGil::decref_some_time(PyObject* object) noexcept {
  if (add(&Waiting::objects, object)) ask_main_thread();
}

void WaitingForGil::decref_soon(PyObject* object) noexcept {
  add(&Waiting::objects, object);
  ask_main_thread();
}

void WaitingForGil::let_go() {
  Waiting& all = waiting();
  if (all.count.load(std::memory_order_relaxed) == 0) return;
  std::vector<std::uintptr_t> weak;
  std::vector<PyObject*> objects;
  {
    const std::lock_guard lock(all.mutex);
    weak.swap(all.weak);
    objects.swap(all.objects);
    all.count = 0;
  }
  for (const std::uintptr_t reference : weak) TorchApi::here().free(reference);
  for (PyObject* const object : objects) Py_DECREF(object);
}

}  // namespace shoal::python
