#include "moe/train/byte_source.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/base/file_text.h"
#include "moe/base/random.h"

namespace moe {
namespace {

constexpr size_t kHeldOutPart = 10;
constexpr size_t kLeastBytes = 2 * kHeldOutPart;  // a pair of bytes is held out
constexpr size_t kBytes = 256;

}  // namespace

ByteSource::ByteSource(std::string path, std::string text, uint64_t seed)
    : path_(std::move(path)), text_(std::move(text)), seed_(seed) {
  require<BadInput>(text_.size() >= kLeastBytes, "{}: found {} bytes, expected {} at least", path_, text_.size(),
                    kLeastBytes);
}

std::string_view ByteSource::part(Split split) const {
  const std::string_view all = text_;
  const size_t trained = all.size() - all.size() / kHeldOutPart;
  return split == Split::train ? all.substr(0, trained) : all.substr(trained);
}

void ByteSource::fill(Split split, int64_t step, int64_t sample, std::span<int32_t> tokens) const {
  const bool held_out = split == Split::held_out;
  const std::string_view text = part(split);
  require<BadInput>(tokens.size() <= text.size(), "{}: found {} bytes {}, expected {} at least, as long as a sample",
                    path_, text.size(), held_out ? "held out" : "to train on", tokens.size());
  const uint64_t stream = stream_of(held_out ? "bytes held out" : "bytes train", static_cast<uint64_t>(step));
  const auto places = static_cast<double>(text.size() - tokens.size() + 1);
  const double first = std::floor(random_uniform(seed_, stream, static_cast<uint64_t>(sample)) * places);
  const auto window = text.substr(static_cast<size_t>(first), tokens.size());
  std::ranges::transform(window, tokens.begin(), [](char c) { return static_cast<unsigned char>(c); });
}

double ByteSource::bigram_held_out_loss() const {
  std::vector<int64_t> pairs(kBytes * kBytes, 1), firsts(kBytes, kBytes);
  const auto each_pair = [](std::string_view text, auto&& body) {
    for (size_t i = 1; i < text.size(); ++i)
      body(static_cast<unsigned char>(text[i - 1]), static_cast<unsigned char>(text[i]));
  };
  each_pair(part(Split::train), [&](size_t first, size_t second) {
    ++pairs[first * kBytes + second];
    ++firsts[first];
  });
  double sum = 0;
  const std::string_view held_out = part(Split::held_out);
  each_pair(held_out, [&](size_t first, size_t second) {
    sum += std::log(static_cast<double>(firsts[first]) / static_cast<double>(pairs[first * kBytes + second]));
  });
  return sum / static_cast<double>(held_out.size() - 1);
}

std::string own_text() { return config_dir() + "/text/moetune.txt.gz"; }

std::unique_ptr<ByteSource> read_byte_source(const std::string& path, uint64_t seed) {
  return std::make_unique<ByteSource>(path, text_of_file(path, "a file of text"), seed);
}

}  // namespace moe
