// Files that are named as plug-ins, and what a plug-in registers. The marks that a file has are read before
// any of its code runs; a file whose marks are right is the loader's.
#include <unistd.h>

#include "../input.h"
#include "shoal/env/plugin.h"
#include "shoal/env/register_env.h"
#include "shoal/os/error.h"
#include "shoal/os/memory/memfd.h"

namespace shoal::fuzz {
namespace {

void read(Input input) {
  if (input.take<std::uint8_t>() % 4 != 0) {
    const auto bytes = input.rest();
    const auto mark = std::as_bytes(std::span(&env::kPluginMark, 1));
    if (!std::ranges::search(bytes, mark).empty()) return;
    const os::Memfd file = os::Memfd::create_readonly("a plug-in", bytes);
    static_cast<void>(env::load_plugin("/proc/self/fd/" + std::to_string(file.fd())));
    return;
  }
  const auto limit = input.take<std::int32_t>();
  const std::string id = input.rest_text();
  env::register_env({.id = id, .max_episode_steps = limit},
                    [](int, int, const auto&) { return nullptr; });
  SHOAL_CHECK(env::find_env(id).max_episode_steps == limit, "what was registered is found");
  env::internal::unregister_env(id);
}

}  // namespace

std::vector<Bytes> seeds() {
  env::PluginMark other = env::kPluginMark;
  ++other.interface;
  return {Output()
              .put(std::uint8_t{1})
              .put_text("\x7f"
                        "ELF")
              .put(other)
              .take(),
          Output().put(std::uint8_t{0}).put(std::int32_t{100}).put_text("mine/Coin-v0").take()};
}

}  // namespace shoal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return shoal::fuzz::refused_at_most([&] { shoal::fuzz::read({data, size}); });
}
