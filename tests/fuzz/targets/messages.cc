// Messages between processes of one run: of launchers, workers, pools, and the model service.
#include "shoal/serve/messages.h"

#include "../input.h"
#include "shoal/os/error.h"
#include "shoal/process/boot/wire.h"
#include "shoal/process/error_report.h"
#include "shoal/process/identity/worker_setup.h"
#include "shoal/vector/workers/pool_messages.h"

namespace shoal::fuzz {
namespace {

namespace wire = process::wire;
using process::ByteReader;
using process::ErrorReport;

void read_control(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  switch (wire::read_header(reader).kind) {
    case wire::Kind::kSetup:
      return static_cast<void>(wire::decode_setup(reader));
    case wire::Kind::kReady:
      return static_cast<void>(wire::decode_ready(reader));
    case wire::Kind::kStart:
      return static_cast<void>(wire::decode_start(reader));
    case wire::Kind::kExited:
      return static_cast<void>(wire::decode_exited(reader));
    default:
      static_cast<void>(ErrorReport::decode(reader.bytes()));
  }
}

void read_pool(std::span<const std::byte> bytes) {
  const auto message = vector::PoolMessage::decode(bytes);
  switch (message.kind) {
    case vector::PoolKind::kHello: {
      const vector::Hello hello = vector::decode_hello(message.bytes);
      static_cast<void>(hello.observation_space.repr());
      return;
    }
    case vector::PoolKind::kFaults:
    case vector::PoolKind::kClosed:
      return static_cast<void>(vector::decode_reports(message.bytes));
    default:
      SHOAL_CHECK(vector::PoolMessage::decode(message.encode()).bytes == message.bytes,
                  "a message is what was written");
  }
}

void read_service(std::span<const std::byte> bytes) {
  using serve::MessageKind;
  switch (serve::kind_of(bytes)) {
    case MessageKind::kHello:
      return static_cast<void>(serve::Hello::decode(bytes));
    case MessageKind::kEndNotice:
      return static_cast<void>(serve::EndNotice::decode(bytes));
    case MessageKind::kOpen: {
      const auto open = serve::Open::decode(bytes);
      SHOAL_CHECK(serve::row_bytes(open.kind.inputs) < std::size_t{1} << 50,
                  "rows can be laid out");
      SHOAL_CHECK(serve::Open::decode(open.encode()).kind == open.kind,
                  "a kind is what was written");
      return;
    }
    case MessageKind::kOpened:
      return static_cast<void>(serve::describe(serve::Opened::decode(bytes).outputs));
    case MessageKind::kRefused:
      return static_cast<void>(serve::Refused::decode(bytes));
    case MessageKind::kLeave:
      return static_cast<void>(serve::Leave::decode(bytes));
    case MessageKind::kReady:
      return static_cast<void>(serve::Ready::decode(bytes));
    case MessageKind::kSegments:
      return static_cast<void>(serve::Segments::decode(bytes));
    default:
      return static_cast<void>(serve::Command::decode(bytes));
  }
}

void read(Input input) {
  const auto which = input.take<std::uint8_t>() % 5;
  const auto bytes = input.rest();
  ByteReader reader(bytes);
  switch (which) {
    case 0:
      return read_control(bytes);
    case 1:
      if (const auto report = ErrorReport::decode(bytes)) {
        static_cast<void>(report->describe());
        static_cast<void>(ErrorReport::decode(report->encode()).value());
      }
      return;
    case 2:
      return read_pool(bytes);
    case 3:
      return read_service(bytes);
    default:
      return static_cast<void>(process::WorkerSetup::read(reader));
  }
}

Bytes seed(std::uint8_t which, std::span<const std::byte> bytes) {
  return Output().put(which).put_bytes(bytes).take();
}

}  // namespace

std::vector<Bytes> seeds() {
  ErrorReport report;
  report.type = "ValueError";
  report.message = "no";
  report.last_seed = 7;
  const ErrorReport reports[] = {report, report};
  const vector::Hello hello{env::float_box({-1, -2}, {1, 2}), env::Discrete{3}, {}};
  process::ByteWriter setup;
  process::WorkerSetup worker;
  worker.gpus = {"0", "1"};
  worker.write(setup);
  const auto pool = [](vector::PoolKind kind, std::vector<std::byte> bytes) {
    return vector::PoolMessage{.kind = kind, .session = 1, .count = 2, .bytes = std::move(bytes)}
        .encode();
  };
  const serve::RowSpec rows{{shm::DType::kF32, {4}}, {shm::DType::kU8, {8, 8, 3}}};
  std::vector<Bytes> all{
      seed(0, wire::encode(wire::Setup{.preload = {"numpy"}, .bootstrap = {}, .line = "a"})),
      seed(0, wire::encode(wire::Ready{12, 256})),
      seed(0, wire::encode(wire::Start{.name = "worker 0", .entry = "e", .payload = {}}, 5)),
      seed(0, wire::encode(wire::Exited{12, 1, 9}, 5)),
      seed(1, report.encode()),
      seed(2, pool(vector::PoolKind::kHello, vector::encode_hello(hello))),
      seed(2, pool(vector::PoolKind::kFaults, vector::encode_reports(reports))),
      seed(2, pool(vector::PoolKind::kReply, {std::byte{1}})),
      seed(3, serve::Hello{{"policy", "value"}}.encode()),
      seed(3, serve::EndNotice{"it is closed"}.encode()),
      seed(3, serve::Open{.kind = {.inputs = rows, .structure = {}}, .example = {}}.encode()),
      seed(3, serve::Opened{rows, {}}.encode()),
      seed(3, serve::Refused{serve::RefusalKind::kInvalid, "no", "at line 1"}.encode()),
      seed(3, serve::Leave{3}.encode()),
      seed(3, serve::Segments{2, 1}.encode()),
      seed(3, serve::Ready{1}.encode()),
      seed(3, serve::Command{4, {std::byte{2}}}.encode(serve::MessageKind::kCommand))};
  all.push_back(seed(4, setup.take()));
  return all;
}

}  // namespace shoal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return shoal::fuzz::refused_at_most([&] { shoal::fuzz::read({data, size}); });
}
