#pragma once
// Tensors as a safetensors file: eight bytes, the header's length (little-endian); the header, JSON, padded with blanks
// to a multiple of 8; then every tensor's elements, row-major, little-endian, one after the other.
#include <cstddef>
#include <cstdint>
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

/// Holds texts by key, for the header's "__metadata__". A key has a tensor's characters; a text no quote, backslash or
/// control character.
using TensorNotes = std::map<std::string, std::string>;

/// Returns the files' name of a type: "F32" for float32.
std::string_view safetensor_type(DType dtype);
/// Returns the bytes of an element; none for a type that we neither write nor read.
std::optional<int64_t> bytes_of_safetensor(std::string_view type);

/// Writes the file, replacing `path` as a whole. Throws BadInput naming it if it can't be written; WrongResult naming
/// the tensor whose bytes are not those of its shape, or whose name is another's or has other characters.
void write_safetensors(const std::string& path, std::span<const SafeTensor> tensors, const TensorNotes& notes = {});

}  // namespace moe
