#pragma once
// Tensors as a safetensors file: eight bytes, the header's length (little-endian); the header, JSON, padded with blanks
// to a multiple of 8; then every tensor's elements, row-major, little-endian, one after the other.
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
  std::string name;            // of letters, digits, blanks and _ - . alone
  std::string_view type;       // "F64", "F32", "F16", "BF16", "I64", "I32"
  std::vector<int64_t> shape;  // empty: a scalar
  std::span<const std::byte> data;
};

/// Texts by key, for the header's "__metadata__". A key has a tensor's characters; a text no quote, backslash or
/// control character.
using TensorNotes = std::map<std::string, std::string>;

/// Returns the files' name of a type: "F32" for float32.
std::string_view safetensor_type(DType dtype);
/// Returns the bytes of an element; none for a type that we neither write nor read.
std::optional<int64_t> bytes_of_safetensor(std::string_view type);

/// Writes the file, replacing `path` as a whole. Throws BadInput naming it if it can't be written; WrongResult naming
/// the tensor whose bytes are not those of its shape, or whose name is another's or has other characters.
void write_safetensors(const std::string& path, std::span<const SafeTensor> tensors, const TensorNotes& notes = {});

// Reads the files that write_safetensors and other software write.

/// Where a tensor's elements lie.
struct StoredTensor {
  std::string name, type;
  std::vector<int64_t> shape = {};
  int64_t first = 0, bytes = 0;  // in the file
};

class SafeTensorsFile {
 public:
  /// Opens the file and reads its header. Throws BadInput, one line that begins with the path, unless the header is one
  /// and its tensors fill the rest of the file without gap or overlap.
  explicit SafeTensorsFile(const std::string& path);

  /// Returns the tensors in the order in which they lie in the file.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// Returns the tensor of that name; null: there is none.
  const StoredTensor* find(std::string_view name) const;
  const TensorNotes& notes() const { return notes_; }
  /// Fills `to` with the bytes that begin `offset` bytes into the tensor. Throws BadInput naming file and tensor where
  /// they end early; WrongResult for bytes that are not the tensor's.
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
