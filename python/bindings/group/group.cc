// shoal._core.group: who started this process as one of several, and the group of those.
#include "shoal/group/group.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bindings.h"
#include "bytes.h"
#include "waiting.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

using group::Group;
using group::Launch;
using group::Member;

std::shared_ptr<Group> join(const Launch& launch, double timeout,
                            const std::optional<nb::callable>& look) {
  auto options = group::JoinOptions::from_environment();
  options.timeout = deadline(timeout) - os::Clock::now();
  options.look = [&] {
    check_signals();
    if (!look) return;
    const nb::gil_scoped_acquire gil;
    (*look)();
  };
  const nb::gil_scoped_release unlocked;
  return Group::join(launch, options);
}

nb::bytes broadcast(Group& group, nb::bytes mine) {
  std::vector<std::byte> all;
  {
    const std::span<const std::byte> bytes = view(mine);
    const nb::gil_scoped_release unlocked;
    all = group.broadcast_any(bytes);
  }
  return to_bytes(all);
}

using GroupFloats = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void sum(Group& group, const GroupFloats& values) {
  const std::span<float> floats(values.data(), values.size());
  const nb::gil_scoped_release unlocked;
  group.sum(floats);
}

}  // namespace

void bind_group(nb::module_& module) {
  nb::module_ group = module.def_submodule("group", "Ranks that learn together.");
  nb::class_<Launch>(group, "Launch", "Who started this process, and as which of several.")
      .def_static("detect", nb::overload_cast<>(&Launch::detect),
                  "By the environment's variables; rank 0 of 1 where no launcher did.")
      .def_static("local", &Launch::local, "rank"_a, "size"_a, "attempt"_a,
                  "One of `size` processes of this host.")
      .def_ro("launcher", &Launch::launcher)
      .def_ro("rank", &Launch::rank)
      .def_ro("size", &Launch::size)
      .def_ro("local_rank", &Launch::local_rank)
      .def_ro("local_size", &Launch::local_size)
      .def_ro("attempt", &Launch::attempt)
      .def_ro("address", &Launch::address);
  nb::class_<Group>(group, "Group",
                    "Processes that work as one. All call the same methods in the same order.")
      .def_static("join", &join, "launch"_a, "timeout"_a = 300.0, "look"_a = nb::none(),
                  "Waits until all ranks are there; what `look` raises, which is called meanwhile, "
                  "ends the wait.")
      .def_prop_ro("rank", &Group::rank)
      .def_prop_ro("size", &Group::size)
      .def_prop_ro("launch", &Group::launch)
      .def_prop_ro(
          "members",
          [](const Group& group) {
            nb::list members;
            for (const group::Member& member : group.members())
              members.append(nb::make_tuple(member.rank, member.host, member.pid));
            return members;
          },
          "By rank: rank, host and process id.")
      .def("broadcast", &broadcast, "mine"_a, "What rank 0 has.")
      .def("sum", &sum, nb::arg("values").noconvert(),
           nb::sig("def sum(self, values: Any) -> None"),
           "Each element becomes the sum over all ranks, the same bits on each: float32, [n], in "
           "place.")
      .def("barrier", &Group::barrier, nb::call_guard<nb::gil_scoped_release>(),
           "Returns when all ranks have come.")
      .def("leave", &Group::leave, nb::call_guard<nb::gil_scoped_release>(),
           "The others' calls that still need this rank raise PeerLost.")
      .def("fail", &Group::fail, "why"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Tells the others that this rank fails, and how.");
}

}  // namespace shoal::python
