// shoal._core.serve: the server of a model service, whose executor is Python, and its frontend.
#include "serve/serve.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "bindings.h"
#include "bytes.h"
#include "numpy_api.h"
#include "shoal/process/self/own_thread.h"
#include "shoal/serve/failure_text.h"
#include "shoal/serve/frontend.h"
#include "shoal/serve/server.h"
#include "waiting.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

using serve::Server;

/// What an executor works on keeps its server.
template <class What>
struct Of {
  std::shared_ptr<Server> server;
  What what;
};
using PyBatch = Of<serve::Batch>;
using PyProbe = Of<serve::Probe>;
using PyCommand = Of<serve::ServerCommand>;

nb::object next(const std::shared_ptr<Server>& server, std::optional<double> timeout) {
  serve::Work work;
  interruptible(timeout, [&](os::Deadline until) {
    work = server->next(until);
    return !std::holds_alternative<serve::NoWork>(work);
  });
  if (auto* batch = std::get_if<serve::Batch>(&work)) {
    return nb::cast(PyBatch{server, std::move(*batch)});
  }
  if (auto* probe = std::get_if<serve::Probe>(&work)) {
    return nb::cast(PyProbe{server, std::move(*probe)});
  }
  if (auto* command = std::get_if<serve::ServerCommand>(&work)) {
    return nb::cast(PyCommand{server, std::move(*command)});
  }
  if (std::holds_alternative<serve::NoWork>(work)) return nb::none();
  return nb::cast(std::holds_alternative<serve::ClientGone>(work)
                      ? std::get<serve::ClientGone>(work)
                      : serve::ClientGone{0});
}

/// The first `rows` rows of each array, those beyond the batch filled with its first one.
nb::list inputs(nb::handle_t<PyBatch> self, std::uint32_t rows) {
  ensure_numpy();
  const auto& [server, batch] = *nb::inst_ptr<PyBatch>(self);
  if (rows < batch.rows.size() || rows > server->max_rows(batch)) {
    throw InvalidArgument(
        fmt::format("a batch of {} rows cannot be made one of {}: there is room "
                    "for {}",
                    batch.rows.size(), rows, server->max_rows(batch)));
  }
  nb::list arrays;
  const serve::RowSpec& spec = server->kind(batch).inputs;
  for (std::size_t leaf = 0; leaf < spec.size(); ++leaf) {
    std::byte* first = server->input(batch, leaf, 0);
    const std::size_t bytes = spec[leaf].bytes();
    for (auto row = static_cast<std::uint32_t>(batch.rows.size()); row < rows; ++row) {
      std::memcpy(first + row * bytes, first, bytes);
    }
    arrays.append(array_view({first, rows, spec[leaf]}, self, true));
  }
  return arrays;
}

nb::list one_input(nb::handle_t<PyBatch> self, std::uint32_t row) {
  ensure_numpy();
  const auto& [server, batch] = *nb::inst_ptr<PyBatch>(self);
  nb::list arrays;
  const serve::RowSpec& spec = server->kind(batch).inputs;
  for (std::size_t leaf = 0; leaf < spec.size(); ++leaf) {
    arrays.append(array_view({server->input(batch, leaf, row), 1, spec[leaf]}, self, true));
  }
  return arrays;
}

/// Row `first` + i of the batch gets row i of the arrays. Throws ValueError when they are not such
/// as the queue's first reply was.
void reply(PyBatch& self, const nb::list& arrays, std::uint64_t version, std::uint32_t first,
           std::uint32_t count) {
  serve::Batch& batch = self.what;
  const GivenRows given = rows_of(arrays, true);
  const serve::RowSpec& spec = self.server->outputs(batch);
  if (given.spec != spec) {
    throw InvalidArgument(
        fmt::format("the model's answer is {} a row, where its first answer to such rows was {}",
                    serve::describe(given.spec), serve::describe(spec)));
  }
  if (given.rows < count || first + count > batch.rows.size()) {
    throw InvalidArgument(fmt::format("the model answered {} rows with {}", count, given.rows));
  }
  for (std::uint32_t row = 0; row < count; ++row) {
    for (std::size_t leaf = 0; leaf < spec.size(); ++leaf) {
      const std::size_t bytes = spec[leaf].bytes();
      std::memcpy(self.server->output(batch, first + row, leaf), given.leaves[leaf] + row * bytes,
                  bytes);
    }
    self.server->reply(batch, first + row, version);
  }
}

template <class Get>
nb::list of_rows(const PyBatch& self, Get get) {
  nb::list all;
  for (const serve::BatchRow& row : self.what.rows) all.append(get(row));
  return all;
}

void bind_batch(nb::module_& module) {
  nb::class_<PyBatch>(module, "Batch", "Rows that a model is to answer together.")
      .def_prop_ro("model", [](const PyBatch& self) { return self.what.model; })
      .def_prop_ro("pinned", [](const PyBatch& self) { return self.what.pinned; })
      .def_prop_ro(
          "structure",
          [](const PyBatch& self) { return to_bytes(self.server->kind(self.what).structure); })
      .def_prop_ro(
          "answer_structure",
          [](const PyBatch& self) { return to_bytes(self.server->answer_structure(self.what)); },
          "That of the first answer to such rows, which all others are put together by.")
      .def_prop_ro("rows", [](const PyBatch& self) { return self.what.rows.size(); })
      .def_prop_ro("max_rows", [](const PyBatch& self) { return self.server->max_rows(self.what); })
      .def_prop_ro(
          "envs",
          [](const PyBatch& self) {
            return of_rows(self, [](const serve::BatchRow& row) {
              return nb::make_tuple(row.client, row.env);
            });
          },
          "(client, environment) of each row.")
      .def_prop_ro("resets",
                   [](const PyBatch& self) {
                     return of_rows(
                         self, [](const serve::BatchRow& row) { return nb::bool_(row.reset); });
                   })
      .def("inputs", &inputs, "rows"_a,
           "Arrays over the rows in shared memory, padded to `rows`; theirs until finish().")
      .def("one_input", &one_input, "row"_a, "The same of one row.")
      .def("reply", &reply, "arrays"_a, "version"_a, "first"_a, "count"_a)
      .def(
          "fail",
          [](PyBatch& self, std::uint32_t row, const std::string& message,
             const std::string& traceback, std::uint64_t version) {
            const serve::FailureText text{message, traceback};
            self.server->fail(self.what, row, text.encode(), version);
          },
          "row"_a, "message"_a, "traceback"_a, "version"_a)
      .def(
          "finish",
          [](PyBatch& self, std::uint32_t padded) { self.server->finish(self.what, padded); },
          "padded_rows"_a = 0);
}

void bind_probe(nb::module_& module) {
  nb::class_<PyProbe>(module, "Probe", "Rows of a new kind, with one of them.")
      .def_prop_ro("model", [](const PyProbe& self) { return self.what.request.kind.model; })
      .def_prop_ro("pinned", [](const PyProbe& self) { return self.what.request.kind.pinned; })
      .def_prop_ro("structure",
                   [](const PyProbe& self) { return to_bytes(self.what.request.kind.structure); })
      .def(
          "inputs",
          [](const PyProbe& self) {
            ensure_numpy();
            nb::list arrays;
            const std::byte* row = self.what.request.example.data();
            for (const shm::TensorSpec& leaf : self.what.request.kind.inputs) {
              nb::object array = new_array(leaf, 1);
              std::memcpy(array_data(array), row, leaf.bytes());
              row += leaf.bytes();
              arrays.append(std::move(array));
            }
            return arrays;
          },
          "The example as a batch of one row.")
      .def(
          "open",
          [](const PyProbe& self, const nb::list& outputs, const nb::bytes& structure) {
            self.server->open_queue(self.what, rows_of(outputs, true).spec, to_vector(structure));
          },
          "outputs"_a, "structure"_a, "`outputs` are the model's arrays for the example.")
      .def(
          "refuse",
          [](const PyProbe& self, const std::string& message, const std::string& traceback,
             bool model_error) {
            self.server->refuse(self.what, {model_error ? serve::RefusalKind::kModelError
                                                        : serve::RefusalKind::kInvalid,
                                            message, traceback});
          },
          "message"_a, "traceback"_a = "", "model_error"_a = true);
}

void bind_server(nb::module_& module) {
  using ModelTuple = std::tuple<std::string, std::uint32_t, double>;
  nb::class_<PyCommand>(module, "Command", "What the service's owner asks of a server.")
      .def_prop_ro("bytes", [](const PyCommand& self) { return to_bytes(self.what.bytes); })
      .def(
          "answer",
          [](const PyCommand& self, const nb::bytes& bytes) {
            self.server->answer(self.what, view(bytes));
          },
          "bytes"_a);
  nb::class_<serve::ClientGone>(module, "Gone", "A client has ended; client 0: the service has.")
      .def_ro("client", &serve::ClientGone::client);
  nb::class_<Server>(module, "Server", "One instance of a model service.")
      .def(nb::new_([](const std::string& address, std::uint32_t instance,
                       const std::vector<ModelTuple>& models, std::uint32_t max_queues) {
             serve::ServerOptions options{
                 .address = address, .instance = instance, .models = {}, .max_queues = max_queues};
             for (const auto& [name, max_batch, max_delay] : models) {
               options.models.push_back(
                   {name, max_batch,
                    std::chrono::nanoseconds(static_cast<std::int64_t>(max_delay * 1e9))});
             }
             return std::make_shared<Server>(std::move(options));
           }),
           "address"_a, "instance"_a, "models"_a, "max_queues"_a = 64)
      .def(
          "next", &next, "timeout"_a = nb::none(),
          "What is to be done next: a Batch, Probe, Command or Gone; None after `timeout` seconds.")
      .def(
          "set_version",
          [](Server& self, std::uint32_t model, std::uint64_t version, bool is_update) {
            serve::ModelStatistics& counts = self.statistics(model);
            counts.version.store(version, std::memory_order_relaxed);  // a number to look at
            if (is_update) serve::add(counts.updates);
          },
          "model"_a, "version"_a, "is_update"_a);
}

nb::dict to_python(const serve::Distribution& all, double unit) {
  nb::dict values;
  values["count"] = all.count;
  values["mean"] = all.mean * unit;
  values["p50"] = all.p50 * unit;
  values["p90"] = all.p90 * unit;
  values["p99"] = all.p99 * unit;
  values["max"] = all.max * unit;
  return values;
}

using Segments = std::vector<std::shared_ptr<const serve::ServerSegment>>;

/// Of one model of all these servers together.
nb::dict statistics(const Segments& segments, std::size_t model) {
  constexpr double kSeconds = 1e-9;
  using serve::ModelStatistics;
  nb::dict values;
  const auto sum = [&](auto member) {
    std::uint64_t all = 0;
    // Relaxed: a look at counters that go on.
    for (const auto& segment : segments) {
      all += (segment->models()[model].*member).load(std::memory_order_relaxed);
    }
    return all;
  };
  const auto summary = [&](auto member, double unit) {
    std::vector<const serve::Histogram*> parts;
    for (const auto& segment : segments) parts.push_back(&(segment->models()[model].*member));
    return to_python(serve::Histogram::summary(parts), unit);
  };
  std::uint64_t clients = 0, version = UINT64_MAX;
  for (const auto& segment : segments) {
    clients += segment->clients();
    version =
        std::min(version,
                 segment->models()[model].version.load(std::memory_order_relaxed));  // as above
  }
  const std::uint64_t rows = sum(&ModelStatistics::rows);
  const std::uint64_t padded = sum(&ModelStatistics::padded_rows);
  values["clients"] = clients;
  values["version"] = version;
  values["updates"] = sum(&ModelStatistics::updates);
  values["rows"] = rows;
  values["batches"] = sum(&ModelStatistics::batches);
  values["failed_rows"] = sum(&ModelStatistics::failed_rows);
  values["expired_rows"] = sum(&ModelStatistics::expired_rows);
  values["dropped_rows"] = sum(&ModelStatistics::dropped_rows);
  values["padded_rows"] = padded;
  values["padding_waste"] =
      padded == 0 ? 0.0 : static_cast<double>(padded) / static_cast<double>(rows + padded);
  values["batch_rows"] = summary(&ModelStatistics::batch_rows, 1);
  values["queue_wait"] = summary(&ModelStatistics::queue_wait_ns, kSeconds);
  values["run"] = summary(&ModelStatistics::run_ns, kSeconds);
  values["latency"] = summary(&ModelStatistics::latency_ns, kSeconds);
  return values;
}

nb::dict statistics(const Segments& segments) {
  nb::dict all;
  for (std::size_t model = 0; !segments.empty() && model < segments[0]->models().size(); ++model) {
    all[nb::str(segments[0]->models()[model].name)] = statistics(segments, model);
  }
  return all;
}

void bind_frontend(nb::module_& module) {
  using serve::Frontend;
  nb::class_<Frontend>(module, "Frontend", "Where the clients of a model service arrive.")
      .def(nb::init<>())
      .def_prop_ro("address", &Frontend::address)
      .def(
          "wait_ready",
          [](Frontend& self, std::uint32_t instance, std::uint64_t generation,
             std::optional<double> timeout) {
            return interruptible(timeout, [&](os::Deadline until) {
              return self.wait_ready(instance, generation, until);
            });
          },
          "instance"_a, "generation"_a, "timeout"_a = nb::none())
      .def(
          "wait_gone",
          [](Frontend& self, std::uint32_t instance) {
            const nb::gil_scoped_release unlocked;
            const process::OwnThread own;  // for a thread that does nothing else
            static_cast<void>(self.wait_gone(instance, os::kNoDeadline));
          },
          "instance"_a, "Returns when that server has ended; not interrupted.")
      .def("generation", &Frontend::generation, "instance"_a,
           nb::call_guard<nb::gil_scoped_release>(), "How many servers it has had.")
      .def("hold_clients", &Frontend::hold_clients, "instance"_a,
           nb::call_guard<nb::gil_scoped_release>(),
           "Its servers get commands, but no clients, until let_clients_in().")
      .def("let_clients_in", &Frontend::let_clients_in, "instance"_a,
           nb::call_guard<nb::gil_scoped_release>())
      .def(
          "command",
          [](Frontend& self, std::uint32_t instance, const nb::bytes& bytes,
             std::optional<double> timeout, std::uint32_t topic) -> nb::object {
            const auto content = view(bytes);
            std::optional<std::vector<std::byte>> answer;
            {
              const os::Deadline end = deadline(timeout);
              const nb::gil_scoped_release unlocked;
              answer = self.command(
                  instance, content, end,
                  [] {
                    const nb::gil_scoped_acquire locked;
                    check_signals();
                  },
                  topic);
            }
            return answer ? nb::object(to_bytes(*answer)) : nb::none();
          },
          "instance"_a, "bytes"_a, "timeout"_a = nb::none(), "topic"_a = 0,
          "The server's answer; None when it has not come in time. Of a topic that is not 0, whose "
          "answers nobody waits for, a busy server keeps the newest commands.")
      .def(
          "statistics",
          [](const Frontend& self, std::uint32_t instances) {
            Segments segments;
            {
              const nb::gil_scoped_release unlocked;
              for (std::uint32_t i = 0; i < instances; ++i) {
                if (auto segment = self.segment(i)) segments.push_back(std::move(segment));
              }
            }
            return statistics(segments);
          },
          "instances"_a, "Of every model, by name, summed over the instances; times in seconds.")
      .def("close", &Frontend::close, "notice"_a, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace

void bind_serve(nb::module_& parent) {
  nb::module_ module = parent.def_submodule("serve", "The model service.");
  bind_batch(module);
  bind_probe(module);
  bind_server(module);
  bind_frontend(module);
  module.def(
      "observe",
      [](const std::string& address, std::optional<double> timeout) {
        serve::Frontend::Observed seen;
        {
          const os::Deadline end = deadline(timeout);
          const nb::gil_scoped_release unlocked;
          seen = serve::Frontend::observe(address, end);
        }
        const Segments& segments = seen.segments;
        const std::uint64_t started = segments.empty() ? os::now_ns() : segments[0]->started_ns();
        std::vector<int> pids;
        for (const auto& segment : segments) pids.push_back(segment->pid());
        return nb::make_tuple(segments.size(), seen.running,
                              static_cast<double>(os::now_ns() - started) * 1e-9,
                              statistics(segments), std::move(pids), seen.restarts);
      },
      "address"_a, "timeout"_a = nb::none(),
      "(instances, running ones, seconds since the start, statistics, process ids of the last "
      "server of each instance, restarts) of a service of this machine.");
  bind_serve_client(module);
  bind_serve_remote(module);
}

}  // namespace shoal::python
