#pragma once
// Reads the files that write_safetensors and other software write.
#include <fstream>

#include "moe/export/safetensors.h"

namespace moe {

/// Says where a tensor's elements lie.
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
