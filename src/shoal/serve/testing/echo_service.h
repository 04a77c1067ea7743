// For tests and benchmarks: a service whose replies are their rows, and a client of it.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "shoal/os/testing/child.h"
#include "shoal/serve/client.h"
#include "shoal/serve/frontend.h"
#include "shoal/serve/server.h"

namespace shoal::serve::testing {

inline RequestKind rows_of(std::int64_t numbers) {
  return {.model = 0, .pinned = 0, .inputs = {{shm::DType::kI64, {numbers}}}, .structure = {}};
}

inline ServerOptions echo_options(const std::string& address, std::uint32_t max_batch = 8,
                                  std::chrono::nanoseconds max_delay = {}) {
  return {.address = address,
          .models = {{.name = "echo", .max_batch = max_batch, .max_delay = max_delay}}};
}

/// Replies to each row with the row itself, and finishes the batch.
inline void echo(Server& server, Batch& batch) {
  const RowSpec& spec = server.outputs(batch);
  for (std::uint32_t row = 0; row < batch.rows.size(); ++row) {
    for (std::size_t leaf = 0; leaf < spec.size(); ++leaf) {
      std::memcpy(server.output(batch, row, leaf), server.input(batch, leaf, row),
                  spec[leaf].bytes());
    }
    server.reply(batch, row, 1);
  }
  server.finish(batch);
}

/// Serves echoes in this thread until the frontend closes.
inline int serve_echoes(const ServerOptions& options) {
  Server server(options);
  for (;;) {
    Work work = server.next();
    if (auto* batch = std::get_if<Batch>(&work)) {
      echo(server, *batch);
    } else if (const auto* probe = std::get_if<Probe>(&work)) {
      server.open_queue(*probe, probe->request.kind.inputs, {});
    } else if (const auto* command = std::get_if<ServerCommand>(&work)) {
      server.answer(*command, {});
    } else if (std::holds_alternative<ServerEnd>(work)) {
      return 0;
    }
  }
}

/// A client that asks about rows of `numbers` int64.
class Asker {
 public:
  explicit Asker(const std::string& address, std::int64_t numbers = 4)
      : client_(Client::connect(address, os::testing::test_deadline())),
        kind_(rows_of(numbers)),
        row_(numbers) {}

  Client& client() { return *client_; }
  const RequestKind& kind() const { return kind_; }

  ClientQueue& queue(std::uint32_t slots = 1) {
    const std::byte* leaf = reinterpret_cast<const std::byte*>(row_.data());
    return client_->open(kind_, {&leaf, 1}, slots, os::testing::test_deadline());
  }

  Request submit(std::int64_t value, const std::function<void(Rows&)>& change = {}) {
    for (std::int64_t& number : row_) number = value;
    const std::byte* leaf = reinterpret_cast<const std::byte*>(row_.data());
    Rows rows{.leaves = {&leaf, 1}, .deadline = os::testing::test_deadline()};
    if (change) change(rows);
    return client_->submit(queue(), rows);
  }

  /// The reply's number, all of which are to be the same.
  std::int64_t result(Request& request) {
    if (!client_->wait(request)) return -1;
    client_->check(request);
    std::memcpy(row_.data(), client_->output(request, 0, 0), row_.size() * sizeof row_[0]);
    client_->release(request);
    for (const std::int64_t number : row_) {
      if (number != row_[0]) return -2;
    }
    return row_[0];
  }

  std::int64_t ask(std::int64_t value) {
    Request request = submit(value);
    return result(request);
  }

 private:
  std::unique_ptr<Client> client_;
  RequestKind kind_;
  std::vector<std::int64_t> row_;
};

}  // namespace shoal::serve::testing
