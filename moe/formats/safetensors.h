#pragma once
// Files of tensors in the safetensors format: eight bytes with the length of the header (little-endian); the header,
// JSON that is padded with blanks to a multiple of 8 bytes; then the elements of all tensors, row-major, little-endian
// and without gaps.
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "moe/base/units.h"

namespace moe {

struct SafeTensor {
  std::string name;            // letters, digits, blanks and _ - .
  std::string_view type;       // "F64", "F32", "F16", "BF16", "I64", "I32"
  std::vector<int64_t> shape;  // extents; empty: a scalar
  std::span<const std::byte> data;
};

/// The header's "__metadata__": texts by key. Keys have the characters of tensor names; texts must not contain quotes,
/// backslashes or control characters.
using TensorNotes = std::map<std::string, std::string>;

/// Returns the name of a type in the format: "F32" for float32.
std::string_view safetensor_type(DType dtype);
/// Returns the bytes of an element of that type; empty for a type that is not supported.
std::optional<int64_t> bytes_of_safetensor(std::string_view type);

/// Writes the file, or replaces it as a whole. Throws BadInput naming the file if it can't be written, WrongResult
/// naming a tensor whose bytes do not fit its shape, or whose name is repeated or has other characters.
void write_safetensors(const std::string& path, std::span<const SafeTensor> tensors, const TensorNotes& notes = {});

// Readers for files from write_safetensors and from other software.

/// A tensor's description and the place of its elements in the file.
struct StoredTensor {
  std::string name, type;
  std::vector<int64_t> shape = {};
  int64_t first = 0, bytes = 0;  // position in the file, and size
};

class SafeTensorsFile {
 public:
  /// Opens the file and reads its header. Throws BadInput "PATH: ..." unless the header is valid and its tensors fill
  /// the rest of the file without gap or overlap.
  explicit SafeTensorsFile(const std::string& path);

  /// Returns the tensors in the order of their elements in the file.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// Returns the tensor of that name; null if there is none.
  const StoredTensor* find(std::string_view name) const;
  const TensorNotes& notes() const { return notes_; }
  /// Fills `to` with the tensor's bytes from `offset` on. Throws BadInput naming file and tensor if the file ends
  /// early, WrongResult if the range exceeds the tensor.
  void read(const StoredTensor& tensor, int64_t offset, std::span<std::byte> to);

 private:
  std::string path_;
  std::ifstream in_;
  std::vector<StoredTensor> tensors_;
  TensorNotes notes_;
};

/// Opens a file and reads its header.
SafeTensorsFile read_safetensors(const std::string& path);

}  // namespace moe
