// shoal._core.serve: services that answer other hosts, and what asks them there.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "serve/serve.h"
#include "shoal/group/host_port.h"
#include "shoal/group/seal.h"
#include "shoal/serve/errors.h"
#include "shoal/serve/frontend.h"
#include "shoal/serve/remote/listener.h"
#include "shoal/serve/remote/relay.h"
#include "shoal/version.h"
#include "waiting.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

using serve::Listener;
using serve::Relay;

std::shared_ptr<Listener> listen(const std::string& frontend, const std::string& address,
                                 const std::vector<std::string>& models, std::uint32_t max_batch,
                                 double max_delay, std::uint32_t instances, bool restarts,
                                 std::optional<double> timeout,
                                 const std::optional<std::string>& secret) {
  const auto [host, port] = group::parse_host_port(address);
  Listener::Options options{
      .address = frontend,
      .host = host,
      .port = port,
      .secret = secret ? *secret : group::secret_of_environment(),
      .version = version(),
      .terms = {.models = models,
                .max_batch = max_batch,
                .max_delay = nanoseconds(max_delay),
                .instances = instances,
                .restarts = restarts,
                .timeout = timeout ? nanoseconds(*timeout) : std::chrono::nanoseconds(0)}};
  const nb::gil_scoped_release unlocked;
  return std::make_shared<Listener>(std::move(options));
}

/// `frontend`: whose close() ends the attempt to connect, in which nobody asks for the GIL.
std::shared_ptr<Relay> relay(const serve::Frontend& frontend, std::uint32_t instance,
                             const std::string& address, const std::optional<std::string>& secret,
                             double timeout) {
  const auto [host, port] = group::parse_host_port(address);
  Relay::Options options{.address = frontend.address(),
                         .instance = instance,
                         .host = host,
                         .port = port,
                         .secret = secret ? *secret : group::secret_of_environment(),
                         .version = version(),
                         .timeout = nanoseconds(timeout),
                         .look = [&frontend] {
                           check_signals();
                           if (frontend.closed())
                             throw serve::ServiceDied("the model service was closed");
                         }};
  const nb::gil_scoped_release unlocked;
  return std::make_shared<Relay>(std::move(options));
}

std::optional<double> timeout_of(const Relay& relay) {
  const std::chrono::duration<double> timeout = relay.terms().timeout;
  if (timeout.count() == 0) return {};
  return timeout.count();
}

}  // namespace

void bind_serve_remote(nb::module_& module) {
  const nb::call_guard<nb::gil_scoped_release> unlocked;
  nb::class_<Listener>(module, "Listener", "Has a service of this host answer other hosts.")
      .def(nb::new_(&listen), "frontend"_a, "address"_a, "models"_a, "max_batch"_a, "max_delay"_a,
           "instances"_a, "restarts"_a, "timeout"_a = nb::none(), "secret"_a = nb::none())
      .def("start", &Listener::start, "Lets them in.")
      .def_prop_ro("port", &Listener::port)
      .def("close", &Listener::close, "why"_a, unlocked, "Idempotent.");
  nb::class_<Relay>(module, "Relay", "A server of a local service whose models are elsewhere.")
      .def(nb::new_(&relay), "frontend"_a, "instance"_a, "address"_a, "secret"_a = nb::none(),
           "timeout"_a = 10.0)
      .def_prop_ro("models", [](const Relay& self) { return self.terms().models; })
      .def_prop_ro(
          "instances", [](const Relay& self) { return self.terms().instances; },
          "Of the distant service.")
      .def_prop_ro("restarts", [](const Relay& self) { return self.terms().restarts; })
      .def_prop_ro("timeout", &timeout_of, "Of requests that name none.")
      .def_prop_ro("end_reason", &Relay::end_reason,
                   "Why it takes no clients any more; empty while it does.")
      .def("close", &Relay::close, unlocked, "Idempotent.");
}

}  // namespace shoal::python
