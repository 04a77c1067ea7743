// Collectors on other hosts: what they and their learner say to each other, behind the secret and before it.
#include "../input.h"
#include "shoal/group/connection/compression.h"
#include "shoal/group/connection/hello.h"
#include "shoal/group/sha256.h"
#include "shoal/learn/remote/remote_messages.h"
#include "shoal/os/error.h"

namespace shoal::fuzz {
namespace {

using group::Challenge;
using group::HelloKind;
using learn::CollectedRollout;
using learn::RemoteHead;
using learn::RemoteKind;

enum class What : std::uint8_t { kHello, kRemote };

CollectedRollout make_room() {
  const std::vector<shm::TensorSpec> obs{{shm::DType::kF32, {3}}, {shm::DType::kU8, {1, 36, 36}}};
  return {.rollout = {2, 2, obs, {shm::DType::kI32, {1}}},
          .obs_moments = collect::RunningMoments(3)};
}

learn::Normalizers normalizers() {
  return {collect::RunningMoments(3), collect::RunningMoments(1)};
}

constexpr std::string_view kVersion = "shoal connection 1";

Bytes sealed(std::span<const std::byte> body) {
  return group::sealed({body.begin(), body.end()}, kVersion, Challenge{}, "secret");
}

Bytes without_seal(Bytes message) {
  message.resize(message.size() - sizeof(group::Digest));
  return message;
}

void read_hello(std::span<const std::byte> bytes) {
  switch (static_cast<HelloKind>(group::kind_byte_of(bytes))) {
    case HelloKind::kChallenge:
      return static_cast<void>(group::unpack_hello_challenge(bytes));
    case HelloKind::kHello: {
      const group::Hello hello = group::unpack_hello(sealed(bytes), {}, "secret");
      const group::Hello again =
          group::unpack_hello(group::pack(hello, {}, "secret"), {}, "secret");
      SHOAL_CHECK(again.run == hello.run && again.pid == hello.pid, "a hello is what was written");
      return;
    }
    case HelloKind::kWelcome:
      return static_cast<void>(group::unpack_admission(sealed(bytes), {}, "secret"));
    case HelloKind::kRefused:
      return static_cast<void>(group::unpack_hello_refusal(bytes));
    case HelloKind::kFarewell:
      return static_cast<void>(group::unpack_hello_farewell(bytes));
    default:
      return;
  }
}

void read_remote(std::span<const std::byte> bytes) {
  const auto opened = learn::open_remote(bytes);
  if (opened.kind == RemoteKind::kWork) {
    learn::Normalizers told = normalizers();
    static_cast<void>(learn::unpack_work(opened.rest, told));
  } else if (opened.kind == RemoteKind::kRollout) {
    CollectedRollout room = make_room();
    learn::NormalizerNews news;
    const std::vector<std::int64_t> categories{2};
    learn::unpack_rollout(opened.rest, categories, room, news);
    learn::Normalizers told = normalizers();
    learn::merge(news.obs, told.obs);
    learn::merge(news.rewards, told.rewards);
  }
}

void read(Input input) {
  if (static_cast<What>(input.take<std::uint8_t>() % 2) == What::kHello) {
    read_hello(input.rest());
  } else {
    read_remote(input.rest());
  }
}

Bytes of(What what, const Bytes& message) {
  return Output().put(static_cast<std::uint8_t>(what)).put_bytes(message).take();
}

}  // namespace

std::vector<Bytes> seeds() {
  const group::Hello hello{.version = "1", .purpose = "collect", .run = "r", .host = "h", .pid = 7};
  std::vector<Bytes> all;
  for (const Bytes& message :
       {group::pack_hello_challenge({}), without_seal(group::pack(hello, {}, "")),
        without_seal(group::pack(group::Admission{"h", 7, Bytes(3)}, {}, "")),
        group::pack_hello_refusal("no"), group::pack(group::Farewell{"the end", true})})
    all.push_back(of(What::kHello, message));
  const RemoteHead head{"a run", 2, 5};
  const std::vector<float> weights(4, 0.5F);
  CollectedRollout room = make_room();
  room.finished = {{1, 2.5, 3}};
  const learn::NormalizerNews news{std::vector<double>(7, 1.0), std::vector<double>(3, 1.0)};
  all.push_back(of(What::kRemote, learn::pack_ready(head)));
  all.push_back(of(What::kRemote, learn::pack_work(head, weights, normalizers())));
  for (const bool compress : {false, group::can_compress()})
    all.push_back(of(What::kRemote, learn::pack_rollout(head, room, news, compress)));
  return all;
}

}  // namespace shoal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return shoal::fuzz::refused_at_most([&] { shoal::fuzz::read({data, size}); });
}
