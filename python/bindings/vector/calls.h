// Calls of a vector environment: one is inside at a time, and close() may come in the midst of it.
#pragma once

#include <utility>

#include "shoal/vector/call_gate.h"
#include "shoal/vector/vector_env.h"
#include "waiting.h"

namespace shoal::python {

/// What a call that waits looks at every now and then: signals, and whether what it waits for is to be closed.
inline void check_call() {
  check_signals();
  vector::CallGate::check();
}

inline vector::CallGate& gate_of(vector::VectorEnv& envs) { return envs.gate(); }
template <class Io>
vector::CallGate& gate_of(Io& io) {
  return io.envs().gate();
}

/// The same function, as a call that is inside of its environments. It is entered and left with the GIL.
template <class Of, class Result, class... Args>
auto in_call(Result (*function)(Of&, Args...)) {
  return [function](Of& of, Args... args) -> Result {
    const vector::CallGate::Inside inside(gate_of(of));
    return function(of, std::forward<Args>(args)...);
  };
}
template <class Of, class Result, class... Args>
auto in_call(Result (Of::*function)(Args...)) {
  return [function](Of& of, Args... args) -> Result {
    const vector::CallGate::Inside inside(gate_of(of));
    return (of.*function)(std::forward<Args>(args)...);
  };
}

}  // namespace shoal::python
