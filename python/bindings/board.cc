// shoal._core.board: what objects count for those who look from outside, and how it is read.
#include "shoal/shm/board.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "bindings.h"
#include "shoal/os/clock.h"
#include "shoal/os/error.h"
#include "shoal/vector/env_board.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

os::Fd copy_of(int fd) {
  os::Fd copy(::dup(fd));
  if (!copy) throw SystemError("copy the descriptor of a board");
  return copy;
}

double seconds_since(std::uint64_t ns) {
  const std::uint64_t now = os::now_ns();
  return now > ns ? static_cast<double>(now - ns) * 1e-9 : 0.0;
}

nb::dict read(int fd) {
  const shm::BoardReading reading = shm::Board::read(copy_of(fd));
  nb::dict counters;
  for (const auto& [name, value] : reading.counters) counters[nb::str(name.c_str())] = value;
  nb::dict made;
  made["kind"] = reading.kind;
  made["title"] = reading.title;
  made["pid"] = reading.pid;
  made["runs"] = shm::start_of_process(reading.pid) == reading.born;
  made["ended"] = reading.ended;
  made["seconds"] = seconds_since(reading.started_ns);
  made["counters"] = counters;
  return made;
}

nb::list observe_workers(int fd) {
  nb::list workers;
  for (const vector::ObservedWorker& worker : vector::observe_workers(copy_of(fd))) {
    nb::dict made;
    made["steps"] = worker.steps;
    made["busy_ns"] = worker.busy_ns;
    made["env"] = worker.env;
    made["in_reset"] = worker.in_reset;
    made["seconds"] = seconds_since(worker.since_ns);
    workers.append(made);
  }
  return workers;
}

}  // namespace

void bind_board(nb::module_& parent) {
  nb::module_ module = parent.def_submodule("board", "What objects count, for `shoal stat`.");
  nb::class_<shm::Board>(module, "Board", "Counters that any process of the user may read.")
      .def(
          "__init__",
          [](shm::Board* self, const std::string& kind, const std::vector<std::string>& names) {
            new (self) shm::Board(kind, names);
          },
          "kind"_a, "names"_a)
      .def(
          "set",
          [](const shm::Board& board, std::size_t index, std::int64_t value) {
            if (index >= board.size()) throw nb::index_error("a board has no such counter");
            board[index].set(value);
          },
          "index"_a, "value"_a, "The counter with this index in `names`.")
      .def(
          "set_title", [](shm::Board& board, const std::string& title) { board.set_title(title); },
          "title"_a)
      .def("end", &shm::Board::end, "What it is for is no more.");
  module.attr("NAME") = shm::kBoardName;
  module.def("read", &read, "fd"_a,
             "A board as it reads now: `kind`, `title`, `pid` and whether that process `runs`, "
             "`ended`, `seconds` since it was made, and `counters`.");
  module.def("observe_workers", &observe_workers, "fd"_a,
             "The workers of a vector environment, of its segment: `steps`, `busy_ns`, the `env` "
             "whose code runs (-1: none), `in_reset`, and for how many `seconds`.");
  module.def("now_ns", &os::now_ns, "The clock of times on boards.");
}

}  // namespace shoal::python
