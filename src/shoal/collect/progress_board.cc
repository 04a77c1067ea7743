#include "shoal/collect/progress_board.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "shoal/os/error.h"

namespace shoal::collect {

ProgressBoard ProgressBoard::create(int collectors) {
  if (collectors < 1) throw InvalidArgument(fmt::format("a board for {} collectors", collectors));
  const std::size_t bytes = static_cast<std::size_t>(collectors) * sizeof(ProgressLine::Words);
  ipc::Block block = ipc::Block::allocate(bytes);
  std::memset(block.data(), 0, bytes);  // nobody else knows it yet
  return ProgressBoard(std::move(block));
}

ProgressLine ProgressBoard::line(int collector) const {
  if (collector < 0 || collector >= collectors()) {
    throw InvalidArgument(fmt::format("collector {} of a board for {}", collector, collectors()));
  }
  return ProgressLine(reinterpret_cast<ProgressLine::Words*>(block_.data())[collector]);
}

}  // namespace shoal::collect
