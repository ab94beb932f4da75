#include "moe/serve/synthetic_routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "moe/base/check.h"
#include "moe/base/random.h"

namespace moe {
namespace {

void check_source(const SyntheticRouting& s) {
  require<BadInput>(s.layers >= 1, "layers: found {}, expected >= 1", s.layers);
  require<BadInput>(s.experts >= 1, "experts: found {}, expected >= 1", s.experts);
  require<BadInput>(s.skew >= 0 && s.skew <= 10, "skew: found {}, expected 0 to 10", s.skew);
  require<BadInput>(s.drift >= 0 && s.drift <= 10, "drift: found {}, expected 0 to 10", s.drift);
  require<BadInput>(s.correlation >= 0 && s.correlation <= 1, "correlation: found {}, expected 0 to 1", s.correlation);
}

void normalize(std::vector<double>& shares) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
}

// Returns each class's share of all tokens.
std::vector<double> class_shares(const SyntheticRouting& s) {
  std::vector<double> shares(s.experts);
  for (size_t c = 0; c < shares.size(); ++c) shares[c] = std::pow(static_cast<double>(c + 1), -s.skew);
  normalize(shares);
  return shares;
}

// Returns each class's expert in a layer.
std::vector<int32_t> experts_of_classes(const SyntheticRouting& s, int layer) {
  std::vector<int32_t> experts(s.experts);
  std::iota(experts.begin(), experts.end(), 0);
  const uint64_t stream = random_stream_id("experts of classes", static_cast<uint64_t>(layer));
  std::ranges::sort(experts, {}, [&](int32_t e) { return random_bits(s.seed, stream, static_cast<uint64_t>(e)); });
  return experts;
}

// Draws classes by their shares.
class ClassDraws {
 public:
  explicit ClassDraws(const std::vector<double>& shares) {
    std::partial_sum(shares.begin(), shares.end(), std::back_inserter(below_));
    below_.back() = 1;
  }
  size_t at(double share) const {
    return static_cast<size_t>(std::ranges::upper_bound(below_, share) - below_.begin());
  }

 private:
  std::vector<double> below_;
};

ClassDraws classes_of_batch(const SyntheticRouting& s, std::vector<double> shares, int64_t batch) {
  for (size_t c = 0; c < shares.size(); ++c)
    shares[c] *=
        std::exp(s.drift * random_normal(s.seed, random_stream_id("drift of classes", static_cast<uint64_t>(batch)),
                                         static_cast<uint64_t>(c)));
  normalize(shares);
  return ClassDraws(shares);
}

}  // namespace

RoutingTrace generate_routing(const SyntheticRouting& source, int64_t batches, int64_t batch_tokens,
                              int64_t first_batch) {
  check_source(source);
  RoutingTrace trace{source.layers, source.experts, batch_tokens, {}};
  trace.choices.resize(source.layers);
  for (auto& choices : trace.choices) choices.reserve(batches * batch_tokens);
  const std::vector<double> shares = class_shares(source);
  const uint64_t class_stream = random_stream_id("class of a token");
  std::vector<size_t> of_token(batch_tokens);
  for (int64_t batch = first_batch; batch < first_batch + batches; ++batch) {
    const ClassDraws classes = classes_of_batch(source, shares, batch);
    const auto first_token = static_cast<uint64_t>(batch * batch_tokens);
    for (size_t t = 0; t < of_token.size(); ++t)
      of_token[t] = classes.at(random_uniform(source.seed, class_stream, first_token + t));
    for (int layer = 0; layer < source.layers; ++layer) {
      const std::vector<int32_t> experts = experts_of_classes(source, layer);
      const uint64_t stream = random_stream_id("class in a layer", static_cast<uint64_t>(layer));
      for (size_t t = 0; t < of_token.size(); ++t) {
        // One random number decides both whether the token keeps its class and, scaled back to [0, 1), its class
        // otherwise.
        const double drawn = random_uniform(source.seed, stream, first_token + t);
        const bool keeps = drawn < source.correlation;
        const size_t of = keeps ? of_token[t] : classes.at((drawn - source.correlation) / (1 - source.correlation));
        trace.choices[layer].push_back(experts[of]);
      }
    }
  }
  return trace;
}

double best_guess_accuracy(const SyntheticRouting& source, int layer, int path) {
  check_source(source);
  const std::vector<double> shares = class_shares(source);
  const size_t n = shares.size();
  // chance[i][c][e]: the probability that a token of class c goes to expert e in the i-th layer of the path.
  std::vector<std::vector<std::vector<double>>> chance;
  for (int i = layer - path; i <= layer; ++i) {
    const std::vector<int32_t> experts = experts_of_classes(source, i);
    auto& of_layer = chance.emplace_back(n, std::vector<double>(n));
    for (size_t c = 0; c < n; ++c)
      for (size_t other = 0; other < n; ++other)
        of_layer[c][experts[other]] += (1 - source.correlation) * shares[other] + (c == other ? source.correlation : 0);
  }
  double right = 0;
  std::vector<size_t> experts(path);
  for (bool more = true; more;) {
    std::vector<double> next(n);
    for (size_t c = 0; c < n; ++c) {
      double joint = shares[c];
      for (size_t i = 0; i < experts.size(); ++i) joint *= chance[i][c][experts[i]];
      for (size_t e = 0; e < n; ++e) next[e] += joint * chance.back()[c][e];
    }
    right += *std::ranges::max_element(next);
    more = false;  // counts up to the next path, a number with one digit per layer
    for (size_t& digit : experts) {
      more = ++digit < n;
      if (more) break;
      digit = 0;
    }
  }
  return right;
}

}  // namespace moe
