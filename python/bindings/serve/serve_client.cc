// shoal._core.serve: the clients of a model service.
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "bytes.h"
#include "numpy_api.h"
#include "serve/serve.h"
#include "shoal/process/self/pollable_wait.h"
#include "shoal/serve/client.h"
#include "shoal/serve/errors.h"
#include "waiting.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

using serve::Client;
using serve::ClientQueue;
using serve::Request;
using serve::RequestKind;

/// A client that several Python threads may use, one at a time.
class SharedClient {
 public:
  SharedClient(const std::string& address, std::optional<double> timeout) : pid_(::getpid()) {
    const os::Deadline end = deadline(timeout);
    const nb::gil_scoped_release unlocked;
    client_ = Client::connect(address, end, &check_signals);
  }

  /// Runs `act` alone; to be called without the GIL.
  template <class Act>
  auto locked(Act act) {
    need_usable();
    const std::lock_guard lock(mutex_);
    return with_dropped(act);
  }
  /// The same for what does not wait: it keeps the GIL, unless another thread is at the client.
  template <class Act>
  auto briefly(Act act) {
    need_usable();
    if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) return with_dropped(act);
    const nb::gil_scoped_release released;
    return locked(act);
  }

  /// The request is not wanted: it is cancelled before the next call. Never waits.
  void drop(Request request) {
    const std::lock_guard lock(dropped_mutex_);
    dropped_.push_back(std::move(request));
  }

  /// What a descriptor waits by for replies that come to these slots. Within locked() or briefly().
  process::PollableWait& pollable(const std::shared_ptr<serve::ClientSlots>& slots) {
    std::erase_if(pollables_, [](const auto& entry) { return entry.first.expired(); });
    for (const auto& [of, pollable] : pollables_) {
      if (of.lock() == slots) return *pollable;
    }
    return *pollables_.emplace_back(slots, std::make_unique<process::PollableWait>()).second;
  }

  bool usable() const noexcept { return ::getpid() == pid_; }
  const Client& names() const noexcept { return *client_; }

 private:
  void need_usable() const {
    if (!usable()) {
      throw InvalidState("this connection to a model service is that of the process before a fork");
    }
  }
  template <class Act>
  auto with_dropped(Act& act) {
    for (Request& request : take_dropped()) client_->cancel(request);
    return act(*client_);
  }
  std::vector<Request> take_dropped() {
    const std::lock_guard lock(dropped_mutex_);
    return std::exchange(dropped_, {});
  }

  std::unique_ptr<Client> client_;
  std::vector<std::pair<std::weak_ptr<serve::ClientSlots>, std::unique_ptr<process::PollableWait>>>
      pollables_;  // of slots that somebody polls
  std::mutex mutex_;
  std::mutex dropped_mutex_;
  std::vector<Request> dropped_;
  const pid_t pid_;
};

/// Rows in flight.
class Future {
 public:
  Future(std::shared_ptr<SharedClient> client, Request request)
      : client_(std::move(client)), request_(std::move(request)) {}
  Future(Future&& other) noexcept
      : client_(std::move(other.client_)), request_(std::exchange(other.request_, {})) {}
  Future& operator=(Future&&) = delete;
  ~Future() {
    if (client_ && !request_.rows.empty() && client_->usable()) client_->drop(request_);
  }

  bool done() {
    return client_->briefly([&](Client& client) { return client.done(request_); });
  }

  bool wait(std::optional<double> timeout) {
    need();
    if (done()) return true;
    return interruptible(timeout, [&](os::Deadline until) {
      return client_->locked([&](Client& client) { return client.wait(request_, until); });
    });
  }

  int watch() {
    need();
    return client_->briefly([&](Client& client) {
      const std::shared_ptr<serve::ClientSlots> slots = request_.at->slots;
      const std::uint32_t seen = slots->done().generation();
      if (client.done(request_)) return -1;
      process::PollableWait& pollable = client_->pollable(slots);
      pollable.arm([slots, seen](os::Deadline deadline) {
        return slots->done().park(seen, deadline) == sync::WaitOutcome::kReady;
      });
      return pollable.fd();
    });
  }

  void cancel() {
    client_->briefly([&](Client& client) { client.cancel(request_); });
  }

  /// After wait(): (arrays, structure, version of the oldest weights that answered a row); throws
  /// what became of the rows otherwise.
  nb::tuple take(bool batched);

 private:
  void need() const {
    if (request_.rows.empty()) {
      throw serve::Cancelled("the request was cancelled, or its result has been taken");
    }
  }

  std::shared_ptr<SharedClient> client_;
  Request request_;
};

nb::tuple Future::take(bool batched) {
  need();
  const ClientQueue& at = *request_.at;
  const auto rows = static_cast<std::uint32_t>(request_.rows.size());
  const Client& client = client_->names();  // the replies are this request's: nobody touches them
  const auto release = [&] { client_->briefly([&](Client& all) { all.release(request_); }); };
  try {
    client.check(request_);
  } catch (...) {
    release();
    throw;
  }
  nb::list arrays;
  for (std::size_t leaf = 0; leaf < at.outputs.size(); ++leaf) {
    const shm::TensorSpec& spec = at.outputs[leaf];
    nb::object array = batched ? new_array(spec, rows) : new_array(spec);
    auto* to = static_cast<std::byte*>(array_data(array));
    const std::size_t bytes = spec.bytes();
    for (std::uint32_t row = 0; row < rows; ++row) {
      std::memcpy(to + row * bytes, client.output(request_, row, leaf), bytes);
    }
    arrays.append(std::move(array));
  }
  std::uint64_t version = client.version(request_, 0);
  for (std::uint32_t row = 1; row < rows; ++row) {
    version = std::min(version, client.version(request_, row));
  }
  nb::bytes structure = to_bytes(at.structure);
  release();
  return nb::make_tuple(arrays, structure, version);
}

struct AskOptions {
  std::uint32_t model = 0;
  std::uint64_t pinned = 0;
  nb::bytes structure;
  bool batched = false;
  std::int32_t env = 0;
  bool reset = false;
  bool wait_for_room = true;
  std::optional<double> timeout;
};

Future ask(const std::shared_ptr<SharedClient>& client, const nb::list& arrays,
           const AskOptions& options) {
  const GivenRows given = rows_of(arrays, options.batched);
  const RequestKind kind{.model = options.model,
                         .pinned = options.pinned,
                         .inputs = given.spec,
                         .structure = to_vector(options.structure)};
  const os::Deadline end = deadline(options.timeout);
  const auto count = static_cast<std::uint32_t>(given.rows);
  serve::Rows rows{.leaves = given.leaves,
                   .count = count,
                   .env = options.env,
                   .reset = options.reset,
                   .deadline = end,
                   .wait_for_room = options.wait_for_room};
  const nb::gil_scoped_release released;
  return {client, client->locked([&](Client& alone) {
            ClientQueue* at = alone.find(kind, count);
            if (at == nullptr) {
              at = !rows.wait_for_room && alone.knows(kind)
                       ? &alone.open_now(kind, given.leaves, count)
                       : &alone.open(kind, given.leaves, count, end);
            }
            return alone.submit(*at, rows);
          })};
}

}  // namespace

GivenRows rows_of(nb::list arrays, bool batched) {
  ensure_numpy();
  GivenRows given;
  for (const nb::handle item : arrays) {
    PyObject* made = PyArray_FROM_OF(
        item.ptr(), NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | NPY_ARRAY_NOTSWAPPED);
    if (made == nullptr) throw nb::python_error();
    nb::object object = nb::steal(made);
    auto* array = reinterpret_cast<PyArrayObject*>(made);
    shm::TensorSpec spec;
    spec.dtype = dtype_of(nb::handle(reinterpret_cast<PyObject*>(PyArray_DESCR(array))));
    const npy_intp* dims = PyArray_DIMS(array);
    spec.shape.assign(dims, dims + PyArray_NDIM(array));
    if (batched) {
      const bool first = given.arrays.empty();
      if (spec.shape.empty() || spec.shape[0] < 1 || (!first && spec.shape[0] != given.rows)) {
        throw InvalidArgument(
            "a batch of rows is arrays with the rows as their first dimension, as many in each and "
            "at least one");
      }
      given.rows = spec.shape[0];
      spec.shape.erase(spec.shape.begin());
    }
    given.spec.push_back(std::move(spec));
    given.leaves.push_back(static_cast<const std::byte*>(PyArray_DATA(array)));
    given.arrays.push_back(std::move(object));
  }
  return given;
}

void bind_serve_client(nb::module_& module) {
  nb::class_<Future>(module, "Future", "Rows that a model service was asked about.")
      .def("done", &Future::done)
      .def("wait", &Future::wait, "timeout"_a = nb::none(),
           "Waits for the replies; returns whether they are there.")
      .def("watch", &Future::watch,
           "-1: the replies are there; else a descriptor that is readable when it is worth a look.")
      .def("cancel", &Future::cancel)
      .def("take", &Future::take, "batched"_a, "(arrays, structure, version), once, after wait().");
  nb::class_<SharedClient>(module, "Client", "A connection to a model service.")
      .def(nb::new_([](const std::string& address, std::optional<double> timeout) {
             return std::make_shared<SharedClient>(address, timeout);
           }),
           "address"_a, "timeout"_a = nb::none())
      .def_prop_ro(
          "alive", [](const SharedClient& self) { return self.usable() && self.names().alive(); },
          "Whether its server still runs; False in a child of its process.")
      .def_prop_ro("models",
                   [](const SharedClient& self) {
                     const auto models = self.names().models();
                     return std::vector<std::string>(models.begin(), models.end());
                   })
      .def(
          "model",
          [](const SharedClient& self, const std::string& name) {
            return self.names().model(name);
          },
          "name"_a, "Its number. Raises ValueError naming those there are.")
      .def(
          "submit",
          [](const std::shared_ptr<SharedClient>& self, const nb::list& arrays, std::uint32_t model,
             const nb::bytes& structure, bool batched, std::uint64_t pinned, std::int32_t env,
             bool reset, bool wait_for_room, std::optional<double> timeout) {
            return ask(self, arrays,
                       {model, pinned, structure, batched, env, reset, wait_for_room, timeout});
          },
          "arrays"_a, "model"_a, "structure"_a, "batched"_a, "pinned"_a = 0, "env"_a = 0,
          "reset"_a = false, "wait_for_room"_a = true, "timeout"_a = nb::none());
}

}  // namespace shoal::python
