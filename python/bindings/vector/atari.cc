// shoal._core.env.AtariScreen: the pixels of one Atari game, for the environment in python/shoal/atari.
#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string_view.h>

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "bindings.h"
#include "shoal/env/atari/screen.h"
#include "shoal/os/error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

using Size = std::pair<int, int>;  // width, height
using Bytes = nb::ndarray<const std::uint8_t, nb::c_contig, nb::device::cpu>;

env::Pixels pixels_of(std::string_view name) {
  if (name == "gymnasium") return env::Pixels::kGymnasium;
  if (name == "sb3") return env::Pixels::kSb3;
  if (name == "cleanrl") return env::Pixels::kCleanRl;
  throw InvalidArgument(fmt::format("pixels are gymnasium's, sb3's or cleanrl's, not {}'s", name));
}

std::span<const std::uint8_t> span_of(const Bytes& bytes) { return {bytes.data(), bytes.size()}; }

/// A screen and the sizes of its frames.
class OwnedScreen {
 public:
  OwnedScreen(Size frame, Size picture, bool gray, std::string_view pixels, int stack,
              bool zero_start)
      : height_(static_cast<std::size_t>(frame.second)),
        width_(static_cast<std::size_t>(frame.first)),
        screen_({.frame = {frame.first, frame.second},
                 .picture = {picture.first, picture.second},
                 .gray = gray,
                 .pixels = pixels_of(pixels),
                 .stack = stack,
                 .zero_start = zero_start}) {}

  env::Screen& screen() noexcept { return screen_; }

  nb::object frame(int i, nb::handle self) {
    return nb::cast(nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<2>>(screen_.frame(i).data(),
                                                                      {height_, width_}, self));
  }

  /// The caller's own.
  nb::object observation() {
    const auto shape = screen_.shape();
    return nb::cast(nb::ndarray<nb::numpy, const std::uint8_t>(screen_.observation().data(),
                                                               shape.size(), shape.data()),
                    nb::rv_policy::copy);
  }

 private:
  std::size_t height_;
  std::size_t width_;
  env::Screen screen_;
};

}  // namespace

void bind_atari(nb::module_& module) {
  nb::module_ env = nb::borrow<nb::module_>(module.attr("env"));
  nb::class_<OwnedScreen>(env, "AtariScreen",
                          "The pixels of one Atari game: src/shoal/env/atari/screen.h.")
      .def(nb::init<Size, Size, bool, std::string_view, int, bool>(), "frame"_a, "picture"_a,
           "gray"_a, "pixels"_a, "stack"_a, "zero_start"_a)
      .def_prop_ro(
          "frames",
          [](nb::handle_t<OwnedScreen> self) {
            auto& screen = nb::cast<OwnedScreen&>(self);
            return nb::make_tuple(screen.frame(0, self), screen.frame(1, self));
          },
          "Where the emulator writes palette indices: the earlier of two frames, and the later.")
      .def(
          "grabbed", [](OwnedScreen& self, int i) { return self.screen().grabbed(i != 0); }, "i"_a,
          "Frame i has been written. False: learn() has to tell of its colours.")
      .def(
          "learn",
          [](OwnedScreen& self, int i, const Bytes& gray, const Bytes& rgb) {
            self.screen().learn(i != 0, span_of(gray), span_of(rgb));
          },
          "i"_a, "gray"_a, "rgb"_a, nb::sig("def learn(self, i: int, gray: Any, rgb: Any) -> None"),
          "What frame i is in grey, a byte a pixel, and in RGB, three: uint8 arrays.")
      .def("pool", [](OwnedScreen& self) { self.screen().pool(); })
      .def(
          "pool_one", [](OwnedScreen& self, int i) { self.screen().pool_one(i != 0); }, "i"_a)
      .def("pool_more", [](OwnedScreen& self) { self.screen().pool_more(); })
      .def("begin", [](OwnedScreen& self) { self.screen().begin(); })
      .def("push", [](OwnedScreen& self) { self.screen().push(); })
      .def("observation", &OwnedScreen::observation, "A copy of the stack of pictures.");
}

}  // namespace shoal::python
