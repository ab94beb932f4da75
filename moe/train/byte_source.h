#pragma once
// Reads any file as text: its bytes are the tokens.
#include <memory>
#include <string>

#include "moe/train/token_source.h"

namespace moe {

class ByteSource final : public TokenSource {
 public:
  /// Takes the text; `path` is for messages. Throws BadInput naming it for fewer than 20 bytes.
  ByteSource(std::string path, std::string text, uint64_t seed);

  int64_t vocabulary() const override { return 256; }
  /// Fills a sample, a window at a random place of its split. Throws BadInput naming the file if the split is shorter.
  void fill(Split split, int64_t step, int64_t sample, std::span<int32_t> tokens) const override;

  /// Views a split: the last tenth of the file is held out, all before it is trained on.
  std::string_view part(Split split) const;
  /// Returns the nats a byte that a table of pairs of bytes, counted in what is trained on plus one each, loses on
  /// what is held out: a model whose loss is lower uses more than the byte before.
  double bigram_held_out_loss() const;

 private:
  std::string path_, text_;
  uint64_t seed_;
};

/// Returns the path of the text that comes with moetune: its own pages and sources, as they once were, packed.
std::string own_text();

/// Reads a file, packed by gzip or not. Throws BadInput naming it if it can't be read or is too short.
std::unique_ptr<ByteSource> read_byte_source(const std::string& path, uint64_t seed);

}  // namespace moe
