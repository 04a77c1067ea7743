// The safetensors file format: named arrays that C++, Python, NumPy and Rust read without running
// any code.
//
//   offset 0       u64, little endian: H, the bytes of the header
//   offset 8       H bytes of JSON, padded with spaces so that the data begins on a multiple of 8:
//                  {"__metadata__": {string: string},
//                   name: {"dtype", "shape", "data_offsets"}, …}
//   offset 8 + H   the arrays, C order, little endian, end to end: no gap, no overlap, nothing
//                  after the last
//
// Invariants: a file that was written is complete, because it is written beside its place, synced,
// and renamed; whatever the reader returns lies inside the file, because every offset is checked
// before it is used.
// Threads: values; no shared state.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/os/error.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {

/// A file is not what it should be: foreign, cut short, or damaged. The message names the file and
/// what is wrong.
class CorruptFile : public Error {
 public:
  using Error::Error;
};

/// One array of a file that is to be written. Borrows its bytes.
struct SafeTensor {
  std::string name;
  shm::TensorSpec spec;
  std::span<const std::byte> bytes;
};

/// One array of a file that was read. Borrows from the SafeTensors.
struct SafeTensorView {
  shm::TensorSpec spec;
  std::span<const std::byte> bytes;
};

/// A file in pieces that lie end to end: what comes before the arrays, and these, borrowed.
struct SafeTensorsPieces {
  std::string head;
  std::vector<std::span<const std::byte>> arrays;
};

/// The file of these arrays, which keep their order within each element size (large elements come
/// first, so that all are aligned). Throws InvalidArgument for a name twice, the name
/// "__metadata__", or bytes that do not fit the shape.
SafeTensorsPieces lay_out_safetensors(std::span<const SafeTensor> tensors,
                                      const std::map<std::string, std::string>& metadata);
/// The same in one piece.
std::vector<std::byte> serialize_safetensors(std::span<const SafeTensor> tensors,
                                             const std::map<std::string, std::string>& metadata);

/// A file in memory. A value.
class SafeTensors {
 public:
  /// Takes over the bytes of a file; `origin` is named in errors. Throws CorruptFile.
  static SafeTensors parse(std::vector<std::byte> bytes, const std::string& origin);
  /// Throws SystemError when the file cannot be read, CorruptFile when it is not a safetensors
  /// file.
  static SafeTensors read(const std::filesystem::path& path);

  const std::map<std::string, SafeTensorView, std::less<>>& tensors() const noexcept {
    return tensors_;
  }
  /// The file.
  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }
  bool contains(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }
  /// Throws CorruptFile when there is no such array, or it is not of this kind.
  const SafeTensorView& at(std::string_view name) const;
  const SafeTensorView& at(std::string_view name, const shm::TensorSpec& expected) const;

  SafeTensors() = default;
  SafeTensors(SafeTensors&&) = default;
  SafeTensors& operator=(SafeTensors&&) = default;
  SafeTensors(const SafeTensors&) = delete;
  SafeTensors& operator=(const SafeTensors&) = delete;

 private:
  std::string origin_;
  std::vector<std::byte> bytes_;
  std::map<std::string, SafeTensorView, std::less<>> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace shoal::learn
