#include "objects/packed_arrays.h"

#include <array>
#include <cstring>

#include "acquire_block.h"
#include "numpy_api.h"
#include "objects/packers.h"
#include "shoal/os/error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

/// Arrays below this many bytes travel inside of the message: a copy is cheaper than a block.
constexpr std::size_t kInlineArrayBytes = 2048;
/// Copies from this size on are made without the GIL.
constexpr std::size_t kLongCopyBytes = 128 * 1024;
constexpr std::int16_t kOtherType = -1;

/// kByValue: the block is a copy that was made for the message.
enum Flags : std::uint8_t { kReadOnly = 1, kFortran = 2, kInline = 4, kByValue = 8 };

/// Holds the block of an array that came by value.
struct OwnBlock {
  ipc::Block block;
};

struct Head {
  std::uint64_t heap;
  ipc::Offset block;
  std::uint64_t serial;
  std::uint64_t start;  // of the first element, in the block
  std::int16_t type_num;
  std::uint8_t flags;
  std::uint8_t dims;
  std::uint32_t magic;
};
constexpr std::uint32_t kMagic = 0x52414853;  // "SHAR"
static_assert(sizeof(Head) == 40);

using Words = std::array<npy_intp, 2 * NPY_MAXDIMS>;

PyArrayObject* as_array(nb::handle array) { return reinterpret_cast<PyArrayObject*>(array.ptr()); }

/// Whether its elements came by value: they are this process's own, and are copied again when they are sent on.
bool came_by_value(PyArrayObject* array) {
  PyObject* owner = reinterpret_cast<PyObject*>(array);
  while (owner != nullptr && PyArray_Check(owner))
    owner = PyArray_BASE(reinterpret_cast<PyArrayObject*>(owner));
  return owner != nullptr && nb::isinstance<OwnBlock>(owner);
}

/// The block of the heap where its elements lie, for other processes to look at; 0: they are to be copied.
ipc::Offset shared_block_of(PyArrayObject* array) {
  if (PyArray_NBYTES(array) == 0 || !ipc::Heap::exists()) return 0;
  const ipc::Offset around = ipc::Heap::here()->held_around(PyArray_DATA(array));
  return around != 0 && came_by_value(array) ? 0 : around;
}

bool is_plain_type(int type_num) {
  return (type_num >= NPY_BOOL && type_num <= NPY_CLONGDOUBLE) || type_num == NPY_HALF;
}

bool can_be_copied(PyArrayObject* array) {
  const int type = PyArray_TYPE(array);
  const bool known = is_plain_type(type) || type == NPY_STRING || type == NPY_UNICODE ||
                     type == NPY_VOID || type == NPY_DATETIME || type == NPY_TIMEDELTA;
  return known && !PyDataType_REFCHK(PyArray_DESCR(array));
}

Head head_of(PyArrayObject* array) {
  Head head{};
  head.magic = kMagic;
  head.type_num = static_cast<std::int16_t>(PyArray_TYPE(array));
  if (needs_dtype(nb::handle(reinterpret_cast<PyObject*>(array)))) head.type_num = kOtherType;
  head.dims = static_cast<std::uint8_t>(PyArray_NDIM(array));
  if (!PyArray_ISWRITEABLE(array)) head.flags |= kReadOnly;
  return head;
}

void name_block(const ipc::Block& block, Head& head) {
  head.heap = block.heap()->id();
  head.block = block.offset();
  head.serial = block.serial();
}

std::string with_words(const Head& head, const npy_intp* shape, const npy_intp* strides,
                       std::size_t room) {
  std::string bytes;
  const std::size_t words = head.dims * sizeof(npy_intp);
  bytes.resize(sizeof(head) + (strides != nullptr ? 2 : 1) * words + room);
  std::memcpy(bytes.data(), &head, sizeof(head));
  std::memcpy(bytes.data() + sizeof(head), shape, words);
  if (strides != nullptr) std::memcpy(bytes.data() + sizeof(head) + words, strides, words);
  return bytes;
}

Packed naming(ipc::Block block, std::string bytes) {
  Packed packed{std::move(bytes), {}};
  packed.blocks.push_back(std::move(block));
  return packed;
}

/// The elements in C or Fortran order, to `to`.
void copy_elements(PyArrayObject* array, bool fortran, void* to) {
  const auto bytes = static_cast<std::size_t>(PyArray_NBYTES(array));
  const bool as_they_lie =
      fortran ? PyArray_IS_F_CONTIGUOUS(array) : PyArray_IS_C_CONTIGUOUS(array);
  if (!as_they_lie) {
    PyArray_Descr* const type = PyArray_DESCR(array);
    Py_INCREF(type);
    const nb::object target = nb::steal(PyArray_NewFromDescr(
        &PyArray_Type, type, PyArray_NDIM(array), PyArray_DIMS(array), nullptr, to,
        NPY_ARRAY_WRITEABLE | (fortran ? NPY_ARRAY_F_CONTIGUOUS : NPY_ARRAY_C_CONTIGUOUS),
        nullptr));
    if (!target.is_valid() || PyArray_CopyInto(as_array(target), array) < 0)
      throw nb::python_error();
    return;
  }
  if (bytes < kLongCopyBytes) {
    std::memcpy(to, PyArray_DATA(array), bytes);
  } else {
    const nb::gil_scoped_release without;
    std::memcpy(to, PyArray_DATA(array), bytes);
  }
}

void check(bool right) {
  if (!right)
    throw InvalidArgument(
        "these bytes describe no array: they are damaged, or of another build of Shoal");
}

/// Whether all elements lie within `bytes` bytes, the first one at `start`.
bool fits(std::uint64_t start, std::uint64_t bytes, std::size_t item_bytes, int dims,
          const npy_intp* shape, const npy_intp* strides) {
  __int128 low = start, high = static_cast<__int128>(start) + static_cast<__int128>(item_bytes);
  for (int i = 0; i < dims; ++i) {
    if (shape[i] < 0) return false;
    if (shape[i] == 0) return true;
    const __int128 reach = static_cast<__int128>(shape[i] - 1) * strides[i];
    (reach < 0 ? low : high) += reach;
  }
  return low >= 0 && high <= static_cast<__int128>(bytes);
}

nb::object type_of(const Head& head, nb::handle dtype) {
  if (head.type_num != kOtherType) {
    check(is_plain_type(head.type_num));
    return nb::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(head.type_num)));
  }
  check(PyArray_DescrCheck(dtype.ptr()) &&
        !PyDataType_REFCHK(reinterpret_cast<PyArray_Descr*>(dtype.ptr())));
  return nb::borrow(dtype);
}

nb::object make(nb::object type, const Head& head, Words& words, bool strided, void* data,
                int flags) {
  if (head.flags & kReadOnly) flags &= ~NPY_ARRAY_WRITEABLE;
  auto* const descr = reinterpret_cast<PyArray_Descr*>(type.release().ptr());  // taken over
  PyObject* made =
      PyArray_NewFromDescr(&PyArray_Type, descr, head.dims, words.data(),
                           strided ? words.data() + head.dims : nullptr, data, flags, nullptr);
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

nb::object unpack_inline(const Head& head, Words& words, std::string_view elements,
                         nb::object type) {
  const int order = head.flags & kFortran ? NPY_ARRAY_F_CONTIGUOUS : 0;
  Head writable = head;
  writable.flags = 0;
  nb::object array = make(std::move(type), writable, words, false, nullptr, order);
  check(elements.size() == static_cast<std::size_t>(PyArray_NBYTES(as_array(array))));
  std::memcpy(PyArray_DATA(as_array(array)), elements.data(), elements.size());
  if (head.flags & kReadOnly) PyArray_CLEARFLAGS(as_array(array), NPY_ARRAY_WRITEABLE);
  return array;
}

nb::object pack_into(nb::handle array, nb::list blocks) {
  ensure_numpy();
  if (!PyArray_Check(array.ptr())) throw nb::type_error("not a numpy.ndarray");
  auto packed = pack_array(array);
  if (!packed) return nb::none();
  for (ipc::Block& block : packed->blocks) blocks.append(nb::cast(std::move(block)));
  return nb::bytes(packed->bytes.data(), packed->bytes.size());
}

std::optional<Packed> pack_plain(nb::handle array) {
  ensure_numpy();
  return needs_dtype(array) ? std::nullopt : pack_array(array);
}

nb::object unpack_plain(std::string_view packed) { return unpack_array(packed, nb::none()); }

constexpr Packer kPacker{pack_plain, unpack_plain};

}  // namespace

bool needs_dtype(nb::handle array) {
  return !is_plain_type(PyArray_TYPE(as_array(array))) || PyArray_ISBYTESWAPPED(as_array(array)) ||
         PyDataType_METADATA(PyArray_DESCR(as_array(array))) != nullptr;
}

bool is_shared_array(nb::handle object) { return shared_block_of(as_array(object)) != 0; }

std::optional<Packed> pack_array(nb::handle object) {
  PyArrayObject* const array = as_array(object);
  if (!can_be_copied(array)) return std::nullopt;
  Head head = head_of(array);
  const auto bytes = static_cast<std::size_t>(PyArray_NBYTES(array));
  if (const ipc::Offset around = shared_block_of(array); around != 0) {
    ipc::Block block = ipc::Block::acquire(around);
    name_block(block, head);
    head.start =
        static_cast<std::uint64_t>(static_cast<std::byte*>(PyArray_DATA(array)) - block.data());
    return naming(std::move(block),
                  with_words(head, PyArray_DIMS(array), PyArray_STRIDES(array), 0));
  }
  const bool fortran = PyArray_IS_F_CONTIGUOUS(array) && !PyArray_IS_C_CONTIGUOUS(array);
  if (fortran) head.flags |= kFortran;
  if (bytes < kInlineArrayBytes) {
    head.flags |= kInline;
    std::string packed = with_words(head, PyArray_DIMS(array), nullptr, bytes);
    copy_elements(array, fortran, packed.data() + packed.size() - bytes);
    return Packed{std::move(packed), {}};
  }
  ipc::Block block = ipc::Block::allocate(bytes);
  copy_elements(array, fortran, block.data());
  head.flags |= kByValue;
  name_block(block, head);
  return naming(std::move(block), with_words(head, PyArray_DIMS(array), nullptr, 0));
}

nb::object unpack_array(std::string_view packed, nb::handle dtype) {
  ensure_numpy();
  Head head;
  Words words{};
  check(packed.size() >= sizeof(head));
  std::memcpy(&head, packed.data(), sizeof(head));
  const std::size_t row = head.dims * sizeof(npy_intp);
  check(head.magic == kMagic && head.dims <= NPY_MAXDIMS && packed.size() >= sizeof(head) + row);
  const std::string_view rest = packed.substr(sizeof(head) + row);
  std::memcpy(words.data(), packed.data() + sizeof(head), row);
  nb::object type = type_of(head, dtype);
  if (head.flags & kInline) return unpack_inline(head, words, rest, std::move(type));

  check(rest.empty() || rest.size() == row);
  const bool strided = !rest.empty();
  const auto item_bytes =
      static_cast<std::size_t>(PyDataType_ELSIZE(reinterpret_cast<PyArray_Descr*>(type.ptr())));
  if (strided) {
    std::memcpy(words.data() + head.dims, rest.data(), row);
  } else {
    auto stride = static_cast<npy_intp>(item_bytes);
    for (int i = 0; i < head.dims; ++i) {
      const int axis = head.flags & kFortran ? i : head.dims - 1 - i;
      words[head.dims + axis] = stride;
      stride *= words[axis];
    }
  }
  ipc::Block block = acquire_block(head.heap, head.block, head.serial);
  check(fits(head.start, block.size(), item_bytes, head.dims, words.data(),
             words.data() + head.dims));
  nb::object array =
      make(std::move(type), head, words, true, block.data() + head.start, NPY_ARRAY_WRITEABLE);
  nb::object owner =
      head.flags & kByValue ? nb::cast(OwnBlock{std::move(block)}) : nb::cast(std::move(block));
  if (PyArray_SetBaseObject(as_array(array), owner.release().ptr()) < 0) throw nb::python_error();
  return array;
}

void bind_packed_arrays(nb::module_& module) {
  nb::class_<OwnBlock>(module, "OwnBlock", "Holds the elements of an array that came by value.");
  module.def("pack_array", &pack_into, "array"_a, "blocks"_a,
             "The array as bytes for unpack_array(); None for elements that are Python objects. "
             "The block that they name, if any, is appended to `blocks`.");
  module.def(
      "array_packer", []() -> nb::object { return kPacker.capsule(); },
      "What add_packer() takes for arrays.");
  module.def(
      "unpack_array",
      [](nb::bytes packed, nb::handle dtype) {
        return unpack_array({packed.c_str(), packed.size()}, dtype);
      },
      "packed"_a, "dtype"_a = nb::none());
  module.def(
      "needs_dtype",
      [](nb::handle array) {
        ensure_numpy();
        return needs_dtype(array);
      },
      "array"_a, "Whether unpack_array() must be given the array's dtype.");
  module.def(
      "is_shared_array",
      [](nb::handle array) {
        ensure_numpy();
        return PyArray_Check(array.ptr()) && is_shared_array(array);
      },
      "array"_a,
      "Whether the array's elements lie in the heap, and other processes may look at them: not "
      "those of one that came by value.");
}

}  // namespace shoal::python
