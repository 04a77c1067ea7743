#include "shoal/serve/backend.h"

#include <cstring>
#include <exception>

#include "shoal/serve/errors.h"

namespace shoal::serve {
namespace {

void answer(Server& server, const Probe& probe, Backend& backend) {
  try {
    server.open_queue(probe, backend.outputs(probe.request.kind, probe.request.example), {});
  } catch (const ModelError& error) {
    server.refuse(probe, {RefusalKind::kModelError, error.what(), error.traceback()});
  }
}

void answer(Server& server, Batch& batch, Backend& backend) {
  std::string text;
  try {
    backend.run(server, batch);
  } catch (const std::exception& error) {
    text = error.what();
  }
  for (std::uint32_t row = 0; row < batch.rows.size() && !text.empty(); ++row) {
    if (!batch.rows[row].answered) server.fail(batch, row, text, 0);
  }
  server.finish(batch);
}

}  // namespace

RowSpec EchoBackend::outputs(const RequestKind& kind, std::span<const std::byte>) {
  return kind.inputs;
}

void EchoBackend::run(Server& server, Batch& batch) {
  const RowSpec& spec = server.outputs(batch);
  for (std::uint32_t row = 0; row < batch.rows.size(); ++row) {
    for (std::size_t leaf = 0; leaf < spec.size(); ++leaf) {
      std::memcpy(server.output(batch, row, leaf), server.input(batch, leaf, row),
                  spec[leaf].bytes());
    }
    server.reply(batch, row, 1);
  }
}

void run(Server& server, std::span<const std::unique_ptr<Backend>> backends) {
  for (;;) {
    Work work = server.next();
    if (auto* batch = std::get_if<Batch>(&work)) {
      answer(server, *batch, *backends[batch->model]);
    } else if (const auto* probe = std::get_if<Probe>(&work)) {
      answer(server, *probe, *backends[probe->request.kind.model]);
    } else if (const auto* command = std::get_if<ServerCommand>(&work)) {
      server.answer(*command, {});  // native backends take no commands
    } else if (std::holds_alternative<ServerEnd>(work)) {
      return;
    }
  }
}

}  // namespace shoal::serve
