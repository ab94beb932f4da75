// Every kernel of CudaMath against the CPU's, in float64 on the same numbers, over types and sizes, aligned or not.
#include "moe/tensor/math.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <numbers>

#include "moe/layer/norm.h"
#include "moe/tensor/attention_heads.h"
#include "tests/layer/cuda/device_values.h"
#include "tests/layer/cuda/test_device.h"

namespace moe {
namespace {

class CudaMathTest : public testing::TestWithParam<DType> {
 protected:
  Pair random(std::initializer_list<int64_t> shape, uint64_t stream) const {
    return {shape, GetParam(), math_->memory(), stream};
  }
  std::unique_ptr<Math> math_ = make_test_math();
};

constexpr int64_t kSizes[] = {0, 1, 7, 8, 33, 512, 1000, 2049};

TEST_P(CudaMathTest, ElementByElement) {
  for (const int64_t n : kSizes) {
    SCOPED_TRACE(n);
    Pair a = random({n}, 1), b = random({n}, 2), d = random({n}, 3), out = random({n}, 4), d_b = random({n}, 5);
    math_->gelu(a.device, out.device), cpu_math().gelu(a.reference, out.reference);
    expect_near(out, "gelu");
    math_->gelu_backward(a.device, d.device, d.device), cpu_math().gelu_backward(a.reference, d.reference, d.reference);
    expect_near(d, "gelu backward");
    math_->gelu_tanh(a.device, out.device), cpu_math().gelu_tanh(a.reference, out.reference);
    expect_near(out, "gelu by tanh");
    Pair by_tanh = random({n}, 8);
    math_->gelu_tanh_backward(a.device, by_tanh.device, by_tanh.device);
    cpu_math().gelu_tanh_backward(a.reference, by_tanh.reference, by_tanh.reference);
    expect_near(by_tanh, "gelu by tanh, backward", 2);
    math_->swiglu(a.device, b.device, out.device), cpu_math().swiglu(a.reference, b.reference, out.reference);
    expect_near(out, "swiglu");
    Pair dy = random({n}, 6);
    math_->swiglu_backward(a.device, b.device, dy.device, dy.device, d_b.device);
    cpu_math().swiglu_backward(a.reference, b.reference, dy.reference, dy.reference, d_b.reference);
    expect_near(dy, "swiglu's first gradient", 2), expect_near(d_b, "swiglu's second gradient");
    Pair sum = random({n}, 7);
    math_->add(a.device, sum.device), cpu_math().add(a.reference, sum.reference);
    expect_near(sum, "add");
    math_->scale(sum.device, 0.3), cpu_math().scale(sum.reference, 0.3);
    expect_near(sum, "scale", 2);
    math_->assign(a.device, b.device);
    expect_near(b.device, a.device, 0, "assign");
  }
}

TEST_P(CudaMathTest, RotatesHeads) {
  for (const auto& [d, before] :
       {std::pair<int64_t, int64_t>{2, 0}, {6, 0}, {16, 0}, {64, 0}, {128, 0}, {2, 3}, {16, 5}, {64, 128}})
    for (const int64_t tokens : {0, 7, 24}) {
      SCOPED_TRACE(fmt::format("{} tokens, the last {} of heads {} wide", tokens, d, before + d));
      constexpr int64_t kSeq = 6, kHeads = 3;
      const int64_t head = before + d;
      Pair rows = random({tokens, kHeads * head}, 1);
      const Pair turns({kSeq, d}, accumulation_type(GetParam()), math_->memory(), 2);
      for (const RotationDirection turn : {RotationDirection::forward, RotationDirection::back}) {
        math_->rotate(rows.device, head, turns.device, turn);
        cpu_math().rotate(rows.reference, head, turns.reference, turn);
        expect_near(rows, "rotate", 2);
      }
    }
}

// Parts that no 16 bytes begin at.
TEST_P(CudaMathTest, UnalignedParts) {
  Pair a = random({64}, 1), sum = random({64}, 2);
  math_->add(a.device.view().part(3, {48}), sum.device.view().part(1, {48}));
  cpu_math().add(a.reference.view().part(3, {48}), sum.reference.view().part(1, {48}));
  expect_near(sum, "add");
}

TEST_P(CudaMathTest, ExtremesOfActivations) {
  Pair x = random({16}, 1), out = random({16}, 2), one = random({16}, 3);
  for_each_element(x.device, [&](int64_t i, auto& v) {
    v = cuda::rounded<std::remove_reference_t<decltype(v)>>(i % 2 == 0 ? -1000.0 : 1000.0);
  });
  math_->gelu(x.device, out.device);
  EXPECT_EQ(values_of(out.device)[0], 0);
  EXPECT_EQ(values_of(out.device)[1], values_of(x.device)[1]);
  math_->swiglu(x.device, one.device, out.device);
  EXPECT_EQ(values_of(out.device)[0], 0);
}

// Of 16 bits GELU is as near as a number can be but one, whatever it is of; float32's own roundings come on top.
TEST_P(CudaMathTest, GeluOfEveryNumberOf16Bits) {
  if (bytes_of(GetParam()) != 2) return;
  constexpr int64_t kAll = 65536;
  const Tensor x({kAll}, GetParam(), math_->memory()), out({kAll}, GetParam(), math_->memory());
  const Tensor d({kAll}, GetParam(), math_->memory());
  for_each_element(x, [](int64_t i, auto& v) {
    if constexpr (sizeof v == 2) v = std::bit_cast<std::remove_reference_t<decltype(v)>>(static_cast<uint16_t>(i));
  });
  for_each_element(d, [](int64_t, auto& v) { v = cuda::rounded<std::remove_reference_t<decltype(v)>>(1.0F); });
  math_->gelu(x, out);
  math_->gelu_backward(x, d, d);
  const std::vector<double> at = values_of(x), found = values_of(out), slope = values_of(d);
  const auto expect_next = [&](double is, double exact, double v) {
    double correct = 0;
    cuda::with_type(GetParam(), [&](auto zero) {
      using T = decltype(zero);
      correct = static_cast<double>(cuda::value_of(cuda::rounded<T>(exact)));
    });
    const bool brain = GetParam() == DType::bfloat16;
    const double unit = std::ldexp(1, std::max(std::ilogb(exact), brain ? -126 : -14) - (brain ? 7 : 10));
    ASSERT_LE(std::abs(is - correct), is == correct ? 0 : unit + 0x1p-25) << "of " << v;
  };
  for (size_t i = 0; i < kAll; ++i) {
    const double v = at[i], share = std::erfc(-v * std::sqrt(0.5)) / 2;
    if (std::isnan(v)) {
      ASSERT_TRUE(std::isnan(found[i]) && std::isnan(slope[i]));
    } else if (std::isinf(v)) {
      ASSERT_TRUE(found[i] == std::max(v, 0.0) && slope[i] == share);
    } else {
      expect_next(found[i], v * share, v);
      expect_next(slope[i], share + v * std::exp(-v * v / 2) / std::sqrt(2 * std::numbers::pi), v);
    }
  }
}

TEST_P(CudaMathTest, ConvertsToNearestEven) {
  for (const DType to : kDTypes)
    for (const int64_t n : kSizes) {
      const Pair from = random({n}, 1);
      const Tensor there({n}, to, math_->memory()), back({n}, DType::float64, math_->memory());
      math_->convert(from.device, there);
      math_->convert(there, back);
      Tensor expected({n}, to, math_->memory());
      for_each_element(expected, [&](int64_t i, auto& v) {
        v = cuda::rounded<std::remove_reference_t<decltype(v)>>(from.reference.as<double>()[i]);
      });
      expect_near(there, expected, 0, "there");
      expect_near(back, expected, 0, "and back");
    }
}

TEST_P(CudaMathTest, ConvertsAsTheCpuDoes) {
  if (bytes_of(GetParam()) < 4) return;
  const int64_t n = 4096;
  const Pair from = random({n}, 1);
  const Tensor host({n}, GetParam()), cpu({n}, DType::bfloat16), wire({n}, DType::bfloat16, math_->memory());
  math_->memory().to_host(from.device.view().data(), host.view().data(), host.view().bytes());
  cpu_math().convert(host, cpu);
  math_->convert(from.device, wire);
  const OnHost sent(wire);
  for (int64_t i = 0; i < n; ++i) ASSERT_EQ(sent.view().as<uint16_t>()[i], cpu.as<uint16_t>()[i]);
}

// Rows as wide as 16 bytes, `packs` of them, so that other tiles hold them than those of other widths.
int64_t packs_of(DType dtype, int64_t packs) { return packs * 16 / bytes_of(dtype); }

TEST_P(CudaMathTest, Norms) {
  const auto compare = [&](bool centred, int64_t rows, int64_t width, int64_t skipped = 0) {
    SCOPED_TRACE(fmt::format("centred {}, {} rows of {}, behind {}", centred, rows, width, skipped));
    Pair x = random({skipped + rows * width}, 1), gain = random({width}, 2), d = random({skipped + rows * width}, 3);
    Pair out = random({rows, width}, 4), d_gain = random({width}, 5);
    const auto part = [&](const Tensor& t) { return t.view().part(skipped, {rows, width}); };
    const NormInput there{part(x.device), gain.device, centred, RowNorm::kEpsilon};
    const NormInput here{part(x.reference), gain.reference, centred, RowNorm::kEpsilon};
    math_->norm(there, out.device), cpu_math().norm(here, out.reference);
    expect_near(out, "norm", 2);
    if (width == 1) return;  // all of a gradient cancels
    math_->norm_backward(there, part(d.device), d_gain.device);
    cpu_math().norm_backward(here, part(d.reference), d_gain.reference);
    expect_near(d, "d", 10), expect_near(d_gain, "d_gain", 4);
  };
  for (const bool centred : {false, true}) {
    for (const int64_t rows : {0, 1, 9, 40})
      for (const int64_t width : {1, 21, 32, 65, 300}) compare(centred, rows, width);
    for (const int64_t rows : {1, 7})
      for (const int64_t packs : {33, 256, 257, 600, 1024, 1300}) compare(centred, rows, packs_of(GetParam(), packs));
    compare(centred, 300, 1040 + 1);  // wider than registers hold, and more rows than blocks
    compare(centred, 9000, packs_of(GetParam(), 1));
    compare(centred, 5, packs_of(GetParam(), 70), 1);
  }
}

TEST_P(CudaMathTest, NormsOfTwoRunsAreTheSame) {
  constexpr int64_t kRows = 500, kWidth = 48;
  const Pair x = random({kRows, kWidth}, 1), gain = random({kWidth}, 2);
  std::vector<double> found[2];
  for (auto& values : found) {
    const Pair d = random({kRows, kWidth}, 3), d_gain = random({kWidth}, 4);
    math_->norm_backward({x.device, gain.device, true, RowNorm::kEpsilon}, d.device, d_gain.device);
    values = values_of(d_gain.device);
  }
  EXPECT_EQ(found[0], found[1]);
}

// A row whose first number is far from all others.
TEST_P(CudaMathTest, NormsOfRowsWithAnOutlier) {
  const int64_t rows = 6, width = packs_of(GetParam(), 257);
  Pair x = random({rows, width}, 1), gain = random({width}, 2), d = random({rows, width}, 3),
       d_gain = random({width}, 4);
  for_each_element(x.device, [&](int64_t i, auto& v) {
    if (i % width != 0) return;
    v = cuda::rounded<std::remove_reference_t<decltype(v)>>(300.0);
    x.reference.as<double>()[i] = 300;
  });
  math_->norm_backward({x.device, gain.device, true, RowNorm::kEpsilon}, d.device, d_gain.device);
  cpu_math().norm_backward({x.reference, gain.reference, true, RowNorm::kEpsilon}, d.reference, d_gain.reference);
  expect_near(d, "d", 10), expect_near(d_gain, "d_gain", 4);
}

// Of tokens that a token does not see even infinite gradients count for nothing.
TEST_P(CudaMathTest, CausalSoftmaxReadsNothingThatItsRowDoesNotSee) {
  for (const auto& [seq, window] : {std::pair<int64_t, int64_t>{5, 0}, {16, 0}, {72, 0}, {16, 3}, {72, 33}}) {
    SCOPED_TRACE(fmt::format("{} tokens, window {}", seq, window));
    const Pair p = random({1, seq, seq}, 1), d = random({1, seq, seq}, 2), infinite = random({1, seq, seq}, 2);
    math_->attention_softmax(p.device, 0.37, {.window = window});
    for_each_element(infinite.device, [&](int64_t i, auto& v) {
      if (i % seq > i / seq || (window > 0 && i % seq + window <= i / seq))
        v = cuda::rounded<std::remove_reference_t<decltype(v)>>(INFINITY);
    });
    for (const Pair* each : {&d, &infinite})
      math_->attention_softmax_backward(p.device, each->device, 0.37, {.window = window});
    expect_near(infinite.device, d.device, 0, "its gradient");
  }
}

TEST_P(CudaMathTest, AttentionSoftmax) {
  const auto compare = [&](AttentionMask seen, int64_t count, int64_t rows, int64_t seq) {
    SCOPED_TRACE(fmt::format("{} x {} of {} tokens, causal {}, window {}", count, rows, seq, seen.causal, seen.window));
    Pair p = random({count, rows, seq}, 1), d = random({count, rows, seq}, 2);
    math_->attention_softmax(p.device, 0.37, seen), cpu_math().attention_softmax(p.reference, 0.37, seen);
    expect_near(p, "softmax", 2);
    math_->attention_softmax_backward(p.device, d.device, 0.37, seen);
    cpu_math().attention_softmax_backward(p.reference, d.reference, 0.37, seen);
    expect_near(d, "its gradient", 4);
  };
  for (const AttentionMask seen : {AttentionMask{true, 0}, {false, 0}, {true, 1}, {true, 21}, {true, 200}}) {
    for (const int64_t seq : {1, 5, 32, 70, 264}) compare(seen, 3, seq, seq);
    for (const int64_t packs : {257, 600, 1300}) compare(seen, 1, 3, packs_of(GetParam(), packs));
    for (const int64_t rows : {1, 7, 64}) {  // the last of a sequence
      compare(seen, 3, rows, 70);
      compare(seen, 3, rows, packs_of(GetParam(), 40));
    }
    compare(seen, 1, 1029, 1029);  // more than registers hold
  }
}

// Tiles that divide a sequence or not, whose products are batches of heads with strides of their own.
TEST_P(CudaMathTest, AttentionByTiles) {
  for (const bool causal : {true, false})
    for (const int64_t tile : {32, 35, 64}) {
      SCOPED_TRACE(fmt::format("tiles of {}, causal {}", tile, causal));
      HeadsShape shape{.tokens = 140, .seq = 70, .heads = 6, .kv_heads = 2, .dim = 8, .dtype = GetParam()};
      shape.recompute = true;
      shape.causal = causal;
      TensorStore kept;
      const auto tiled = make_composed_heads(*math_, shape, kept, nullptr, tile);
      shape.dtype = DType::float64;
      const auto whole = make_composed_heads(cpu_math(), shape, kept);
      Pair q = random({140, 48}, 1), k = random({140, 16}, 2), v = random({140, 16}, 3), d = random({140, 48}, 4),
           out = random({140, 48}, 5), dq = random({140, 48}, 6), dk = random({140, 16}, 7), dv = random({140, 16}, 8);
      tiled->forward({q.device, k.device, v.device}, out.device);
      whole->forward({q.reference, k.reference, v.reference}, out.reference);
      expect_near(out, "out", 8);
      tiled->backward({q.device, k.device, v.device}, out.device, d.device, {dq.device, dk.device, dv.device});
      whole->backward({q.reference, k.reference, v.reference}, out.reference, d.reference,
                      {dq.reference, dk.reference, dv.reference});
      expect_near(dq, "dq", 16), expect_near(dk, "dk", 32), expect_near(dv, "dv", 32);
    }
}

// Attention's and the experts' batches: several products of one shape, `a` or `b` perhaps the same for all.
TEST(CpuMath, BatchesAreSoManyProducts) {
  const Pair a({3, 4, 5}, DType::float64, cpu_memory(), 1), b({5, 2}, DType::float64, cpu_memory(), 2);
  const Tensor out({3, 4, 2}, DType::float64), one({4, 2}, DType::float64);
  const auto plane = [](TensorView t, int64_t i) {
    return matrix(t.part(i * t.size(1) * t.size(2), {t.size(1), t.size(2)}));
  };
  cpu_math().gemm(plane(a.device, 0), matrix(b.device), plane(out, 0), Into::overwrite, {3, 20, 0, 8});
  const auto gemm = make_plain_gemm();
  for (int64_t i = 0; i < 3; ++i) {
    gemm->run(plane(a.device, i), matrix(b.device), matrix(one), {}, nullptr);
    expect_near(out.view().part(8 * i, {8}), one, 1e-14, "product");
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaMathTest, testing::ValuesIn(kDTypes),
                         [](const auto& row) { return std::string(name_of(row.param)); });

}  // namespace
}  // namespace moe
