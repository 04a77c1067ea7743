#include "vector/spaces.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "numpy_api.h"
#include "shoal/os/error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

nb::object gymnasium_spaces() { return nb::module_::import_("gymnasium.spaces"); }

std::string text(nb::handle object) { return nb::cast<std::string>(nb::str(object)); }

std::vector<std::int64_t> shape_of(nb::handle space) {
  return nb::cast<std::vector<std::int64_t>>(nb::list(space.attr("shape")));
}

/// The elements of `array`, flat and as T; one element when all are the same and `collapse` is set.
template <class T>
std::vector<T> elements(nb::handle array, int type, bool collapse) {
  nb::object flat = nb::steal(PyArray_FROM_OTF(array.ptr(), type, NPY_ARRAY_CARRAY_RO));
  if (!flat) throw nb::python_error();
  const auto size = PyArray_SIZE(reinterpret_cast<PyArrayObject*>(flat.ptr()));
  const T* data = static_cast<const T*>(array_data(flat));
  std::vector<T> values(data, data + size);
  if (collapse && values.size() > 1 &&
      std::all_of(values.begin(), values.end(), [&](T v) { return v == values[0]; })) {
    return {values[0]};
  }
  return values;
}

nb::object as_array(const std::vector<double>& values) {
  nb::object array = new_array({shm::DType::kF64, {static_cast<std::int64_t>(values.size())}});
  std::memcpy(array_data(array), values.data(), values.size() * sizeof(double));
  return array;
}

nb::object as_array(const std::vector<std::int64_t>& values) {
  nb::object array = new_array({shm::DType::kI64, {static_cast<std::int64_t>(values.size())}});
  std::memcpy(array_data(array), values.data(), values.size() * sizeof(std::int64_t));
  return array;
}

nb::object numpy_dtype(shm::DType dtype) {
  return nb::module_::import_("numpy").attr("dtype")(std::string(shm::name(dtype)));
}

/// Reads a space of the parent process or of an environment.
class Reader {
 public:
  Reader() : spaces_(gymnasium_spaces()) {}

  env::Space read(nb::handle space, const std::string& path) const {
    if (is(space, "Box")) return read_box(space, path);
    if (is(space, "Discrete")) {
      return env::Discrete{integer(space.attr("n")), integer(space.attr("start")),
                           dtype(space, path)};
    }
    if (is(space, "MultiDiscrete")) {
      return env::MultiDiscrete{elements<std::int64_t>(space.attr("nvec"), NPY_INT64, false),
                                elements<std::int64_t>(space.attr("start"), NPY_INT64, false),
                                shape_of(space), dtype(space, path)};
    }
    if (is(space, "MultiBinary")) return env::MultiBinary{shape_of(space)};
    if (is(space, "Dict")) return read_dict(space, path);
    if (is(space, "Tuple")) return read_tuple(space, path);
    if (is(space, "Space")) {
      const nb::handle type(reinterpret_cast<PyObject*>(Py_TYPE(space.ptr())));
      return env::Opaque{text(type.attr("__module__")) + "." + text(type.attr("__qualname__")),
                         text(space)};
    }
    throw InvalidArgument(fmt::format("expected a gymnasium.Space{}, got {}",
                                      path.empty() ? "" : " at " + path, text(space)));
  }

 private:
  bool is(nb::handle space, const char* type) const {
    return nb::isinstance(space, spaces_.attr(type));
  }

  static std::int64_t integer(nb::handle number) {
    return nb::cast<std::int64_t>(nb::int_(number));
  }

  static shm::DType dtype(nb::handle space, const std::string& path) {
    try {
      return dtype_of(space.attr("dtype"));
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format("cannot share samples of the space {}{}: {}", text(space),
                                        path.empty() ? "" : " (at " + path + ")", error.what()));
    }
  }

  static env::Space read_box(nb::handle space, const std::string& path) {
    return env::Box{{dtype(space, path), shape_of(space)},
                    elements<double>(space.attr("low"), NPY_FLOAT64, true),
                    elements<double>(space.attr("high"), NPY_FLOAT64, true)};
  }

  env::Space read_dict(nb::handle space, const std::string& path) const {
    env::Dict dict;
    nb::dict items = nb::cast<nb::dict>(space.attr("spaces"));
    for (auto [key, subspace] : items) {
      dict.spaces.emplace_back(text(key), read(subspace, join(path, text(key))));
    }
    return dict;
  }

  env::Space read_tuple(nb::handle space, const std::string& path) const {
    env::Tuple tuple;
    for (nb::handle subspace : space.attr("spaces")) {
      tuple.spaces.push_back(read(subspace, join(path, std::to_string(tuple.spaces.size()))));
    }
    return tuple;
  }

  static std::string join(const std::string& path, const std::string& key) {
    return path.empty() ? key : path + "/" + key;
  }

  nb::object spaces_;
};

/// Makes a Gymnasium space of a value.
struct Writer {
  nb::object spaces = gymnasium_spaces();

  nb::object operator()(const env::Box& box) const {
    return spaces.attr("Box")("low"_a = bound(box.low, box), "high"_a = bound(box.high, box),
                              "shape"_a = nb::tuple(nb::cast(box.spec.shape)),
                              "dtype"_a = numpy_dtype(box.spec.dtype));
  }
  nb::object operator()(const env::Discrete& discrete) const {
    return spaces.attr("Discrete")("n"_a = discrete.n, "start"_a = discrete.start,
                                   "dtype"_a = numpy_dtype(discrete.dtype));
  }
  nb::object operator()(const env::MultiDiscrete& multi) const {
    const nb::tuple shape(nb::cast(multi.shape));
    return spaces.attr("MultiDiscrete")("nvec"_a = as_array(multi.nvec).attr("reshape")(shape),
                                        "start"_a = as_array(multi.start).attr("reshape")(shape),
                                        "dtype"_a = numpy_dtype(multi.dtype));
  }
  nb::object operator()(const env::MultiBinary& binary) const {
    if (binary.shape.size() == 1) return spaces.attr("MultiBinary")(binary.shape[0]);
    return spaces.attr("MultiBinary")(nb::tuple(nb::cast(binary.shape)));
  }
  nb::object operator()(const env::Dict& dict) const {
    // Gymnasium sorts the keys of a plain dict; the arrays are in this order.
    nb::object items = nb::module_::import_("collections").attr("OrderedDict")();
    for (const auto& [key, space] : dict.spaces) items[nb::cast(key)] = space_to_python(space);
    return spaces.attr("Dict")(items);
  }
  nb::object operator()(const env::Tuple& tuple) const {
    nb::list items;
    for (const auto& space : tuple.spaces) items.append(space_to_python(space));
    return spaces.attr("Tuple")(items);
  }

  nb::object operator()(const env::Opaque& space) const {
    throw InvalidArgument(fmt::format("the space {} exists in Python only", space.text));
  }

  static nb::object bound(const std::vector<double>& values, const env::Box& box) {
    const nb::module_ numpy = nb::module_::import_("numpy");
    const nb::object dtype = numpy_dtype(box.spec.dtype);
    const bool integral = nb::cast<std::string>(dtype.attr("kind")).find_first_of("iu") == 0;
    const nb::object array = integral
                                 ? numpy.attr("array")(integers(values, numpy.attr("iinfo")(dtype)))
                                       .attr("astype")(dtype)
                                 : as_array(values).attr("astype")(dtype);
    // Gymnasium takes NumPy's scalars as bounds, but for those of bool.
    if (values.size() == 1 && box.spec.dtype == shm::DType::kBool)
      return nb::int_(values[0] > 0 ? 1 : 0);
    if (values.size() == 1) return array[0];
    return array.attr("reshape")(nb::tuple(nb::cast(box.spec.shape)));
  }
  /// The largest integers have no float of their own: what is beyond `limits` is the limit.
  static nb::list integers(const std::vector<double>& values, nb::handle limits) {
    const nb::object least = limits.attr("min"), most = limits.attr("max");
    nb::list list;
    for (const double value : values) {
      if (std::isinf(value)) {
        list.append(value < 0 ? least : most);
        continue;
      }
      const nb::object number = nb::steal(PyLong_FromDouble(value));
      if (!number) throw nb::python_error();
      list.append(number < least ? least : number < most ? number : most);
    }
    return list;
  }
};

}  // namespace

env::Space space_from_python(nb::handle space) {
  ensure_numpy();
  return Reader().read(space, "");
}

env::Space layout_of(const env::Space& space) {
  if (const auto* dict = space.get_if<env::Dict>()) {
    env::Dict layout;
    for (const auto& [key, child] : dict->spaces) layout.spaces.emplace_back(key, layout_of(child));
    return layout;
  }
  if (const auto* tuple = space.get_if<env::Tuple>()) {
    env::Tuple layout;
    for (const env::Space& child : tuple->spaces) layout.spaces.push_back(layout_of(child));
    return layout;
  }
  if (space.get_if<env::Opaque>() != nullptr) return space;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return env::Box{env::leaves(space).front().spec, {-kInfinity}, {kInfinity}};
}

bool same_space(nb::handle a, nb::handle b) {
  if (a.equal(b)) return true;
  if (!a.type().is(b.type())) return false;
  const nb::object spaces = gymnasium_spaces();
  if (nb::isinstance(a, spaces.attr("Dict")) || nb::isinstance(a, spaces.attr("Tuple"))) {
    const bool dicts = nb::isinstance(a, spaces.attr("Dict"));
    const nb::object ours = a.attr("spaces"), others = b.attr("spaces");
    if (nb::len(ours) != nb::len(others)) return false;
    const nb::list keys(
        dicts ? ours : nb::object(nb::module_::import_("builtins").attr("range")(nb::len(ours))));
    for (nb::handle key : keys) {
      if (dicts && !PySequence_Contains(others.ptr(), key.ptr())) return false;
      if (!same_space(ours[key], others[key])) return false;
    }
    return true;
  }
  const nb::handle object(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
  return a.type().attr("__eq__").is(object.attr("__eq__"));
}

nb::object space_to_python(const env::Space& space) {
  ensure_numpy();
  return std::visit(Writer(), space.kind());
}

}  // namespace shoal::python
