// What a model computes beside its layers: kernels of CudaMath against plain loops and the CPU's.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "moe/model/table_tokens.h"
#include "moe/tensor/math.h"
#include "tests/layer/cuda/device_values.h"
#include "tests/layer/cuda/test_device.h"

namespace moe {
namespace {

class CudaModelMathTest : public testing::TestWithParam<DType> {
 protected:
  Pair random(std::initializer_list<int64_t> shape, uint64_t stream) const {
    return {shape, GetParam(), math_->memory(), stream};
  }
  double tolerance() const { return tolerance_for(GetParam()); }
  std::unique_ptr<Math> math_ = make_test_math();
};

std::vector<int32_t> random_tokens(int64_t count, int64_t vocabulary, uint64_t stream) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(
        static_cast<int32_t>(random_bits(3, stream, static_cast<uint64_t>(i)) % static_cast<uint64_t>(vocabulary)));
  return tokens;
}

TEST_P(CudaModelMathTest, LooksUpRowsAndAddsTheirGradients) {
  constexpr int64_t kTokens = 70, kVocabulary = 19;
  const std::vector<int32_t> tokens = random_tokens(kTokens, kVocabulary, 1);
  for (const int64_t width : {1, 6, 16, 40, 300})
    for (const ShardRange own : {ShardRange{0, 19, 19}, {5, 7, 19}, {12, 0, 19}}) {
      SCOPED_TRACE(fmt::format("{} columns, rows {} to {}", width, own.first, own.first + own.count));
      model::TableTokens there(kTokens, own, math_->memory());
      there.set(tokens);
      Pair table = random({own.count, width}, 2), out = random({kTokens, width}, 3), d = random({kTokens, width}, 4);
      Pair more = random({kTokens, width}, 5), gradient = random({own.count, width}, 6);
      math_->look_up(table.device, there.view(), out.device, Into::overwrite);
      math_->look_up(table.device, there.view(), more.device, Into::add);
      math_->add_to_rows(d.device, there.view(), gradient.device);
      for (int64_t i = 0; i < kTokens; ++i)
        for (int64_t j = 0; j < width; ++j) {
          const int64_t row = tokens[i] - own.first, at = i * width + j;
          const bool is_own = row >= 0 && row < own.count;
          const double looked_up = is_own ? table.reference.as<double>()[row * width + j] : 0;
          out.reference.as<double>()[at] = looked_up;
          more.reference.as<double>()[at] += looked_up;
          if (is_own) gradient.reference.as<double>()[row * width + j] += d.reference.as<double>()[at];
        }
      expect_near(out.device, out.reference, 0, "looked up");
      expect_near(more, "added");
      expect_near(gradient, "gradient", 4);
    }
}

// Every part of a vocabulary has logits of its own; together they make one softmax.
TEST_P(CudaModelMathTest, CrossEntropyOverPartsOfAVocabulary) {
  constexpr int64_t kTokens = 9;
  for (const auto& shares : {std::vector<int64_t>{1}, {50}, {300, 301}, {7, 1, 600, 33}}) {
    const auto parts = static_cast<int64_t>(shares.size());
    int64_t vocabulary = 0;
    for (const int64_t words : shares) vocabulary += words;
    SCOPED_TRACE(fmt::format("{} words in {} parts", vocabulary, parts));
    std::vector<int32_t> targets = random_tokens(kTokens, vocabulary, 1);
    targets[3] = -1;
    const Array<int32_t> there(math_->memory(), kTokens);
    there.from_host(targets.data());
    const Tensor sums({parts, kTokens, kSoftmaxSums}, DType::float64, math_->memory());
    std::vector<Pair> logits;
    std::vector<Targets> of_part;
    int64_t first = 0;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t words = shares[part];
      logits.push_back(random({kTokens, words}, static_cast<uint64_t>(part + 2)));
      math_->scale(logits.back().device, 8);
      const std::vector<double> scaled = values_of(logits.back().device);
      std::ranges::copy(scaled, logits.back().reference.as<double>());
      of_part.push_back({there.data(), first});
      math_->softmax_sums(logits.back().device, of_part.back(),
                          sums.view().part(part * kTokens * kSoftmaxSums, {kTokens, kSoftmaxSums}));
      first += words;
    }
    std::vector<double> expected(parts * kTokens * kSoftmaxSums), total(kTokens), most(kTokens);
    std::ranges::fill(most, -HUGE_VAL);
    for (int64_t part = 0; part < parts; ++part)
      for (int64_t i = 0; i < kTokens; ++i) {
        const int64_t words = shares[part];
        const double* row = logits[part].reference.as<double>() + i * words;
        double* own = expected.data() + (part * kTokens + i) * kSoftmaxSums;
        own[0] = *std::max_element(row, row + words);
        for (int64_t j = 0; j < words; ++j) own[1] += std::exp(row[j] - own[0]);
        const int64_t target = targets[i] - of_part[part].first;
        if (target >= 0 && target < words) own[2] = row[target];
        most[i] = std::max(most[i], own[0]);
      }
    const std::vector<double> found = values_of(sums);
    for (size_t i = 0; i < found.size(); ++i)
      ASSERT_NEAR(found[i], expected[i], 5e-6 * std::abs(expected[i])) << "number " << i;
    for (int64_t part = 0; part < parts; ++part)
      for (int64_t i = 0; i < kTokens; ++i) {
        const double* own = expected.data() + (part * kTokens + i) * kSoftmaxSums;
        total[i] += own[1] * std::exp(own[0] - most[i]);
      }
    for (int64_t part = 0; part < parts; ++part) {
      const Pair& own = logits[part];
      const int64_t words = shares[part];
      math_->cross_entropy_backward(own.device, of_part[part], sums, static_cast<int>(part), 5);
      for (int64_t i = 0; i < kTokens; ++i)
        for (int64_t j = 0; j < words; ++j) {
          double& v = own.reference.as<double>()[i * words + j];
          const bool is_target = targets[i] == of_part[part].first + j;
          v = targets[i] < 0 ? 0 : (std::exp(v - most[i]) / total[i] - (is_target ? 1 : 0)) / 5;
        }
      expect_near(own, "gradient of the logits", 8);
      for (int64_t j = 0; j < words; ++j)
        ASSERT_EQ(values_of(own.device)[3 * words + j], 0) << "nothing is to be predicted";
    }
  }
}

TEST_P(CudaModelMathTest, AddsSquares) {
  for (const int64_t count : {0, 1, 33, 5000, 70000}) {
    const Pair t = random({count}, 1);
    const Tensor sum({1}, DType::float64, math_->memory());
    for (const int copies : {1, 3}) math_->add_squares(t.device, copies, sum.as<double>());
    double expected = 0;
    for (int64_t i = 0; i < count; ++i) expected += std::pow(t.reference.as<double>()[i], 2) * (1 + 1.0 / 3);
    EXPECT_NEAR(values_of(sum)[0], expected, 1e-12 * expected);
  }
}

// A step of all and of a share, clipped and not, beside the CPU's in float64 from the same numbers.
TEST_P(CudaModelMathTest, StepsWeights) {
  const DType sums = accumulation_type(GetParam());
  const bool has_master = GetParam() != sums;
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::adamw})
    for (const ElementSelection own : {ElementSelection{}, {3, 4, 10}, {0, 0, 10}})
      for (const double squares : {-1.0, 4.0, 100.0}) {
        SCOPED_TRACE(fmt::format("{}: {} of each {}, squares {}", kind == OptimizerKind::sgd ? "sgd" : "adamw",
                                 own.count, own.every, squares));
        const Pair value = random({3, 20}, 1), gradient = random({3, 20}, 2);
        const int64_t count = count_of(own, value.device);
        const Pair first({count}, sums, math_->memory(), 3), second({count}, sums, math_->memory(), 4);
        Pair master({count}, sums, math_->memory(), 5);
        for (int64_t i = 0; i < count; ++i) {
          const int64_t at = own.every == 0 ? i : i / own.count * own.every + own.first + i % own.count;
          master.reference.as<double>()[i] = value.reference.as<double>()[at];
          second.reference.as<double>()[i] = std::abs(second.reference.as<double>()[i]);
        }
        for (const Pair* pair : std::initializer_list<const Pair*>{&master, &second})
          for_each_element(pair->device, [&](int64_t i, auto& v) {
            v = cuda::rounded<std::remove_reference_t<decltype(v)>>(pair->reference.as<double>()[i]);
          });
        const Tensor norm({1}, DType::float64, math_->memory());
        for_each_element(norm,
                         [&](int64_t, auto& v) { v = cuda::rounded<std::remove_reference_t<decltype(v)>>(squares); });
        WeightStep step{.value = value.device,
                        .gradient = gradient.device,
                        .own = own,
                        .master = has_master ? master.device.view() : TensorView(),
                        .first = first.device,
                        .second = second.device,
                        .kind = kind,
                        .rate = 0.1,
                        .decay = 0.02,
                        .momentum = 0.9,
                        .beta1 = 0.9,
                        .beta2 = 0.99,
                        .epsilon = 1e-8,
                        .correction1 = 0.19,
                        .correction2 = 0.02,
                        .scale = 0.7,
                        .squares = squares < 0 ? nullptr : norm.as<double>(),
                        .max_norm = 3};
        math_->step(step);
        step.value = value.reference;
        step.gradient = gradient.reference;
        step.master = TensorView();
        step.first = first.reference;
        step.second = second.reference;
        step.squares = squares < 0 ? nullptr : &squares;
        cpu_math().step(step);
        expect_near(value, "weight", 2);
        const double exact = sums == DType::float64 ? 1e-13 : 2e-6;
        expect_near(first.device, first.reference, exact, "first state");
        if (kind == OptimizerKind::adamw) expect_near(second.device, second.reference, exact, "second state");
        if (!has_master) continue;
        for (int64_t i = 0; i < count; ++i) {
          const int64_t at = own.every == 0 ? i : i / own.count * own.every + own.first + i % own.count;
          const double stepped = values_of(master.device)[i];
          ASSERT_NEAR(stepped, value.reference.as<double>()[at], 1e-5);
          cuda::with_type(GetParam(), [&](auto zero) {
            const double rounded = static_cast<double>(cuda::value_of(cuda::rounded<decltype(zero)>(stepped)));
            ASSERT_EQ(values_of(value.device)[at], rounded) << "a weight is its master, rounded";
          });
        }
      }
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaModelMathTest, testing::ValuesIn(kDTypes),
                         [](const auto& row) { return std::string(name_of(row.param)); });

}  // namespace
}  // namespace moe
