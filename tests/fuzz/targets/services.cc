// A model service with a client that lies: in its messages, in the rows of its queue, in its slots and in the
// server's own words. The server goes on, and has nothing left of the client when it has gone.
#include <pthread.h>
#include <unistd.h>

#include <optional>

#include "../input.h"
#include "shoal/os/error.h"
#include "shoal/os/log.h"
#include "shoal/serve/address.h"
#include "shoal/serve/server.h"

namespace shoal::fuzz {
namespace {

using namespace std::chrono_literals;
using serve::MessageKind;

serve::RequestKind rows() {
  return {.inputs = {{shm::DType::kI64, {2}}, {shm::DType::kU8, {3}}}, .structure = {}};
}

/// Echoes rows, and answers whatever else there is to do; false: nothing is to be done.
bool work_once(serve::Server& server, os::Deadline deadline, bool& gone) {
  serve::Work work = server.next(deadline);
  if (std::holds_alternative<serve::NoWork>(work)) return false;
  if (auto* batch = std::get_if<serve::Batch>(&work)) {
    SHOAL_CHECK(batch->rows.size() <= server.max_rows(*batch), "a batch is as large as its queue");
    const serve::RowSpec& spec = server.outputs(*batch);
    for (std::uint32_t row = 0; row < batch->rows.size(); ++row) {
      for (std::size_t leaf = 0; leaf < spec.size(); ++leaf) {
        std::memcpy(server.output(*batch, row, leaf), server.input(*batch, leaf, row),
                    spec[leaf].bytes());
      }
      if (row % 3 == 2) {
        server.fail(*batch, row, "no", 1);
      } else {
        server.reply(*batch, row, 1);
      }
    }
    server.finish(*batch);
  } else if (const auto* probe = std::get_if<serve::Probe>(&work)) {
    server.open_queue(*probe, probe->request.kind.inputs, {});
  } else if (const auto* command = std::get_if<serve::ServerCommand>(&work)) {
    server.answer(*command, {});
  } else if (std::holds_alternative<serve::ClientGone>(work)) {
    gone = true;
  }
  return true;
}

/// Where servers say that they are ready; of all inputs, one after the other.
struct Frontend {
  const std::string address = serve::fresh_address();
  const os::Fd listener = serve::listen_at(address + ".link");

  static const Frontend& the() {
    static const Frontend one;
    return one;
  }
};

/// The frontend's end of one server, and a client of it that knows nothing of classes.
class Liar {
 public:
  Liar() {
    const Frontend& frontend = Frontend::the();
    server_.emplace(serve::ServerOptions{
        .address = frontend.address, .models = {{.name = "echo", .max_batch = 3}}, .max_slots = 3});
    link_ = os::SeqPacket(serve::accept_from(frontend.listener));
    static_cast<void>(link_.recv(message_, soon()));  // ready
    auto [ours, theirs] = os::SeqPacket::pair();
    socket_ = std::move(ours);
    const int fd = theirs.fd();
    static_cast<void>(link_.send(serve::encode_admit(), {&fd, 1}, soon()));
    static_cast<void>(socket_.recv(message_, soon()));  // hello
    if (!message_.fds.empty()) segment_ = map(std::move(message_.fds[0]));
  }

  void act(Input& input) {
    switch (input.take<std::uint8_t>() % 8) {
      case 0:
        return ask(serve::Open{.kind = rows(), .slots = 2, .example = Bytes(19)}.encode());
      case 1: {
        const auto bytes = input.take_part();
        return ask(bytes);
      }
      case 2:
        return write(segment_, input);
      case 3:
        return write(queue_, input);
      case 4:
        return write(slots_, input);
      case 5:
        return submit(input);
      default:
        work();
    }
  }

  /// Until the server knows that its client has gone.
  void leave() {
    socket_.shutdown();
    for (int i = 0; i < 200 && !gone_; ++i) work_once(*server_, os::deadline_after(10ms), gone_);
    SHOAL_CHECK(gone_, "the server learns that a client has gone");
  }

 private:
  static os::Deadline soon() { return os::deadline_after(10s); }
  static os::Mapping map(os::Fd fd) {
    return os::Mapping::map(os::Memfd::open(std::move(fd)), "what a client was given");
  }

  void work() {
    for (int i = 0; i < 8 && work_once(*server_, os::Clock::now(), gone_); ++i) {
    }
  }

  /// Sends a message, and takes what is answered. The server's thread rings for each message that it has heard.
  void ask(std::span<const std::byte> bytes) {
    if (!segment_) return;  // this process stood still for long
    sync::Doorbell& bell =
        reinterpret_cast<serve::ServerSegmentHeader*>(segment_.data() + shm::kArenaHeaderBytes)
            ->work;
    const std::uint32_t seen = bell.generation();
    if (socket_.send(bytes, {}, os::Clock::now()) != os::SendOutcome::kSent) return;
    static sync::SpinPolicy spin({.group_size = 2});
    static_cast<void>(bell.wait(seen, spin, os::deadline_after(kHeard)));
    work_once(*server_, os::Clock::now(), gone_);
    try {
      const auto outcome = socket_.recv(message_, os::Clock::now());
      if (outcome == os::RecvOutcome::kMessage && message_.fds.size() == 2) {
        queue_ = map(std::move(message_.fds[0]));
        slots_ = map(std::move(message_.fds[1]));
      }
    } catch (const Error&) {
    }
  }

  static void write(const os::Mapping& mapping, Input& input) {
    const std::size_t at = input.take<std::uint32_t>();
    const auto bytes = input.take_bytes(input.take<std::uint8_t>() % 65);
    if (!mapping || at >= mapping.size()) return;
    std::copy_n(bytes.begin(), std::min(bytes.size(), mapping.size() - at), mapping.data() + at);
  }

  /// As an honest client would, but with any numbers.
  void submit(Input& input) {
    if (!queue_ || !slots_) return;
    auto* header =
        reinterpret_cast<serve::RequestQueueHeader*>(queue_.data() + shm::kArenaHeaderBytes);
    auto* slots =
        reinterpret_cast<serve::ClientSlotsHeader*>(slots_.data() + shm::kArenaHeaderBytes);
    const std::uint32_t open = header->open.load();
    if (open == 0 || open > 4) return;
    slots->claiming.store(open);
    // A buffer's head, then its three cells.
    std::byte* const buffer = queue_.data() + shm::kArenaHeaderBytes +
                              sizeof(serve::RequestQueueHeader) + (open - 1) * kBytesOfBuffer;
    auto* claims = reinterpret_cast<serve::BufferHeader*>(buffer);
    const sync::RowRange range = claims->claims.claim(1, 3);
    if (range.count == 1) {
      auto& cell = reinterpret_cast<serve::RowCell*>(buffer + 128)[range.first];
      auto* replies = reinterpret_cast<serve::SlotCell*>(slots + 1);
      const std::uint32_t slot = input.take<std::uint8_t>() % 3;
      cell.client_slots = slots->id + input.take<std::uint8_t>() / 200;
      cell.slot = slot;
      cell.generation = slot < 2 ? replies[slot].word.queue() : 1;
      cell.deadline_ns = input.take<std::uint8_t>() / 250;
      cell.flags = input.take<std::uint8_t>();
      cell.word.ready();
    }
    if (input.take<std::uint8_t>() % 8 != 0) slots->claiming.store(0);
  }

  static constexpr auto kHeard = 2ms;  // where the bell was lied about
  static constexpr std::size_t kBytesOfBuffer = 128 + 4 * sizeof(serve::RowCell);

  std::optional<serve::Server> server_;
  os::SeqPacket link_, socket_;
  os::Message message_;
  os::Mapping segment_, queue_, slots_;
  bool gone_ = false;
};

}  // namespace

std::vector<Bytes> seeds() {
  os::set_log_level(os::LogLevel::kOff);
  // Of each server's thread: a sanitizer clears the shadow of all of it, and has eleven more of its size.
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, std::size_t{256} << 10);
  ::pthread_setattr_default_np(&attributes);
  ::pthread_attr_destroy(&attributes);
  const std::uint8_t opens = 0, says = 1, queue = 3, slots = 4, submits = 5, works = 6;
  const Bytes open = serve::Open{.kind = rows(), .slots = 2, .example = Bytes(19)}.encode();
  const auto lie = [](std::uint8_t where, std::uint32_t at, std::uint32_t value) {
    return Output()
        .put(std::uint8_t{0})
        .put(where)
        .put(at)
        .put(std::uint8_t{4})
        .put(value)
        .put(std::uint8_t{5})
        .put(std::uint32_t{0})
        .put(std::uint8_t{1})
        .put(std::uint8_t{6})
        .take();
  };
  const std::uint32_t base = shm::kArenaHeaderBytes;
  return {
      Output().put(opens).put(submits).put(std::uint32_t{0}).put(std::uint8_t{1}).put(works).take(),
      Output().put(says).put_part(open).put(works).take(),
      Output().put(opens).put(says).put_part(serve::Leave{1}.encode()).put(works).take(),
      lie(queue, base + offsetof(serve::RequestQueueHeader, open), 77),
      lie(queue, base + sizeof(serve::RequestQueueHeader), 0x7fffffff),
      lie(slots, base + offsetof(serve::ClientSlotsHeader, id), 9),
      lie(slots, base + offsetof(serve::ClientSlotsHeader, claiming), 1)};
}

}  // namespace shoal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  shoal::fuzz::Liar liar;
  shoal::fuzz::Input input(data, size);
  for (int acts = 0; acts < 24 && !input.empty(); ++acts) liar.act(input);
  liar.leave();
  return 0;
}
