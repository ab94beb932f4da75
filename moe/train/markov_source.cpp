#include "moe/train/markov_source.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "moe/base/check.h"
#include "moe/base/random.h"

namespace moe {
namespace {

constexpr int64_t kMostEntries = int64_t{1} << 22;
constexpr int kMostSteps = 100'000;
constexpr double kStationaryError = 1e-13;  // what one step still changes, over all contexts
constexpr double kShared = 1e-3;            // of each distribution, equal for all tokens: none is impossible
constexpr uint64_t kAttempts = 64;          // random numbers set aside for one weight

int64_t checked_contexts(const MarkovSettings& s) {
  require<BadInput>(s.order >= 1 && s.order <= 8, "order: found {}, expected 1 to 8", s.order);
  require<BadInput>(s.alphabet >= 2 && s.alphabet <= 256, "alphabet: found {}, expected 2 to 256", s.alphabet);
  require<BadInput>(s.concentration > 0 && std::isfinite(s.concentration), "concentration: found {}, expected above 0",
                    s.concentration);
  int64_t contexts = 1;
  for (int i = 0; i < s.order; ++i) {
    contexts *= s.alphabet;
    require<BadInput>(contexts * s.alphabet <= kMostEntries, "order: found {} with an alphabet of {}, expected {}",
                      s.order, s.alphabet, "at most 2^22 probabilities");
  }
  return contexts;
}

/// Draws Gamma(shape + 1) by rejection (Marsaglia, Tsang, ACM TOMS 26, 2000), brought down to `shape` by a power.
double gamma_number(double shape, uint64_t seed, uint64_t index) {
  static const uint64_t kUniforms = stream_of("markov gamma uniforms"), kNormals = stream_of("markov gamma normals");
  const double d = shape + 1 - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  const double power = std::pow(1 - random_uniform(seed, kUniforms, index * kAttempts), 1 / shape);
  for (uint64_t attempt = 1; attempt < kAttempts; ++attempt) {  // nineteen of twenty first ones are taken
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
int64_t drawn(std::span<const double> running_sums, double u) {
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
  for (int step = 0; step < kMostSteps && change > kStationaryError; ++step) {
    std::vector<double> next(stationary_.size());
    for (int64_t context = 0; context < all; ++context)
      for (int64_t token = 0; token < width; ++token)
        next[(context * width + token) % all] += stationary_[context] * table_[context * width + token];
    const double sum = std::accumulate(next.begin(), next.end(), 0.0);
    change = 0;
    for (int64_t i = 0; i < all; ++i) {
      next[i] = (next[i] / sum + stationary_[i]) / 2;  // half a step: no period stays
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
  std::vector<double> pairs(static_cast<size_t>(width * width)), last(static_cast<size_t>(width));
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
  const uint64_t steps = stream_of(name, static_cast<uint64_t>(step));
  const uint64_t seed = random_bits(settings_.seed, steps, static_cast<uint64_t>(sample));
  static const uint64_t kTokens = stream_of("markov tokens");
  const int64_t width = settings_.alphabet, order = settings_.order;
  int64_t context = drawn(first_contexts_, random_uniform(seed, kTokens, 0)), digits = context;
  const auto given = static_cast<size_t>(order);
  for (size_t i = given; i-- > 0; digits /= width)
    if (i < tokens.size()) tokens[i] = static_cast<int32_t>(digits % width);
  for (size_t i = given; i < tokens.size(); ++i) {
    const std::span<const double> sums(cumulative_.data() + context * width, static_cast<size_t>(width));
    const int64_t token = drawn(sums, random_uniform(seed, kTokens, i));
    tokens[i] = static_cast<int32_t>(token);
    context = (context * width + token) % contexts();
  }
}

std::unique_ptr<MarkovSource> make_markov_source(const MarkovSettings& settings) {
  return std::make_unique<MarkovSource>(settings);
}

}  // namespace moe
