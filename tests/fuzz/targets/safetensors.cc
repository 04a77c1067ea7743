// A file of arrays: what is read lies inside it, and is written again as it was.
#include "shoal/learn/checkpoint/safetensors.h"

#include "../input.h"

namespace shoal::fuzz {
namespace {

using learn::SafeTensor;
using learn::SafeTensors;

void read(std::span<const std::byte> bytes) {
  const SafeTensors file = SafeTensors::parse({bytes.begin(), bytes.end()}, "the input");
  std::vector<SafeTensor> arrays;
  for (const auto& [name, view] : file.tensors()) {
    SHOAL_CHECK(view.bytes.size() == view.spec.bytes(), "an array is as large as its shape");
    const std::byte* const begin = file.bytes().data();
    SHOAL_CHECK(view.bytes.empty() ||
                    (view.bytes.data() >= begin &&
                     view.bytes.data() + view.bytes.size() <= begin + file.bytes().size()),
                "an array lies inside its file");
    arrays.push_back({name, view.spec, view.bytes});
  }
  const SafeTensors again =
      SafeTensors::parse(learn::serialize_safetensors(arrays, file.metadata()), "what was written");
  SHOAL_CHECK(again.tensors().size() == file.tensors().size(), "no array is lost");
  for (const auto& [name, view] : file.tensors()) {
    SHOAL_CHECK(std::ranges::equal(again.at(name, view.spec).bytes, view.bytes),
                "an array is what it was");
  }
}

}  // namespace

std::vector<Bytes> seeds() {
  const std::vector<float> floats(6, 0.5F);
  const std::vector<std::int64_t> integers{-1, 7};
  const std::vector<SafeTensor> arrays{
      {"actor.0.weight", {shm::DType::kF32, {2, 3}}, std::as_bytes(std::span(floats))},
      {"steps", {shm::DType::kI64, {2}}, std::as_bytes(std::span(integers))},
      {"nothing", {shm::DType::kU8, {0, 4}}, {}}};
  return {learn::serialize_safetensors(arrays, {{"format", "pt"}}),
          learn::serialize_safetensors({}, {})};
}

}  // namespace shoal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return shoal::fuzz::refused_at_most(
      [&] { shoal::fuzz::read(std::as_bytes(std::span(data, size))); });
}
