// shoal._core.ipc: the heap that a family of processes shares, and its blocks as buffers.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <future>
#include <thread>
#include <utility>

#include "bindings.h"
#include "objects/packed_arrays.h"
#include "objects/packers.h"
#include "objects/plain_codec.h"
#include "shoal/ipc/heap/block.h"
#include "shoal/ipc/heap/descriptor_broker.h"
#include "shoal/ipc/heap/heap.h"
#include "shoal/os/error.h"
#include "shoal/os/fault_point.h"
#include "shoal/os/fd.h"
#include "shoal/process/self/own_thread.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

using ipc::Block;
using ipc::Heap;
using ipc::Offset;
using ipc::ProcessSlot;

/// From here on, getting memory takes longer than letting go of the GIL.
constexpr std::size_t kLongAllocation = 256 * 1024;

Block allocate(std::size_t bytes) {
  if (bytes < kLongAllocation) return Block::allocate(bytes);
  const nb::gil_scoped_release release;
  return Block::allocate(bytes);
}

/// The buffer protocol: writable bytes; the block lives as long as any view of it.
int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const Block& block = *nb::inst_ptr<Block>(self);
  return PyBuffer_FillInfo(view, self, block.data(), static_cast<Py_ssize_t>(block.size()), 0,
                           flags);
}

Py_ssize_t length(PyObject* self) {
  return static_cast<Py_ssize_t>(nb::inst_ptr<Block>(self)->size());
}

PyType_Slot block_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                             {Py_sq_length, reinterpret_cast<void*>(length)},
                             {0, nullptr}};

nb::dict stats() {
  nb::dict figures;
  const ipc::HeapStats stats = Heap::exists() ? Heap::here()->stats() : ipc::HeapStats{};
  figures["bytes"] = stats.bytes;
  figures["blocks"] = stats.blocks;
  figures["block_bytes"] = stats.block_bytes;
  figures["references"] = stats.references;
  figures["used_bytes"] = stats.used_bytes;
  figures["cached_bytes"] = stats.cached_bytes;
  figures["processes"] = stats.processes;
  figures["held_here"] = stats.held_here;
  return figures;
}

nb::dict holders() {
  const ipc::HolderStats stats = Heap::exists() ? Heap::here()->holders() : ipc::HolderStats{};
  nb::list processes;
  for (const auto& process : stats.processes) {
    nb::dict entry;
    entry["pid"] = process.pid;
    entry["slot"] = process.slot.packed();
    entry["blocks"] = process.blocks;
    entry["bytes"] = process.bytes;
    processes.append(entry);
  }
  constexpr std::array<const char*, ipc::kBlockKinds> kNames = {"data", "message", "queue", "sync"};
  nb::dict kinds;
  for (std::size_t kind = 0; kind < kNames.size(); ++kind) {
    nb::dict entry;
    entry["blocks"] = stats.kinds[kind].blocks;
    entry["bytes"] = stats.kinds[kind].bytes;
    entry["references"] = stats.kinds[kind].references;
    kinds[kNames[kind]] = entry;
  }
  nb::dict all;
  all["processes"] = processes;
  all["kinds"] = kinds;
  return all;
}

Block block_at(std::uintptr_t address) {
  const auto* payload = reinterpret_cast<const void*>(address);
  if (!Heap::exists() || !Heap::here()->contains(payload)) {
    throw InvalidArgument(fmt::format("address {:#x} is not in the shared heap", address));
  }
  return Block::acquire(Heap::here()->offset_of(payload));
}

/// On a thread that does not stand in the way of fork, declared before this returns.
bool open_broker() {
  return ipc::open_descriptor_broker([](std::function<void()> serve) {
    std::promise<void> declared;
    std::thread([&declared, serve = std::move(serve)] {
      const process::OwnThread own;
      declared.set_value();
      serve();
    }).detach();
    declared.get_future().wait();
  });
}

void bind_block(nb::module_& module) {
  nb::class_<Block>(module, "Block", nb::type_slots(block_slots),
                    "A reference on a block of the shared heap: a writable buffer of bytes. The "
                    "block lives while any process, message or view holds it.")
      .def(
          "__init__", [](Block* self, std::size_t nbytes) { new (self) Block(allocate(nbytes)); },
          "nbytes"_a,
          "A new block, its bytes not initialised. Raises OSError (ENOMEM) where there is no "
          "memory.")
      .def_prop_ro("offset", &Block::offset, "What names it in every process of the family.")
      .def_prop_ro("serial", &Block::serial,
                   "Tells it from a later block at the same offset; never used twice.")
      .def_prop_ro("nbytes", &Block::size)
      .def_prop_ro("address",
                   [](const Block& self) { return reinterpret_cast<std::uintptr_t>(self.data()); });
}

}  // namespace

void bind_ipc(nb::module_& parent) {
  os::open_standard_streams();  // before there is any descriptor of ours
  nb::module_ module = parent.def_submodule("ipc", "The heap that a family of processes shares.");
  bind_block(module);
  bind_packed_arrays(module);
  bind_packers(module);
  bind_plain_codec(module);
  module.def("exists", &Heap::exists, "Whether this process has a heap already.");
  module.def(
      "create", [](std::uint64_t nbytes) { Heap::create({.bytes = nbytes}); }, "nbytes"_a = 0,
      "Makes this process's heap, of that much address space (0: four times the machine's "
      "memory).");
  module.def(
      "attach", [](int fd) { Heap::attach(os::Fd(fd)); }, "fd"_a,
      "Maps the heap of the family; takes over the descriptor.");
  module.def(
      "fd", [] { return Heap::here()->fd(); },
      "The heap's descriptor, to hand to a child; made when there is no heap yet.");
  module.def(
      "heap_id", [] { return Heap::here()->id(); },
      "Random, the same in all processes of the family.");
  module.def(
      "self_slot", [] { return Heap::here()->self().packed(); },
      "This process's place in the family, never used for another one.");
  module.def(
      "alive", [](std::uint64_t slot) { return Heap::here()->alive(ProcessSlot::from(slot)); },
      "slot"_a, "Whether the process with that place still runs.");
  module.def(
      "sweep", [] { return Heap::exists() ? Heap::here()->sweep() : std::size_t{0}; },
      nb::call_guard<nb::gil_scoped_release>(),
      "Gives back what dead processes held; how many there were.");
  module.def(
      "check", [] { return Heap::exists() ? Heap::here()->check() : std::vector<std::string>(); },
      nb::call_guard<nb::gil_scoped_release>(),
      "What does not balance in the heap's accounts: nothing, when all is well.");
  module.def("stats", stats, "Figures of the heap; zeros when there is none.");
  module.def(
      "holders", holders,
      "Who holds how much: `processes` (pid, slot, blocks, bytes) and, for each of the `kinds` "
      "data, message, queue and sync, its blocks, their bytes, and the references they hold.");
  module.def(
      "acquire", [](Offset offset, std::uint64_t serial) { return Block::acquire(offset, serial); },
      "offset"_a, "serial"_a = 0,
      "Another reference on a block that somebody holds. Raises shoal.Error when it was "
      "freed.");
  module.def("block_at", block_at, "address"_a,
             "Another reference on the block whose bytes begin at this address.");
  module.def(
      "contains",
      [](std::uintptr_t address) {
        return Heap::exists() && Heap::here()->contains(reinterpret_cast<const void*>(address));
      },
      "address"_a, "Whether an address lies in the shared heap.");
  module.def("open_broker", &open_broker,
             "Has this process keep descriptors for the family (of device memory, and of what "
             "environments share), unless another one does; whether it does now.");
  module.def(
      "join", &ipc::join_family, "heap_id"_a, nb::call_guard<nb::gil_scoped_release>(),
      "Attaches the heap of that family, which has a broker (open_broker()); nothing where it is "
      "attached.");
  module.def(
      "leave_fd",
      [](const Block& block, int fd) { static_cast<void>(ipc::leave_descriptor(block, fd)); },
      "block"_a, "fd"_a, nb::call_guard<nb::gil_scoped_release>(),
      "Leaves a copy of a descriptor at the broker, until nobody holds the block.");
  module.def(
      "fetch_fd",
      [](Offset offset, std::uint64_t serial) {
        return ipc::fetch_descriptor(offset, serial).release();
      },
      "offset"_a, "serial"_a, nb::call_guard<nb::gil_scoped_release>(),
      "A copy of what was left for a block, which is the caller's; -1 when nothing was.");
  module.def("arm_fault_point", &os::arm_fault_point, "name"_a, "nth"_a = 1, "signal"_a = SIGKILL,
             "For tests: SIGKILL or SIGSTOP at the n-th pass through a named point.");
}

}  // namespace shoal::python
