#include "moe/layer/workload.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/layer/gates/gate.h"
#include "moe/serve/routing_trace.h"

namespace moe {
namespace {

// Random draws of a workload, for one layer.
struct Draws {
  const LayerSeed& seed;
  uint64_t bits(std::string_view of, int64_t index) const {
    return random_bits(seed.seed, random_stream_id(of, seed.layer), static_cast<uint64_t>(index));
  }
  // Draws an exponential number. If several draws are each divided by a weight, the probability that one of them is the
  // smallest is proportional to its weight.
  double exponential(int64_t index) const {
    return -std::log1p(
        -random_uniform(seed.seed, random_stream_id("workload choices", seed.layer), static_cast<uint64_t>(index)));
  }
  // Returns 0 to n - 1 in an order that depends on `first`, one of n, 2 n, ...
  std::vector<int64_t> shuffled(int64_t n, std::string_view of, int64_t first) const {
    std::vector<int64_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](int64_t i) { return bits(of, first + i); });
    return order;
  }
};

// Gives each of a group's tokens, taken in a random order, the next k experts of a round. The tokens of the last,
// incomplete round go on where the round before stopped.
void balance(const Routing& r, const Draws& draws, int64_t first_token, int32_t* experts) {
  const auto tokens = draws.shuffled(r.group_tokens, "workload tokens", first_token);
  const auto names = draws.shuffled(r.experts, "workload experts", first_token / r.group_tokens * r.experts);
  const int64_t whole = r.group_tokens / r.experts * r.experts;
  for (int64_t i = 0; i < r.group_tokens; ++i)
    for (int64_t c = 0; c < r.choices; ++c) {
      const int64_t place = (i < whole ? i : (i - whole) * r.choices) + c;
      experts[tokens[i] * r.choices + c] = static_cast<int32_t>(names[place % r.experts]);
    }
}

void draw(const std::vector<double>& weights, const Draws& draws, int64_t token, std::span<int32_t> experts) {
  std::vector<std::pair<double, int32_t>> keys;
  const auto all = static_cast<int64_t>(weights.size());
  for (int64_t e = 0; e < all; ++e)
    keys.emplace_back(draws.exponential(token * all + e) / weights[e], static_cast<int32_t>(e));
  std::partial_sort(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(experts.size()), keys.end());
  for (size_t c = 0; c < experts.size(); ++c) experts[c] = keys[c].second;
}

template <class Number>
bool parse(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && value >= 0;
}

}  // namespace

Workload::Workload(std::string_view spec, std::string_view where) : where_(where) {
  const size_t colon = std::min(spec.find(':'), spec.size());
  const std::string_view name = spec.substr(0, colon);
  text_ = spec.substr(std::min(colon + 1, spec.size()));
  const bool bare = colon == spec.size();
  bool good = true;
  if (name == "gate" || name == "balanced") {
    kind_ = name == "gate" ? Kind::gate : Kind::balanced;
    good = bare;
  } else if (name == "zipf") {
    kind_ = Kind::zipf;
    good = parse(text_, exponent_) && exponent_ <= 10;
  } else if (name == "hot") {
    kind_ = Kind::hot;
    good = bare || parse(text_, hot_);
  } else {
    kind_ = Kind::trace;
    good = name == "trace" && !text_.empty();
  }
  require<BadInput>(good, "{}: found '{}', expected gate, balanced, zipf:S, hot, hot:EXPERT or trace:FILE", where,
                    spec);
}

std::vector<double> Workload::weights(const RankShape& rank) const {
  std::vector<double> weights(rank.experts.total, 1);
  if (kind_ == Kind::hot) {
    require<BadInput>(hot_ < rank.experts.total, "{}: found expert {}, expected 0 to {}", where_, hot_,
                      rank.experts.total - 1);
    weights[hot_] = std::numeric_limits<double>::infinity();
  }
  for (size_t e = 0; e < weights.size(); ++e) weights[e] *= std::pow(static_cast<double>(e + 1), -exponent_);
  return weights;
}

void Workload::fill(const RankShape& rank, const LayerSeed& seed, Routing& r) const {
  r.preset = kind_ != Kind::gate;
  if (!r.preset || rank.is_dense()) return;
  const GatePart& gate = gate_of(rank.shape.layer);
  require<Unsupported>(gate.choices == Choices::top_k,
                       "{}: gate {} does not choose each token's top k, so its choices can't be given", where_,
                       gate.name);
  const Draws draws{seed};
  const std::vector<double> weights = this->weights(rank);
  const std::vector<int32_t> recorded =
      kind_ == Kind::trace ? read_trace(text_, rank, seed.layer) : std::vector<int32_t>();
  int32_t* out = r.expert.data();
  for (const ShardRange& run : rank.gated)
    for (int64_t token = run.first; token < run.first + run.count; ++token, out += r.choices) {
      if (kind_ == Kind::trace) {
        std::copy_n(recorded.begin() + token * r.choices, r.choices, out);
      } else if (kind_ != Kind::balanced) {
        draw(weights, draws, token, {out, static_cast<size_t>(r.choices)});
      } else if (token % r.group_tokens == 0) {
        balance(r, draws, token, out);
      }
    }
}

std::vector<int32_t> read_trace(const std::string& path, const RankShape& rank, uint64_t layer) {
  const int64_t tokens = rank.tokens.total, k = rank.shape.layer.top_k;
  std::vector<int32_t> all(tokens * k, -1);
  read_routed_tokens(
      path, {rank.experts.total, k},
      [&](uint64_t token, uint64_t of_layer) { return of_layer == layer && token < static_cast<uint64_t>(tokens); },
      [&](const RoutedToken& line, unsigned number) {
        int32_t* own = all.data() + static_cast<int64_t>(line.token) * k;
        require<BadInput>(*own < 0, "{}:{}: found token {} of layer {} twice, expected it once", path, number,
                          line.token, layer);
        std::ranges::copy(line.experts, own);
      });
  for (int64_t token = 0; token < tokens; ++token)
    require<BadInput>(all[token * k] >= 0, "{}: layer {}: found no token {}, expected 0 to {}", path, layer, token,
                      tokens - 1);
  return all;
}

}  // namespace moe
