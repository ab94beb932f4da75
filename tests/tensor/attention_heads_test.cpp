// The CPU's heads against those that a GPU composes of products and softmaxes, over shapes drawn at random; and those
// against themselves, where they keep no scores.
#include "moe/tensor/attention_heads.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <numeric>

#include "moe/base/random.h"
#include "moe/tensor/tensor.h"
#include "tests/tensor/random_tensor.h"

namespace moe {
namespace {

void expect_near(const Tensor& found, const Tensor& expected, const std::string& what) {
  for (int64_t i = 0; i < expected.view().elements(); ++i)
    ASSERT_NEAR(found.view().as<double>()[i], expected.view().as<double>()[i], 1e-12) << what << ", element " << i;
}

struct Results {
  Tensor out, dq, dk, dv;
};

// `between`: what happens between a forward and its backward.
Results results_of(
    AttentionHeads& heads, const HeadsShape& shape, const std::function<void()>& between = [] {}) {
  const int64_t wide = shape.heads * shape.dim, narrow = shape.kv_heads * shape.dim;
  const Tensor q = random_tensor({shape.tokens, wide}, 1), k = random_tensor({shape.tokens, narrow}, 2);
  const int64_t mixed = shape.heads * shape.value_width(), values = shape.kv_heads * shape.value_width();
  const Tensor v = random_tensor({shape.tokens, values}, 3), dy = random_tensor({shape.tokens, mixed}, 4);
  Results r{random_tensor({shape.tokens, mixed}, 5), random_tensor({shape.tokens, wide}, 6),
            random_tensor({shape.tokens, narrow}, 7), random_tensor({shape.tokens, values}, 8)};
  for (int again = 0; again < 2; ++again) {  // nothing is left of a pass before
    heads.forward({q, k, v}, r.out);
    between();
    heads.backward({q, k, v}, r.out, dy, {r.dq, r.dk, r.dv});
  }
  return r;
}

void compare(AttentionHeads& heads, const HeadsShape& shape) {
  const std::string what = fmt::format("L {}, {} heads of {} over {}, causal {}", shape.seq, shape.heads, shape.dim,
                                       shape.kv_heads, shape.causal);
  TensorStore kept;
  const Results found = results_of(heads, shape);
  const Results composed = results_of(*make_composed_heads(cpu_math(), shape, kept), shape);
  expect_near(found.out, composed.out, what);
  expect_near(found.dq, composed.dq, what + ", dq");
  expect_near(found.dk, composed.dk, what + ", dk");
  expect_near(found.dv, composed.dv, what + ", dv");
}

void compare(const HeadsShape& shape) {
  TensorStore kept;
  compare(*cpu_math().make_heads(shape, kept), shape);
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return std::memcmp(a.view().data(), b.view().data(), static_cast<size_t>(a.view().bytes())) == 0;
}

// Heads of other micro-batches, and of another layer's shape, use the same scratch between a forward and its backward.
void compare_recomputing(const HeadsShape& keeps) {
  const std::string what =
      fmt::format("L {}, {} heads of {} over {}", keeps.seq, keeps.heads, keeps.dim, keeps.kv_heads);
  HeadsShape again = keeps, other = keeps;
  again.recompute = other.recompute = true;
  other.tokens = other.seq = keeps.seq + 3;
  const auto scratch = std::make_shared<HeadsScratch>();
  TensorStore store;
  const auto computing = make_composed_heads(cpu_math(), again, store, scratch);
  const auto beside = make_composed_heads(cpu_math(), other, store, scratch);
  const Results kept = results_of(*make_composed_heads(cpu_math(), keeps, store), keeps);
  const Results found = results_of(*computing, again, [&] { results_of(*beside, other); });
  EXPECT_TRUE(same_bytes(found.out, kept.out)) << what;
  EXPECT_TRUE(same_bytes(found.dq, kept.dq)) << what << ", dq";
  EXPECT_TRUE(same_bytes(found.dk, kept.dk)) << what << ", dk";
  EXPECT_TRUE(same_bytes(found.dv, kept.dv)) << what << ", dv";
}

HeadsShape drawn_shape(uint64_t draw) {
  const auto pick = [&](uint64_t stream, int64_t most) {
    return 1 + static_cast<int64_t>(random_bits(9, stream, draw) % static_cast<uint64_t>(most));
  };
  const int64_t seq = pick(1, draw % 4 == 0 ? 300 : 40), kv_heads = pick(2, 4);
  return {.tokens = seq * pick(3, 3),
          .seq = seq,
          .heads = kv_heads * pick(4, 3),
          .kv_heads = kv_heads,
          .dim = pick(5, 33),
          .dtype = DType::float64};
}

// Tiles of any number of tokens, which divides a sequence or not.
TEST(AttentionHeads, ByTilesAreThoseOfWholeScores) {
  for (uint64_t draw = 90; draw < 150 && !testing::Test::HasFailure(); ++draw) {
    HeadsShape shape = drawn_shape(draw);
    shape.causal = draw % 3 != 0;
    const auto tile = 1 + static_cast<int64_t>(random_bits(9, 6, draw) % static_cast<uint64_t>(shape.seq));
    TensorStore kept;
    const Results whole = results_of(*make_composed_heads(cpu_math(), shape, kept), shape);
    shape.recompute = true;
    const Results tiled = results_of(*make_composed_heads(cpu_math(), shape, kept, nullptr, tile), shape);
    const std::string what = fmt::format("L {} by {}, {} heads of {} over {}, causal {}", shape.seq, tile, shape.heads,
                                         shape.dim, shape.kv_heads, shape.causal);
    expect_near(tiled.out, whole.out, what);
    expect_near(tiled.dq, whole.dq, what + ", dq");
    expect_near(tiled.dk, whole.dk, what + ", dk");
    expect_near(tiled.dv, whole.dv, what + ", dv");
  }
}

TEST(AttentionHeads, OfTheCpuAreThoseComposed) {
  for (uint64_t draw = 0; draw < 60 && !testing::Test::HasFailure(); ++draw) compare(drawn_shape(draw));
}

// What a window leaves of whole scores, a number after the other: of values and keys of any widths.
Results by_numbers(const HeadsShape& shape) {
  const int64_t dim = shape.dim, value_dim = shape.value_width(), group = shape.heads / shape.kv_heads;
  const Tensor q = random_tensor({shape.tokens, shape.heads * dim}, 1);
  const Tensor k = random_tensor({shape.tokens, shape.kv_heads * dim}, 2);
  const Tensor v = random_tensor({shape.tokens, shape.kv_heads * value_dim}, 3);
  const Tensor dy = random_tensor({shape.tokens, shape.heads * value_dim}, 4);
  Results r{Tensor({shape.tokens, shape.heads * value_dim}, DType::float64),
            Tensor({shape.tokens, shape.heads * dim}, DType::float64),
            Tensor({shape.tokens, shape.kv_heads * dim}, DType::float64),
            Tensor({shape.tokens, shape.kv_heads * value_dim}, DType::float64)};
  for (Tensor* t : {&r.out, &r.dq, &r.dk, &r.dv}) std::fill_n(t->view().as<double>(), t->view().elements(), 0);
  const auto row = [](const Tensor& t, int64_t token, int64_t head, int64_t width) {
    return t.view().as<double>() + token * t.view().size(1) + head * width;
  };
  const auto dot = [](const double* a, const double* b, int64_t n) { return std::inner_product(a, a + n, b, 0.0); };
  const auto add = [](double* to, double by, const double* from, int64_t n) {
    for (int64_t i = 0; i < n; ++i) to[i] += by * from[i];
  };
  const double scale = 1 / std::sqrt(static_cast<double>(dim));
  for (int64_t token = 0; token < shape.tokens; ++token)
    for (int64_t head = 0; head < shape.heads; ++head) {
      const int64_t start = token / shape.seq * shape.seq;
      const int64_t first = shape.window > 0 ? std::max(start, token - shape.window + 1) : start;
      const int64_t last = shape.causal ? token : start + shape.seq - 1;
      std::vector<double> p, dp;
      for (int64_t j = first; j <= last; ++j) {
        p.push_back(std::exp(scale * dot(row(q, token, head, dim), row(k, j, head / group, dim), dim)));
        dp.push_back(dot(row(dy, token, head, value_dim), row(v, j, head / group, value_dim), value_dim));
      }
      const double sum = std::accumulate(p.begin(), p.end(), 0.0);
      for (double& share : p) share /= sum;
      const double mean = std::inner_product(p.begin(), p.end(), dp.begin(), 0.0);
      for (int64_t j = first; j <= last; ++j) {
        const auto i = static_cast<size_t>(j - first);
        const double d = scale * p[i] * (dp[i] - mean);
        add(row(r.out, token, head, value_dim), p[i], row(v, j, head / group, value_dim), value_dim);
        add(row(r.dv, j, head / group, value_dim), p[i], row(dy, token, head, value_dim), value_dim);
        add(row(r.dq, token, head, dim), d, row(k, j, head / group, dim), dim);
        add(row(r.dk, j, head / group, dim), d, row(q, token, head, dim), dim);
      }
    }
  return r;
}

TEST(AttentionHeads, OfWindowsAndOtherValuesAreThoseOfEachNumber) {
  for (uint64_t draw = 270; draw < 390 && !testing::Test::HasFailure(); ++draw) {
    HeadsShape shape = drawn_shape(draw);
    const auto below = [&](uint64_t stream, int64_t most) {
      return static_cast<int64_t>(random_bits(9, stream, draw) % static_cast<uint64_t>(most));
    };
    if (shape.seq > 40) shape.tokens = shape.seq;
    if (draw % 3 != 0) shape.window = 1 + below(7, shape.seq + 2);
    if (draw % 2 == 0) shape.value_dim = 1 + below(8, 33);
    shape.causal = shape.window > 0 || draw % 4 == 0;
    shape.recompute = draw % 5 < 3;
    const std::string what =
        fmt::format("L {}, {} heads of {} and {} over {}, window {}, causal {}", shape.seq, shape.heads, shape.dim,
                    shape.value_width(), shape.kv_heads, shape.window, shape.causal);
    TensorStore kept;
    const auto own = make_composed_heads(cpu_math(), shape, kept, nullptr, 1 + below(9, shape.seq));
    const auto devices = cpu_math().make_heads(shape, kept);
    const Results expected = by_numbers(shape);
    for (AttentionHeads* heads : {own.get(), devices.get()}) {
      const Results found = results_of(*heads, shape);
      expect_near(found.out, expected.out, what);
      expect_near(found.dq, expected.dq, what + ", dq");
      expect_near(found.dk, expected.dk, what + ", dk");
      expect_near(found.dv, expected.dv, what + ", dv");
    }
  }
}

// What LibTorch computes on a GPU, by the same calls.
TEST(AttentionHeads, OfTorchAreThoseComposed) {
  for (uint64_t draw = 150; draw < 210 && !testing::Test::HasFailure(); ++draw) {
    HeadsShape shape = drawn_shape(draw);
    shape.causal = draw % 3 != 0;
    compare(*make_torch_heads(shape), shape);
  }
}

TEST(AttentionHeads, ScoresComputedAgainAreTheSameToTheBit) {
  for (uint64_t draw = 60; draw < 90 && !testing::Test::HasFailure(); ++draw) compare_recomputing(drawn_shape(draw));
}

TEST(AttentionHeads, WhatComputesScoresAgainKeepsNone) {
  HeadsShape shape{.tokens = 24, .seq = 8, .heads = 6, .kv_heads = 2, .dim = 4, .dtype = DType::float64};
  const auto bytes_of_heads = [&](bool recompute, const std::shared_ptr<HeadsScratch>& scratch) {
    shape.recompute = recompute;
    const int64_t before = tensor_memory.live_bytes;
    TensorStore kept;
    const auto heads = make_composed_heads(cpu_math(), shape, kept, scratch);
    return tensor_memory.live_bytes - before;
  };
  const int64_t square = int64_t{8} * 8 * 8;
  const auto scratch = std::make_shared<HeadsScratch>();
  EXPECT_EQ(bytes_of_heads(true, scratch), 4 * square) << "scores of a head of each key-value head, and gradients";
  EXPECT_EQ(bytes_of_heads(true, scratch), 0) << "all layers and micro-batches of a rank share them";
  EXPECT_EQ(bytes_of_heads(false, scratch), 18 * square) << "3 sequences of 6 heads";
  shape.tokens = shape.seq = 4 * kTileTokens;
  EXPECT_EQ(bytes_of_heads(true, nullptr), 32 * kTileTokens * shape.seq) << "of a tile's tokens alone";
}

// A rank's rows of whole sequences: of each of 2 ranks pieces number `rank`, and as many from the end.
Tensor rows_of_rank(const TensorView& whole, const HeadsShape& of, int ranks, int rank) {
  const int64_t width = whole.size(1), piece = of.seq / (2 * ranks);
  Tensor own({of.tokens / ranks, width}, DType::float64);
  for (int64_t row = 0; row < of.tokens / ranks; ++row) {
    const int64_t sequence = row / (2 * piece), half = row / piece % 2;
    const int64_t from = sequence * of.seq + (half == 0 ? rank : 2 * ranks - 1 - rank) * piece + row % piece;
    std::memcpy(own.view().at(row * width), whole.at(from * width), static_cast<size_t>(width) * sizeof(double));
  }
  return own;
}

// Lays keys one rank's after the other's, with room for values between.
Tensor by_rank(const TensorView& whole, const HeadsShape& of, int ranks) {
  const int64_t each = whole.elements() / ranks;
  Tensor all({2 * ranks * each}, DType::float64);
  for (int rank = 0; rank < ranks; ++rank) {
    const Tensor own = rows_of_rank(whole, of, ranks, rank);
    std::memcpy(all.view().at(2 * rank * each), own.view().data(), static_cast<size_t>(own.view().bytes()));
  }
  return all;
}

void compare_shared(const HeadsShape& whole, int ranks, int64_t tile) {
  const std::string what =
      fmt::format("L {} over {} ranks by {}, {} heads of {} over {}, causal {}, window {}, recompute {}", whole.seq,
                  ranks, tile, whole.heads, whole.dim, whole.kv_heads, whole.causal, whole.window, whole.recompute);
  const int64_t wide = whole.heads * whole.dim, narrow = whole.kv_heads * whole.dim, own = whole.tokens / ranks;
  const Tensor q = random_tensor({whole.tokens, wide}, 1), k = random_tensor({whole.tokens, narrow}, 2);
  const Tensor v = random_tensor({whole.tokens, narrow}, 3), dy = random_tensor({whole.tokens, wide}, 4);
  const Results expected = by_numbers(whole);
  const Tensor all_k = by_rank(k, whole, ranks), all_v = by_rank(v, whole, ranks);
  const Tensor expected_dk = by_rank(expected.dk, whole, ranks), expected_dv = by_rank(expected.dv, whole, ranks);
  std::vector<double> dk(expected_dk.view().elements()), dv(dk.size());
  for (int rank = 0; rank < ranks; ++rank) {
    HeadsShape shape = whole;
    shape.tokens = own;
    shape.ranks = ranks;
    shape.rank = rank;
    shape.rank_stride = 2 * own * narrow;
    TensorStore kept;
    const auto heads = make_composed_heads(cpu_math(), shape, kept, nullptr, tile);
    const Tensor own_q = rows_of_rank(q, whole, ranks, rank), d_out = rows_of_rank(dy, whole, ranks, rank);
    Tensor out({own, wide}, DType::float64), dq({own, wide}, DType::float64);
    Tensor d_keys = random_tensor({2 * ranks * own * narrow}, 5),
           d_values = random_tensor({2 * ranks * own * narrow}, 6);
    const auto first = [&](const Tensor& all) { return all.view().part(0, {own, narrow}); };
    const HeadInputs in{own_q, first(all_k), first(all_v)}, d{dq, first(d_keys), first(d_values)};
    heads->forward(in, out);
    heads->backward(in, out, d_out, d);
    expect_near(out, rows_of_rank(expected.out, whole, ranks, rank), what);
    expect_near(dq, rows_of_rank(expected.dq, whole, ranks, rank), what + ", dq");
    for (size_t i = 0; i < dk.size(); ++i) {
      dk[i] += d_keys.view().as<double>()[i];
      dv[i] += d_values.view().as<double>()[i];
    }
  }
  for (int rank = 0; rank < ranks; ++rank)
    for (int64_t i = 2 * rank * own * narrow; i < (2 * rank + 1) * own * narrow; ++i) {
      ASSERT_NEAR(dk[i], expected_dk.view().as<double>()[i], 1e-12) << what << ", dk " << i;
      ASSERT_NEAR(dv[i], expected_dv.view().as<double>()[i], 1e-12) << what << ", dv " << i;
    }
}

TEST(AttentionHeads, OfRanksThatShareSequencesAreTheirsOfTheWhole) {
  for (uint64_t draw = 210; draw < 270 && !testing::Test::HasFailure(); ++draw) {
    HeadsShape shape = drawn_shape(draw);
    const int ranks = 2 + static_cast<int>(draw % 3);
    const int64_t sequences = shape.tokens / shape.seq;
    shape.seq = 2 * ranks * (1 + shape.seq / 20);
    shape.tokens = sequences * shape.seq;
    shape.causal = draw % 4 != 0;
    shape.recompute = draw % 2 == 0;
    if (shape.causal && draw % 3 == 0) shape.window = 1 + shape.seq / 3;
    compare_shared(shape, ranks, 1 + static_cast<int64_t>(draw % 5));
  }
}

// A part's rows of whole sequences.
Tensor rows_of_part(const TensorView& whole, const HeadsShape& of, int part) {
  const int64_t width = whole.size(1), tokens = of.seq / of.parts, samples = of.tokens / of.seq;
  Tensor own({samples * tokens, width}, DType::float64);
  for (int64_t sample = 0; sample < samples; ++sample)
    std::memcpy(own.view().at(sample * tokens * width), whole.at((sample * of.seq + part * tokens) * width),
                static_cast<size_t>(tokens * width) * sizeof(double));
  return own;
}

using Devices = std::function<std::unique_ptr<AttentionHeads>(const HeadsShape&, TensorStore&)>;

// Forwards of all parts, then backwards from the last one on; all of it twice, as nothing is left of a pass before.
void compare_parts(const HeadsShape& whole, const Devices& make, const std::string& what) {
  struct Part {
    Tensor q, k, v, dy, out, dq, dk, dv;
    TensorStore kept;
    std::unique_ptr<AttentionHeads> heads;
    HeadInputs in() const { return {q, k, v}; }
    HeadInputs d() const { return {dq, dk, dv}; }
  };
  const Results expected = by_numbers(whole);
  const int64_t tokens = whole.tokens / whole.parts;
  const auto cut = [&](int64_t width, uint64_t seed, int part) {
    return rows_of_part(random_tensor({whole.tokens, width}, seed), whole, part);
  };
  const int64_t dim = whole.dim, value_dim = whole.value_width();
  std::vector<Part> parts(whole.parts);
  std::vector<KeysValues> keys, d_keys;
  for (int p = 0; p < whole.parts; ++p) {
    Part& part = parts[p];
    part.q = cut(whole.heads * dim, 1, p);
    part.k = cut(whole.kv_heads * dim, 2, p);
    part.v = cut(whole.kv_heads * value_dim, 3, p);
    part.dy = cut(whole.heads * value_dim, 4, p);
    part.out = random_tensor({tokens, whole.heads * value_dim}, 5);
    part.dq = random_tensor({tokens, whole.heads * dim}, 6);
    part.dk = random_tensor({tokens, whole.kv_heads * dim}, 7);
    part.dv = random_tensor({tokens, whole.kv_heads * value_dim}, 8);
    HeadsShape own = whole;
    own.tokens = tokens;
    own.part = p;
    part.heads = make(own, part.kept);
    keys.push_back({part.k, part.v});
    d_keys.push_back({part.dk, part.dv});
  }
  const auto with = [](HeadInputs of, const std::vector<KeysValues>& all, size_t before) {
    of.earlier_parts = std::span(all).first(before);
    return of;
  };
  for (int again = 0; again < 2; ++again) {
    for (size_t p = 0; p < parts.size(); ++p) parts[p].heads->forward(with(parts[p].in(), keys, p), parts[p].out);
    for (size_t p = parts.size(); p-- > 0;)
      parts[p].heads->backward(with(parts[p].in(), keys, p), parts[p].out, parts[p].dy, with(parts[p].d(), d_keys, p));
  }
  for (int p = 0; p < whole.parts; ++p) {
    const Part& part = parts[p];
    const std::string of = fmt::format("{}, part {} of {}", what, p, whole.parts);
    expect_near(part.out, rows_of_part(expected.out, whole, p), of);
    expect_near(part.dq, rows_of_part(expected.dq, whole, p), of + ", dq");
    expect_near(part.dk, rows_of_part(expected.dk, whole, p), of + ", dk");
    expect_near(part.dv, rows_of_part(expected.dv, whole, p), of + ", dv");
  }
}

TEST(AttentionHeads, OfPartsAreThoseOfWholeSequences) {
  for (uint64_t draw = 390; draw < 510 && !testing::Test::HasFailure(); ++draw) {
    HeadsShape shape = drawn_shape(draw);
    const auto below = [&](uint64_t stream, int64_t most) {
      return static_cast<int64_t>(random_bits(9, stream, draw) % static_cast<uint64_t>(most));
    };
    const int64_t sequences = shape.seq > 40 ? 1 : shape.tokens / shape.seq;
    shape.parts = 2 + static_cast<int>(below(10, 3));
    shape.seq = shape.parts * (1 + shape.seq / shape.parts);
    shape.tokens = sequences * shape.seq;
    if (draw % 3 != 0) shape.window = 1 + below(7, shape.seq + 2);
    if (draw % 2 == 0) shape.value_dim = 1 + below(8, 33);
    shape.recompute = draw % 5 < 3;
    const int64_t tile = 1 + below(9, shape.seq / shape.parts);
    const auto scratch = std::make_shared<HeadsScratch>();
    const Devices own = [&](const HeadsShape& part, TensorStore& kept) {
      return make_composed_heads(cpu_math(), part, kept, scratch, tile);
    };
    const Devices devices = [](const HeadsShape& part, TensorStore& kept) { return cpu_math().make_heads(part, kept); };
    const std::string what =
        fmt::format("L {} by {}, {} heads of {} and {} over {}, window {}, recompute {}", shape.seq, tile, shape.heads,
                    shape.dim, shape.value_width(), shape.kv_heads, shape.window, shape.recompute);
    compare_parts(shape, own, what);
    compare_parts(shape, devices, what + ", the device's");
  }
}

TEST(AttentionHeads, OfOneTokenPassItsValueOn) {
  compare({.tokens = 5, .seq = 1, .heads = 6, .kv_heads = 2, .dim = 3, .dtype = DType::float64});
}

}  // namespace
}  // namespace moe
