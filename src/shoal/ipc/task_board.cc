#include "shoal/ipc/task_board.h"

#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <utility>

#include "shoal/os/error.h"

namespace shoal::ipc {
namespace {

constexpr std::size_t seat_bytes(std::size_t ring_bytes) {
  return sizeof(SeatWords) + 2 * ring_bytes;
}

}  // namespace

TaskBoard TaskBoard::create(int seats, std::size_t ring_bytes) {
  if (seats < 1)
    throw InvalidArgument(fmt::format("a pool of {} workers: it has at least 1", seats));
  if (!std::has_single_bit(ring_bytes) || ring_bytes < 4096 || ring_bytes > (1u << 30)) {
    throw InvalidArgument(
        fmt::format("rings of {} bytes: a power of two from 4096 to 2^30 is needed", ring_bytes));
  }
  const std::size_t bytes = kSeatsAt + static_cast<std::size_t>(seats) * seat_bytes(ring_bytes);
  TaskBoard board(shm::Arena::create("pool", bytes));
  auto& header = *board.arena_.at<BoardHeader>(0);
  header.version = kVersion;
  header.seats = static_cast<std::uint32_t>(seats);
  header.cells = static_cast<std::uint32_t>(ring_bytes / TaskRing::kCell);
  header.owner = static_cast<std::uint32_t>(::getpid());
  header.magic = kMagic;
  return board;
}

TaskBoard TaskBoard::attach(os::Fd fd) {
  TaskBoard board(shm::Arena::attach(std::move(fd)));
  if (board.arena_.size() < kSeatsAt || board.header().magic != kMagic ||
      board.header().version != kVersion ||
      board.arena_.size() != kSeatsAt + board.header().seats * seat_bytes(board.ring_bytes())) {
    throw Error("attach to a pool: the descriptor is of something else, or of another version");
  }
  return board;
}

std::size_t TaskBoard::seat_at(int index) const {
  SHOAL_CHECK(index >= 0 && index < seats(), "a seat that the board does not have");
  return kSeatsAt + static_cast<std::size_t>(index) * seat_bytes(ring_bytes());
}

SeatWords& TaskBoard::seat(int index) const { return *arena_.at<SeatWords>(seat_at(index)); }

TaskRing TaskBoard::tasks(int index) const {
  return {&seat(index).task_indices,
          arena_.at<std::byte>(seat_at(index) + sizeof(SeatWords), ring_bytes()), header().cells};
}

TaskRing TaskBoard::results(int index) const {
  return {&seat(index).result_indices,
          arena_.at<std::byte>(seat_at(index) + sizeof(SeatWords) + ring_bytes(), ring_bytes()),
          header().cells};
}

}  // namespace shoal::ipc
