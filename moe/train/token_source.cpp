#include "moe/train/token_source.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/base/files.h"
#include "moe/base/random.h"

namespace moe {
namespace {

constexpr size_t kHeldOutPart = 10;
constexpr size_t kMinBytes = 2 * kHeldOutPart;  // so that at least a pair of bytes is held out
constexpr size_t kBytes = 256;

}  // namespace

ByteSource::ByteSource(std::string path, std::string text, uint64_t seed)
    : path_(std::move(path)), text_(std::move(text)), seed_(seed) {
  require<BadInput>(text_.size() >= kMinBytes, "{}: found {} bytes, expected {} at least", path_, text_.size(),
                    kMinBytes);
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
  const uint64_t stream = random_stream_id(held_out ? "bytes held out" : "bytes train", static_cast<uint64_t>(step));
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

std::string included_text_path() { return config_dir() + "/text/moetune.txt.gz"; }

std::unique_ptr<ByteSource> read_byte_source(const std::string& path, uint64_t seed) {
  return std::make_unique<ByteSource>(path, text_of_file(path, "a file of text"), seed);
}

namespace {

constexpr int64_t kMaxEntries = int64_t{1} << 22;
constexpr int kMaxSteps = 100'000;
constexpr double kStationaryError = 1e-13;  // change of one step, summed over all contexts, that ends the iteration
constexpr double kShared = 1e-3;            // probability that is divided equally, so that every token is possible
constexpr uint64_t kAttempts = 64;          // random numbers reserved for one weight

int64_t checked_contexts(const MarkovSettings& s) {
  require<BadInput>(s.order >= 1 && s.order <= 8, "order: found {}, expected 1 to 8", s.order);
  require<BadInput>(s.alphabet >= 2 && s.alphabet <= 256, "alphabet: found {}, expected 2 to 256", s.alphabet);
  require<BadInput>(s.concentration > 0 && std::isfinite(s.concentration), "concentration: found {}, expected above 0",
                    s.concentration);
  int64_t contexts = 1;
  for (int i = 0; i < s.order; ++i) {
    contexts *= s.alphabet;
    require<BadInput>(contexts * s.alphabet <= kMaxEntries, "order: found {} with an alphabet of {}, expected {}",
                      s.order, s.alphabet, "at most 2^22 probabilities");
  }
  return contexts;
}

/// Draws Gamma(shape + 1) by rejection (Marsaglia, Tsang, ACM TOMS 26, 2000) and reduces it to `shape` by a power.
double gamma_number(double shape, uint64_t seed, uint64_t index) {
  static const uint64_t kUniforms = random_stream_id("markov gamma uniforms"),
                        kNormals = random_stream_id("markov gamma normals");
  const double d = shape + 1 - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  const double power = std::pow(1 - random_uniform(seed, kUniforms, index * kAttempts), 1 / shape);
  for (uint64_t attempt = 1; attempt < kAttempts; ++attempt) {  // nineteen of twenty first attempts are accepted
    const double x = random_normal(seed, kNormals, index * kAttempts + attempt), v = std::pow(1 + c * x, 3);
    const double u = 1 - random_uniform(seed, kUniforms, index * kAttempts + attempt);
    if (v > 0 && std::log(u) < x * x / 2 + d * (1 - v + std::log(v))) return d * v * power;
  }
  return d * power;
}

double entropy_of(std::span<const double> probabilities) {
  double sum = 0;
  for (const double p : probabilities)
    if (p > 0) sum -= p * std::log(p);
  return sum;
}

/// Returns the first index whose running sum exceeds `u` in [0, 1).
int64_t sample_index(std::span<const double> running_sums, double u) {
  const auto found = std::ranges::upper_bound(running_sums, u);
  return std::min<int64_t>(found - running_sums.begin(), static_cast<int64_t>(running_sums.size()) - 1);
}

}  // namespace

MarkovSource::MarkovSource(const MarkovSettings& settings)
    : settings_(settings), stationary_(static_cast<size_t>(checked_contexts(settings))) {
  make_table();
  find_stationary();
  find_entropies();
}

void MarkovSource::make_table() {
  const int width = settings_.alphabet;
  table_.resize(stationary_.size() * width);
  cumulative_.resize(table_.size());
  for (size_t row = 0; row < table_.size(); row += width) {
    const std::span<double> p(table_.data() + row, width);
    double sum = 0;
    for (int i = 0; i < width; ++i) sum += p[i] = gamma_number(settings_.concentration, settings_.seed, row + i);
    for (double& weight : p) weight = kShared / width + (1 - kShared) * (sum > 0 ? weight / sum : 1.0 / width);
    std::partial_sum(p.begin(), p.end(), cumulative_.begin() + static_cast<int64_t>(row));
  }
}

void MarkovSource::find_stationary() {
  const int64_t width = settings_.alphabet, all = contexts();
  std::ranges::fill(stationary_, 1.0 / static_cast<double>(all));
  double change = 1;
  for (int step = 0; step < kMaxSteps && change > kStationaryError; ++step) {
    std::vector<double> next(stationary_.size());
    for (int64_t context = 0; context < all; ++context)
      for (int64_t token = 0; token < width; ++token)
        next[(context * width + token) % all] += stationary_[context] * table_[context * width + token];
    const double sum = std::accumulate(next.begin(), next.end(), 0.0);
    change = 0;
    for (int64_t i = 0; i < all; ++i) {
      next[i] = (next[i] / sum + stationary_[i]) / 2;  // half a step, so that periodic chains converge too
      change += std::abs(next[i] - stationary_[i]);
    }
    stationary_.swap(next);
  }
  require<BadInput>(change <= kStationaryError, "concentration: found {}, expected one whose chain forgets its start",
                    settings_.concentration);
  first_contexts_.resize(stationary_.size());
  std::partial_sum(stationary_.begin(), stationary_.end(), first_contexts_.begin());
}

void MarkovSource::find_entropies() {
  const int64_t width = settings_.alphabet;
  std::vector<double> pairs(width * width), last(static_cast<size_t>(width));
  for (int64_t context = 0; context < contexts(); ++context) {
    entropy_rate_ += stationary_[context] * entropy_of({table_.data() + context * width, static_cast<size_t>(width)});
    last[context % width] += stationary_[context];
    for (int64_t token = 0; token < width; ++token)
      pairs[context % width * width + token] += stationary_[context] * table_[context * width + token];
  }
  order_1_entropy_ = entropy_of(pairs) - entropy_of(last);
}

void MarkovSource::fill(Split split, int64_t step, int64_t sample, std::span<int32_t> tokens) const {
  const auto name = split == Split::train ? "markov train" : "markov held out";
  const uint64_t steps = random_stream_id(name, static_cast<uint64_t>(step));
  const uint64_t seed = random_bits(settings_.seed, steps, static_cast<uint64_t>(sample));
  static const uint64_t kTokens = random_stream_id("markov tokens");
  const int64_t width = settings_.alphabet, order = settings_.order;
  int64_t context = sample_index(first_contexts_, random_uniform(seed, kTokens, 0)), digits = context;
  const auto given = static_cast<size_t>(order);
  for (size_t i = given; i-- > 0; digits /= width)
    if (i < tokens.size()) tokens[i] = static_cast<int32_t>(digits % width);
  for (size_t i = given; i < tokens.size(); ++i) {
    const std::span<const double> sums(cumulative_.data() + context * width, static_cast<size_t>(width));
    const int64_t token = sample_index(sums, random_uniform(seed, kTokens, i));
    tokens[i] = static_cast<int32_t>(token);
    context = (context * width + token) % contexts();
  }
}

std::unique_ptr<MarkovSource> make_markov_source(const MarkovSettings& settings) {
  return std::make_unique<MarkovSource>(settings);
}

int64_t masked_places(int64_t seq) { return std::max<int64_t>(1, std::llround(0.15 * static_cast<double>(seq))); }

void mask_tokens(const MaskSeed& seed, int64_t sample, int64_t vocabulary, std::span<int32_t> tokens,
                 std::span<int32_t> targets) {
  const uint64_t stream = random_stream_id(seed.held_out ? "held-out masks" : "masks",
                                           static_cast<uint64_t>(seed.step) << 32 ^ static_cast<uint64_t>(sample));
  // The chosen places are those with the smallest numbers; three more numbers per place decide what replaces the token.
  const auto seq = static_cast<uint64_t>(tokens.size());
  std::vector<uint64_t> places(seq);
  std::iota(places.begin(), places.end(), uint64_t{0});
  const auto chosen = places.begin() + masked_places(static_cast<int64_t>(seq));
  std::nth_element(places.begin(), chosen - 1, places.end(), [&](uint64_t a, uint64_t b) {
    return random_bits(seed.seed, stream, a) < random_bits(seed.seed, stream, b);
  });
  std::ranges::fill(targets, kNoTarget);
  const auto mask = static_cast<int32_t>(vocabulary - 1);
  for (auto place = places.begin(); place != chosen; ++place) {
    targets[*place] = tokens[*place];
    const double kind = random_uniform(seed.seed, stream, seq + *place);
    if (kind < 0.8)
      tokens[*place] = mask;
    else if (kind < 0.9)
      tokens[*place] =
          static_cast<int32_t>(random_bits(seed.seed, stream, 2 * seq + *place) % static_cast<uint64_t>(mask));
  }
}

}  // namespace moe
