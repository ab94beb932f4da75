// Latent attention beside its equations (DeepSeek-V2, arXiv:2405.04434, section 2.1; the norms: section 3.1.2) as plain
// loops over complex numbers. A derivative is the imaginary part that a step of i 1e-100 makes, as exact as the value.
#include <cmath>
#include <complex>
#include <gtest/gtest.h>
#include <map>

#include "moe/layer/attention.h"
#include "moe/shape/volumes.h"
#include "tests/tensor/random_tensor.h"

namespace moe {
namespace {

using Complex = std::complex<double>;
using Numbers = std::vector<Complex>;
constexpr double kStep = 1e-100;

struct Drawn {
  std::string name;
  int mp = 1;
  int64_t query_rank = 5;
  double theta = 100;
  int64_t window = 0;
  bool causal = true;
  Recompute recompute = Recompute::none;
};

LayerCase case_of(const Drawn& d) {
  LayerShape l{.batch = 2, .seq = 6, .model_dim = 6, .hidden = 12};
  l.heads = 3;
  l.q_lora_rank = d.query_rank;
  l.kv_lora_rank = 4;
  l.qk_nope_head_dim = 3;
  l.qk_rope_head_dim = 4;
  l.v_head_dim = 2;
  l.rope_theta = d.theta;
  l.window = d.window;
  l.causal = d.causal;
  l.dtype = DType::float64;
  ParallelShape parallel{.nodes = 2, .ranks_per_node = d.mp, .mp = d.mp};
  parallel.recompute = d.recompute;
  return complete(l, parallel, Rounding::ragged);
}

// y = W^T x for a weight (in, out).
Numbers times(const Numbers& x, const Numbers& w) {
  const size_t in = x.size(), out = w.size() / in;
  Numbers y(out);
  for (size_t i = 0; i < in; ++i)
    for (size_t o = 0; o < out; ++o) y[o] += x[i] * w[i * out + o];
  return y;
}

Numbers normed(const Numbers& x, const Numbers& gain) {
  Complex squares = 0;
  for (const Complex& v : x) squares += v * v;
  Numbers y;
  for (size_t i = 0; i < x.size(); ++i)
    y.push_back(gain[i] * x[i] / std::sqrt(squares / static_cast<double>(x.size()) + 1e-5));
  return y;
}

// Turns pairs (j, j + d / 2) of the d numbers from `first` on by place theta^(-2 j / d).
void rotate(Numbers& x, size_t first, size_t d, double place, double theta) {
  for (size_t j = 0; j < d / 2 && theta > 0; ++j) {
    const double angle = place * std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(d));
    const Complex a = x[first + j], b = x[first + j + d / 2];
    x[first + j] = a * std::cos(angle) - b * std::sin(angle);
    x[first + j + d / 2] = a * std::sin(angle) + b * std::cos(angle);
  }
}

struct Token {
  Numbers q, k_nope, k_rope, v;  // of all heads; k_rope of the token
};

Token token_of(const LayerShape& l, const std::map<std::string, Numbers>& w, const Numbers& h, int64_t place) {
  const auto at = static_cast<double>(place);
  const auto width = static_cast<size_t>(head_width(l)), rope = static_cast<size_t>(l.qk_rope_head_dim);
  Token t;
  t.q = l.q_lora_rank > 0 ? times(normed(times(h, w.at("wdq")), w.at("norm_q")), w.at("wuq")) : times(h, w.at("wq"));
  for (size_t head = 0; head < static_cast<size_t>(l.heads); ++head)
    rotate(t.q, (head + 1) * width - rope, rope, at, l.rope_theta);
  const Numbers latent = normed(times(h, w.at("wdkv")), w.at("norm_kv"));
  t.k_nope = times(latent, w.at("wuk"));
  t.v = times(latent, w.at("wuv"));
  t.k_rope = times(h, w.at("wkr"));
  rotate(t.k_rope, 0, rope, at, l.rope_theta);
  return t;
}

bool sees(const LayerShape& l, int64_t token, int64_t other) {
  if (l.causal && other > token) return false;
  return l.window == 0 || token - other < l.window;
}

// Returns the outputs of all tokens, one after the other.
Numbers plain(const LayerShape& l, const std::map<std::string, Numbers>& w, const Numbers& x) {
  const auto m = static_cast<size_t>(l.model_dim), nope = static_cast<size_t>(l.qk_nope_head_dim),
             rope = static_cast<size_t>(l.qk_rope_head_dim), dv = static_cast<size_t>(l.v_head_dim);
  Numbers all;
  for (int64_t sample = 0; sample < l.batch; ++sample) {
    std::vector<Token> tokens;
    for (int64_t place = 0; place < l.seq; ++place) {
      const auto first = x.begin() + (sample * l.seq + place) * l.model_dim;
      tokens.push_back(token_of(l, w, Numbers(first, first + l.model_dim), place));
    }
    for (int64_t place = 0; place < l.seq; ++place) {
      const Token& own = tokens[place];
      Numbers mixed;
      for (size_t head = 0; head < static_cast<size_t>(l.heads); ++head) {
        Complex sum = 0;
        Numbers values(dv);
        for (int64_t other = 0; other < l.seq; ++other) {
          if (!sees(l, place, other)) continue;
          const Token& t = tokens[other];
          Complex score = 0;
          for (size_t i = 0; i < nope; ++i) score += own.q[head * (nope + rope) + i] * t.k_nope[head * nope + i];
          for (size_t i = 0; i < rope; ++i) score += own.q[head * (nope + rope) + nope + i] * t.k_rope[i];
          const Complex weight = std::exp(score / std::sqrt(static_cast<double>(nope + rope)));
          sum += weight;
          for (size_t i = 0; i < dv; ++i) values[i] += weight * t.v[head * dv + i];
        }
        for (const Complex& v : values) mixed.push_back(v / sum);
      }
      const Numbers out = times(mixed, w.at("wo"));
      EXPECT_EQ(out.size(), m);
      all.insert(all.end(), out.begin(), out.end());
    }
  }
  return all;
}

Numbers numbers_of(TensorView t) { return {t.as<double>(), t.as<double>() + t.elements()}; }

// A weight of which ranks have parts, or its gradient.
class Whole {
 public:
  // Adds what a rank has of it: a part, or a part of the sum where every rank has all.
  void add(const Parameter& p, TensorView part, bool sums) {
    numbers_.resize(p.axes[0].total * p.axes[1].total * p.axes[2].total);
    for (int64_t i = 0; i < p.axes[1].count; ++i)
      for (int64_t j = 0; j < p.axes[2].count; ++j) {
        Complex& at = numbers_[(p.axes[1].first + i) * p.axes[2].total + p.axes[2].first + j];
        at = (sums ? at : 0) + part.as<double>()[i * p.axes[2].count + j];
      }
  }
  const Numbers& numbers() const { return numbers_; }

 private:
  Numbers numbers_;
};

class LatentAttentionTest : public testing::TestWithParam<Drawn> {};

TEST_P(LatentAttentionTest, IsThePapersEquationsAndTheirDerivatives) {
  const LayerCase c = case_of(GetParam());
  const int64_t tokens = mp_tokens(c), m = c.layer.model_dim;
  const Tensor x = random_tensor({tokens, m}, 1), dy = random_tensor({tokens, m}, 2);
  Numbers out(static_cast<size_t>(tokens * m)), d_input = out;
  std::map<std::string, Whole> weights, gradients;
  const auto add = [](Numbers& sum, TensorView part) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part.as<double>()[i];
  };
  int64_t alike = 0;
  for (int rank = 0; rank < c.parallel.mp; ++rank) {
    const RankShape shard = rank_shape(c, rank);
    const auto attention = make_attention({shard, {.seed = 8}});
    const Tensor y = random_tensor({tokens, m}, 3), dx = random_tensor({tokens, m}, 4);
    const Tensor dense = random_tensor({gradient_bytes(c) / 8}, 5);
    for (int again = 0; again < 2; ++again) {  // nothing is left of a pass before
      attention->forward(x, y);
      attention->backward_input(dy, dx);
      attention->backward_weights(x, dy, dense);
    }
    add(out, y);
    add(d_input, dx);
    alike = 0;
    for (const Parameter& p : attention->parameters(dense)) {
      const bool sums = p.summed_over == SummedOver::stage;
      if (sums) alike += p.value.elements();
      weights[p.name].add(p, p.value, false);
      gradients[p.name].add(p, p.gradient, sums);
    }
    // Once more, on top: twice of all.
    attention->backward_weights(x, dy, dense, Into::add);
    for (const Parameter& p : attention->parameters(dense))
      if (p.name == kKeyNorm || p.name == kWo) {
        EXPECT_NE(p.gradient.as<double>()[0], 0) << p.name;
      }
  }
  EXPECT_EQ(alike, latent_parameters(c.layer)) << "what the plan sums over the stage";

  std::map<std::string, Numbers> w;
  for (const auto& [name, whole] : weights) w[name] = whole.numbers();
  Numbers h = numbers_of(x);
  const Numbers d = numbers_of(dy), expected = plain(c.layer, w, h);
  for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i].real(), expected[i].real(), 1e-12);
  const auto slope = [&](Complex& number) {
    number += Complex(0, kStep);
    const Numbers stepped = plain(c.layer, w, h);
    number -= Complex(0, kStep);
    double sum = 0;
    for (size_t i = 0; i < stepped.size(); ++i) sum += d[i].real() * stepped[i].imag() / kStep;
    return sum;
  };
  for (size_t i = 0; i < h.size(); ++i) ASSERT_NEAR(d_input[i].real(), slope(h[i]), 1e-12) << "input " << i;
  for (auto& [name, numbers] : w)
    for (size_t i = 0; i < numbers.size(); ++i)
      ASSERT_NEAR(gradients[name].numbers()[i].real(), slope(numbers[i]), 1e-11) << name << " " << i;
  EXPECT_EQ(w.size(), c.layer.q_lora_rank > 0 ? 9U : 7U);
}

INSTANTIATE_TEST_SUITE_P(Layers, LatentAttentionTest,
                         testing::Values(Drawn{.name = "one_rank"}, Drawn{.name = "two_ranks", .mp = 2},
                                         Drawn{.name = "three_ranks", .mp = 3},
                                         Drawn{.name = "queries_not_compressed", .mp = 2, .query_rank = 0},
                                         Drawn{.name = "no_positions", .theta = 0},
                                         Drawn{.name = "window", .mp = 2, .window = 3},
                                         Drawn{.name = "all_seen", .causal = false},
                                         Drawn{.name = "recomputed", .mp = 2, .recompute = Recompute::selective}),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace moe
