#include "shoal/serve/remote/relay.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "shoal/group/connection/message_client.h"
#include "shoal/os/error.h"
#include "shoal/os/process/making_process.h"
#include "shoal/process/self/own_thread.h"
#include "shoal/serve/remote/env_numbers.h"
#include "shoal/serve/server.h"

namespace shoal::serve {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::chrono::milliseconds kSlice{100};

/// The end of the relay, with its reason.
class RelayEnd : public Error {
 public:
  using Error::Error;
};

ServerOptions server_options(const Relay::Options& options, const Terms& terms) {
  ServerOptions server{.address = options.address,
                       .instance = options.instance,
                       .models = {},
                       .most_aside = terms.most_under_way};
  for (const std::string& model : terms.models) {
    server.models.push_back({.name = model,
                             .max_batch = std::min(terms.max_batch, terms.most_rows),
                             .max_delay = terms.max_delay});
  }
  return server;
}

std::uint64_t deadline_left(std::uint64_t deadline_ns, std::uint64_t now) {
  if (deadline_ns == 0) return 0;
  return std::max<std::uint64_t>(1, deadline_ns - std::min(now, deadline_ns));
}

}  // namespace

struct Relay::Impl {
  struct Queue {
    QueueState* state = nullptr;
    RowSpec inputs;
    RowSpec outputs;
  };

  explicit Impl(const Options& options);
  group::MessageClient::Options connection(const Options& options);
  void close() noexcept;
  void interrupt() noexcept;
  void run() noexcept;
  void serve();
  void take_in();
  void hear(Bytes& message);
  void pass_on(Batch batch);
  void hand_out(std::span<const std::byte> message);
  void ask_for_queue(const Probe& probe);
  bool hear_of_queue(const Probe& probe, Bytes& message);

  const os::MakingProcess maker_;
  const std::string where_;  // "host:port"
  mutable std::mutex mutex_;
  std::unique_ptr<Server> server_;  // the thread's; taken away by it under the mutex
  std::string end_reason_;          // under the mutex
  std::atomic<bool> closing_ = false;
  group::MessageClient connection_;
  Terms terms_;

  // The thread's.
  std::vector<Queue> queues_;
  std::map<std::uint64_t, AsideBatch> under_way_;
  std::uint64_t next_batch_ = 1;
  EnvNumbers envs_;
  std::mutex joining_;
  std::thread thread_;  // under joining_
};

Relay::Relay(Options options) : impl_(std::make_unique<Impl>(options)) {}

Relay::~Relay() {
  if (impl_->maker_.is_this())
    impl_->close();
  else
    os::abandon(std::move(impl_));
}

const Terms& Relay::terms() const noexcept { return impl_->terms_; }

std::string Relay::end_reason() const {
  const std::lock_guard lock(impl_->mutex_);
  return impl_->end_reason_;
}

void Relay::close() noexcept {
  if (impl_->maker_.is_this()) impl_->close();
}

group::MessageClient::Options Relay::Impl::connection(const Options& options) {
  group::MessageClient::Options connection;
  connection.host = options.host;
  connection.port = options.port;
  connection.secret = options.secret;
  connection.who = "the model service";
  connection.hello.version = options.version;
  connection.hello.purpose = kAskModels;
  connection.timeout = options.timeout;
  connection.longest = kLongestRemote;
  connection.look = options.look;
  connection.came = [this] { interrupt(); };
  return connection;
}

Relay::Impl::Impl(const Options& options)
    : where_(fmt::format("{}:{}", options.host, options.port)),
      connection_(connection(options)),
      terms_(read_terms(connection_.content())) {
  {
    const std::lock_guard lock(mutex_);
    server_ = std::make_unique<Server>(server_options(options, terms_));
    server_->interrupt();  // for what the other side has said before
  }
  thread_ = std::thread([this] { run(); });
}

void Relay::Impl::close() noexcept {
  const std::lock_guard lock(joining_);
  if (!thread_.joinable()) return;
  closing_.store(true, std::memory_order_release);
  interrupt();
  thread_.join();
}

void Relay::Impl::interrupt() noexcept {
  const std::lock_guard lock(mutex_);
  if (server_) server_->interrupt();
}

void Relay::Impl::run() noexcept {
  const process::OwnThread own("shoal-relay");
  std::string reason;
  try {
    serve();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  connection_.leave({"it needs the models no more", true});
  std::unique_ptr<Server> ended;  // after the lock: whoever sees its end can ask for the reason
  const std::lock_guard lock(mutex_);
  end_reason_ = std::move(reason);
  ended = std::move(server_);
}

void Relay::Impl::serve() {
  while (!closing_.load(std::memory_order_acquire)) {
    Work work = server_->next();
    take_in();
    if (auto* batch = std::get_if<Batch>(&work)) {
      pass_on(std::move(*batch));
    } else if (const auto* probe = std::get_if<Probe>(&work)) {
      ask_for_queue(*probe);
    } else if (const auto* gone = std::get_if<ClientGone>(&work)) {
      envs_.forget(gone->client, next_batch_ - 1);
    } else if (const auto* command = std::get_if<ServerCommand>(&work)) {
      server_->answer(*command, {});
    } else if (std::holds_alternative<ServerEnd>(work)) {
      return;
    }
  }
}

/// All messages that are there.
void Relay::Impl::take_in() {
  Bytes message;
  while (connection_.recv(message, os::Deadline::min()) != group::MessageClient::Got::kNothing) {
    hear(message);
  }
}

/// A message, or where that is empty the farewell. Throws RelayEnd.
void Relay::Impl::hear(Bytes& message) {
  if (message.empty()) {
    throw RelayEnd(
        fmt::format("the model service at {} has ended: {}", where_, connection_.farewell().why));
  }
  switch (remote_kind_of(message)) {
    case RemoteKind::kReplies:
      hand_out(message);
      break;
    case RemoteKind::kEnded:
      throw RelayEnd(fmt::format("at {}: {}", where_, read_ended(message)));
    default:
      throw Error("the other side of a model service sent what nobody asked for");
  }
  message.clear();
}

void Relay::Impl::pass_on(Batch batch) {
  const auto queue = std::ranges::find(queues_, batch.queue, &Queue::state);
  const RemoteBatch head{.queue = static_cast<std::uint32_t>(queue - queues_.begin()),
                         .rows = static_cast<std::uint32_t>(batch.rows.size()),
                         .number = next_batch_++};
  const std::uint64_t now = os::now_ns();
  std::vector<RowTag> tags;
  for (const BatchRow& row : batch.rows) {
    const auto [env, is_new] = envs_.of(batch.model, row.client, row.env);
    tags.push_back({.env = env,
                    .flags = row.reset || is_new ? RowTag::kReset : 0,
                    .age_ns = now - std::min(now, row.submitted_ns),
                    .left_ns = deadline_left(row.deadline_ns, now)});
  }
  Bytes message = pack_rows(head, tags, queue->inputs, [&](std::size_t leaf, std::uint32_t row) {
    return server_->input(batch, leaf, row);
  });
  under_way_.emplace(head.number, server_->set_aside(std::move(batch)));
  connection_.send(std::move(message));
}

void Relay::Impl::hand_out(std::span<const std::byte> message) {
  const RemoteBatch head = batch_of(message);
  const auto found = under_way_.find(head.number);
  if (found == under_way_.end() || head.queue >= queues_.size() ||
      queues_[head.queue].state != found->second.batch.queue ||
      head.rows != found->second.batch.rows.size()) {
    throw Error("the other side of a model service sent replies to what nobody asked");
  }
  const RowSpec& spec = queues_[head.queue].outputs;
  const RepliesView replies = view_replies(message, spec);
  Batch batch = server_->take_back(std::move(found->second));
  under_way_.erase(found);
  std::uint64_t newest = 0;
  for (std::uint32_t row = 0; row < head.rows; ++row) {
    const ReplyTag& tag = replies.tags[row];
    newest = std::max(newest, tag.version);
    if (batch.rows[row].slots == nullptr) continue;  // its client has gone
    if (tag.status == ReplyStatus::kDeadlineExceeded) {
      server_->expire(batch, row);
    } else if (tag.status == ReplyStatus::kModelError) {
      server_->fail(batch, row, replies.texts[row], tag.version);
    } else {
      for (std::size_t leaf = 0; leaf < spec.size(); ++leaf) {
        const std::size_t bytes = spec[leaf].bytes();
        std::memcpy(server_->output(batch, row, leaf), replies.leaves[leaf] + row * bytes, bytes);
      }
      server_->reply(batch, row, tag.version);
    }
  }
  auto& version = server_->statistics(batch.model).version;
  // Relaxed: a number to look at.
  if (newest > version.load(std::memory_order_relaxed))
    version.store(newest, std::memory_order_relaxed);
  server_->finish(batch);
  envs_.came_back(under_way_.empty() ? next_batch_ : under_way_.begin()->first);
}

void Relay::Impl::ask_for_queue(const Probe& probe) {
  const auto refuse = [&](const std::string& why) {
    server_->refuse(probe, {RefusalKind::kInvalid, why, ""});
  };
  const RequestKind& kind = probe.request.kind;
  if (!may_cross(kind.structure)) {
    return refuse(
        "the arguments have dicts with keys that cannot cross to another host: use str, int, "
        "float, "
        "bool, bytes, None, or tuples of these");
  }
  if (!fits_remote(kind.inputs, std::min(terms_.max_batch, terms_.most_rows))) {
    return refuse(fmt::format(
        "a batch of {} rows of {} is more than the {} MiB that cross to another host at once: make "
        "max_batch smaller where the service is",
        terms_.max_batch, describe(kind.inputs), kLongestRemote >> 20));
  }
  connection_.send(pack_remote(RemoteKind::kOpen, static_cast<std::uint32_t>(queues_.size()),
                               probe.request.encode()));
  Bytes message;
  for (;;) {
    if (connection_.recv(message, os::deadline_after(kSlice)) ==
        group::MessageClient::Got::kNothing) {
      if (closing_.load(std::memory_order_acquire)) throw RelayEnd("it was closed");
    } else if (message.empty() || !hear_of_queue(probe, message)) {
      hear(message);
    } else {
      return;
    }
  }
}

/// Whether the message answers the probe.
bool Relay::Impl::hear_of_queue(const Probe& probe, Bytes& message) {
  const RemoteKind kind = remote_kind_of(message);
  if (kind == RemoteKind::kRefused) {
    server_->refuse(probe, Refused::decode(read_remote(message).encoded));
    return true;
  }
  if (kind != RemoteKind::kOpened) return false;
  Opened opened = Opened::decode(read_remote(message).encoded);
  if (!may_cross(opened.structure) || !fits_remote(opened.outputs, terms_.most_rows))
    throw Error("the other side of a model service sent answers that cannot cross");
  Queue queue{.state = nullptr, .inputs = probe.request.kind.inputs, .outputs = opened.outputs};
  queue.state = server_->open_queue(probe, std::move(opened.outputs), std::move(opened.structure));
  queues_.push_back(std::move(queue));
  return true;
}

}  // namespace shoal::serve
