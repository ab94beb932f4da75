// Every step computed anew in long double, states rounded as they are kept.
#include "moe/train/optimizer.h"

#include <cmath>
#include <gtest/gtest.h>
#include <tuple>

#include "moe/base/check.h"
#include "moe/base/numbers.h"
#include "moe/base/random.h"
#include "moe/sharding/layer_buffers.h"
#include "moe/tensor/cpu/math.h"
#include "tests/base/error_of.h"

namespace moe {
namespace {

using Real = long double;

constexpr DType kWeightTypes[] = {DType::float32, DType::float64, DType::bfloat16, DType::float16};

double element(TensorView t, int64_t i) {
  return with_number_type(t.dtype(), [&]<class T>(T) { return static_cast<double>(widened(t.as<T>()[i])); });
}
void set(TensorView t, int64_t i, double value) {
  with_number_type(t.dtype(), [&]<class T>(T) { round_to(value, t.as<T>()[i]); });
}
void randomize(TensorView t, uint64_t stream, double scale) {
  for (int64_t i = 0; i < t.elements(); ++i) set(t, i, scale * random_normal(7, stream, i));
}
// To the type in which states of weights of `dtype` are kept.
Real kept(Real value, DType dtype) {
  return dtype == DType::float64 ? static_cast<double>(value) : static_cast<float>(value);
}

Real expected_rate(const OptimizerSettings& s, int64_t step) {
  if (step < s.warm_up_steps) return static_cast<Real>(s.learning_rate) / s.warm_up_steps * (step + 1);
  if (s.steps == 0) return s.learning_rate;
  const Real last = s.steps - 1, way = std::min<Real>(step, last) - s.warm_up_steps;
  const Real share = last > s.warm_up_steps ? (1 + std::cos(std::acos(-1.0L) * way / (last - s.warm_up_steps))) / 2 : 0;
  return s.learning_rate * (s.least_share + (1 - s.least_share) * share);
}

// One weight's life.
struct Life {
  Real weight = 0, first = 0, second = 0;

  void step(const OptimizerSettings& s, int64_t step, Real gradient, Real decay, DType dtype) {
    const Real rate = expected_rate(s, step);
    if (s.kind == OptimizerKind::sgd) {
      const Real velocity = static_cast<Real>(s.momentum) * first + gradient + decay * weight;
      first = kept(velocity, dtype);
      weight = kept(weight - rate * velocity, dtype);
      return;
    }
    const Real m = s.beta1 * first + (1 - static_cast<Real>(s.beta1)) * gradient;
    const Real v = s.beta2 * second + (1 - static_cast<Real>(s.beta2)) * gradient * gradient;
    first = kept(m, dtype);
    second = kept(v, dtype);
    const Real m_hat = m / (1 - std::pow(static_cast<Real>(s.beta1), step + 1));
    const Real v_hat = v / (1 - std::pow(static_cast<Real>(s.beta2), step + 1));
    weight = kept(weight - rate * decay * weight - rate * m_hat / (std::sqrt(v_hat) + s.epsilon), dtype);
  }
};

OptimizerSettings random_optimizer(uint64_t number) {
  const auto u = [&](uint64_t i) { return random_uniform(number, 2, i); };
  OptimizerSettings s{.kind = number % 2 ? OptimizerKind::adamw : OptimizerKind::sgd};
  s.learning_rate = std::pow(10, -4 + 3 * u(0));
  s.momentum = u(1) < 0.3 ? 0 : 0.95 * u(1);
  s.beta1 = 0.95 * u(2);
  s.beta2 = 0.9 + 0.0999 * u(3);
  s.epsilon = std::pow(10, -9 + 6 * u(4));
  s.weight_decay = u(5) < 0.4 ? 0 : 0.2 * u(5);
  s.warm_up_steps = static_cast<int64_t>(6 * u(6));
  s.steps = u(7) < 0.3 ? 0 : s.warm_up_steps + 1 + static_cast<int64_t>(20 * u(7));
  s.least_share = u(8);
  return s;
}

struct TestedTensor {
  Tensor value, gradient;
  TrainedTensor trained;
  std::vector<Life> lives;

  TestedTensor(const std::string& name, uint64_t number)
      : value({shape(number, 0), shape(number, 1), shape(number, 2)}, kWeightTypes[number % 4]),
        gradient({shape(number, 0), shape(number, 1), shape(number, 2)}, kWeightTypes[number / 4 % 4]),
        trained{name, value, gradient, number % 3 != 0} {
    randomize(value, number, 1);
    for (int64_t i = 0; i < value.view().elements(); ++i) lives.push_back({.weight = element(value, i)});
  }
  static int64_t shape(uint64_t number, uint64_t axis) {
    return static_cast<int64_t>(random_bits(number, 4, axis) % (axis == 0 ? 3 : 8));
  }
};

// 250 runs of 6 tensors over 12 steps. What is kept may differ from the reference's by its last bits alone.
TEST(Optimizer, StepsAreThoseOfTheFormulas) {
  int64_t compared = 0;
  for (uint64_t number = 0; number < 250; ++number) {
    const OptimizerSettings settings = random_optimizer(number);
    std::vector<TestedTensor> tensors;
    tensors.reserve(6);
    std::vector<TrainedTensor> trained;
    for (uint64_t i = 0; i < 6; ++i) {
      tensors.emplace_back("t" + std::to_string(i), number * 6 + i);
      trained.push_back(tensors.back().trained);
    }
    Optimizer optimizer(settings, trained);
    for (int64_t step = 0; step < 12; ++step) {
      const double scale = step % 3 == 0 ? 1 : random_uniform(number, 5, step);
      for (TestedTensor& t : tensors) randomize(t.gradient, number * 12 + step, std::pow(10, step % 5 - 3));
      optimizer.step(step, scale);
      for (TestedTensor& t : tensors)
        for (size_t i = 0; i < t.lives.size(); ++i) {
          const auto at = static_cast<int64_t>(i);
          const DType dtype = t.value.view().dtype();
          const Real before = std::abs(t.lives[i].weight);
          t.lives[i].step(settings, step, static_cast<Real>(element(t.gradient, at)) * scale,
                          t.trained.decays ? settings.weight_decay : 0, dtype);
          const double tolerance = dtype == DType::float64    ? 1e-13
                                   : dtype == DType::float32  ? 1e-5
                                   : dtype == DType::bfloat16 ? 0x1.01p-8
                                                              : 0x1.01p-10;  // float16's least ones lie further apart
          const Real expected = t.lives[i].weight, size = std::max({before, std::abs(expected), Real{0.01}});
          ASSERT_NEAR(element(t.value, at), static_cast<double>(expected), tolerance * static_cast<double>(size))
              << "run " << number << ", " << t.trained.name << " of " << name_of(dtype) << ", step " << step;
          ++compared;
        }
    }
    for (const OptimizerState& state : optimizer.states()) {
      const TestedTensor& t = tensors[state.of];
      const DType dtype = t.value.view().dtype();
      ASSERT_EQ(state.value.dtype(), accumulation_type(dtype));
      ASSERT_EQ(state.value.elements(), t.value.view().elements());
      for (int64_t i = 0; i < state.value.elements(); ++i) {
        const Life& life = t.lives[i];
        const Real expected = state.name.ends_with("master")    ? life.weight
                              : state.name.ends_with("moment2") ? life.second
                                                                : life.first;
        const double tolerance = dtype == DType::float64 ? 1e-13 : 1e-5;
        ASSERT_NEAR(element(state.value, i), static_cast<double>(expected),
                    tolerance * std::max(0.01, static_cast<double>(std::abs(expected))))
            << state.name;
        if (!state.name.ends_with("master")) continue;
        Tensor rounded({1}, dtype);  // a weight is its master, rounded
        set(rounded, 0, element(state.value, i));
        ASSERT_EQ(element(t.value, i), element(rounded, 0));
      }
    }
  }
  EXPECT_GT(compared, 200'000);
}

std::vector<std::string> names_of_states(const OptimizerSettings& settings, DType dtype) {
  const Tensor value({2, 3}, dtype), gradient({2, 3}, dtype);
  std::vector<std::string> names;
  for (const OptimizerState& state : Optimizer(settings, {{"w", value, gradient}}).states()) {
    EXPECT_EQ(state.value.rank(), 2);
    EXPECT_EQ(state.value.size(1), 3);
    names.push_back(state.name);
  }
  return names;
}

TEST(Optimizer, StatesAreThoseThatTheNextStepNeeds) {
  using Names = std::vector<std::string>;
  const OptimizerSettings adamw, sgd{.kind = OptimizerKind::sgd}, plain{.kind = OptimizerKind::sgd, .momentum = 0};
  EXPECT_EQ(names_of_states(adamw, DType::float32), (Names{"w.moment1", "w.moment2"}));
  EXPECT_EQ(names_of_states(adamw, DType::bfloat16), (Names{"w.moment1", "w.moment2", "w.master"}));
  EXPECT_EQ(names_of_states(sgd, DType::float64), (Names{"w.momentum"}));
  EXPECT_EQ(names_of_states(plain, DType::float64), Names{});
  EXPECT_EQ(names_of_states(plain, DType::float16), Names{"w.master"});
}

// A run that goes on from its weights and states ends with the bits of one that never stopped.
TEST(Optimizer, GoesOnFromItsStates) {
  for (uint64_t number = 0; number < 60; ++number) {
    const OptimizerSettings settings = random_optimizer(number);
    TestedTensor whole("w", number), later("w", number);
    Optimizer first(settings, {whole.trained});
    for (int64_t step = 0; step < 10; ++step) {
      randomize(whole.gradient, step, 1);
      first.step(step, 0.5);
      if (step != 4) continue;
      std::memcpy(later.value.view().data(), whole.value.view().data(), whole.value.view().bytes());
      Optimizer second(settings, {later.trained});
      const auto from = first.states(), to = second.states();
      ASSERT_EQ(from.size(), to.size());
      for (size_t i = 0; i < from.size(); ++i)
        std::memcpy(to[i].value.data(), from[i].value.data(), from[i].value.bytes());
      for (int64_t next = 5; next < 10; ++next) {
        randomize(later.gradient, next, 1);
        second.step(next, 0.5);
      }
    }
    ASSERT_EQ(std::memcmp(later.value.view().data(), whole.value.view().data(), whole.value.view().bytes()), 0);
  }
}

TEST(LearningRate, WarmsUpThenFallsToItsLeastShare) {
  const OptimizerSettings s{.learning_rate = 2, .warm_up_steps = 4, .steps = 15, .least_share = 0.1};
  EXPECT_EQ(learning_rate_at(s, 0), 0.5);
  EXPECT_EQ(learning_rate_at(s, 3), 2);
  EXPECT_EQ(learning_rate_at(s, 4), 2);
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 9), 1.1);  // half way
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 14), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 1000), 0.2);
  EXPECT_EQ(learning_rate_at({.learning_rate = 2, .warm_up_steps = 4}, 1000), 2);
  EXPECT_EQ(learning_rate_at({.learning_rate = 2}, 0), 2);
  EXPECT_EQ(learning_rate_at({.learning_rate = 2, .steps = 1, .least_share = 0.5}, 0), 1);
  for (uint64_t number = 0; number < 500; ++number) {
    const OptimizerSettings any = random_optimizer(number);
    for (int64_t step = 0; step < 40; ++step) {
      const double rate = learning_rate_at(any, step);
      ASSERT_NEAR(rate, static_cast<double>(expected_rate(any, step)), 1e-12) << number << " " << step;
      ASSERT_LE(rate, any.learning_rate);
      if (step < any.warm_up_steps || any.steps == 0) continue;
      ASSERT_GE(rate, any.learning_rate * any.least_share * (1 - 1e-12));
      ASSERT_LE(learning_rate_at(any, step + 1), rate);
    }
  }
}

TEST(Norms, SumsAndScales) {
  for (const DType dtype : kWeightTypes) {
    const Tensor t({11, 13}, dtype);
    randomize(t, 3, 2);
    Real sum = 0;
    for (int64_t i = 0; i < 143; ++i) sum += static_cast<Real>(element(t, i)) * element(t, i);
    EXPECT_NEAR(sum_of_squares(t), static_cast<double>(sum), 1e-12 * static_cast<double>(sum));
  }
}

TEST(Norms, ClipGradientsThatAreLonger) {
  for (const auto& [most, squares, expected] :
       {std::tuple{1.0, 16.0, 0.25}, {1.0, 0.25, 1.0}, {1.0, 0.0, 1.0}, {0.0, 16.0, 1.0}, {2.0, 4.0, 1.0}}) {
    const Tensor weight({1}, DType::float64), gradient({1}, DType::float64);
    set(gradient, 0, 3);
    Optimizer optimizer({.kind = OptimizerKind::sgd, .learning_rate = 1, .momentum = 0, .clip_norm = most},
                        {{"w", weight, gradient}});
    optimizer.step(0, 1, &squares);
    EXPECT_EQ(element(weight, 0), -3 * expected) << "at most " << most << ", squares " << squares;
  }
}

TEST(Optimizer, WhatCannotBeIsNamed) {
  const Tensor value({2, 3}, DType::float32), other({3, 2}, DType::float32);
  const auto fails = [&](const OptimizerSettings& settings, TensorView gradient) {
    return error_of<BadInput>([&] { Optimizer(settings, {{"w1", value, gradient}}); });
  };
  EXPECT_TRUE(fails({.beta1 = 1}, value).starts_with("beta1: found 1, expected"));
  EXPECT_TRUE(fails({.learning_rate = std::nan("")}, value).starts_with("learning_rate: found nan, expected"));
  EXPECT_TRUE(fails({.warm_up_steps = 5, .steps = 5}, value).starts_with("steps: found 5, expected"));
  EXPECT_TRUE(fails({.least_share = 1.5}, value).starts_with("least_share: found 1.5, expected"));
  EXPECT_TRUE(fails({}, other).starts_with("w1: found a gradient"));
  EXPECT_TRUE(fails({}, value.view().moved_to(nullptr, DeviceKind::cuda, DType::float32)).starts_with("w1: found"));
  EXPECT_EQ(optimizer_from("adamw", "--optimizer"), OptimizerKind::adamw);
  EXPECT_EQ(name_of(OptimizerKind::sgd), "sgd");
  EXPECT_TRUE(error_of<BadInput>([] {
                optimizer_from("adam", "--optimizer");
              }).starts_with("--optimizer: unknown 'adam', expected one of: sgd, adamw"));
}

// Shares of one weight, each with an optimizer of its own: together they do what one does with all of it.
TEST(Optimizer, OfSharesChangesTheirElementsAsTheWholeDoes) {
  constexpr int kRanks = 3, kSteps = 4;
  const std::array<ShardRange, 3> axes{ShardRange{0, 2, 2}, {0, 7, 7}, {0, 5, 5}};
  for (const DType dtype : kWeightTypes)
    for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd}) {
      const OptimizerSettings settings{.kind = kind, .learning_rate = 0.1, .weight_decay = 0.02};
      std::vector<Tensor> weights;  // the whole's, then each share's own copy
      Tensor gradient({70}, dtype);
      for (int i = 0; i <= kRanks; ++i) randomize(weights.emplace_back(Tensor({70}, dtype)), 1, 1);
      std::vector<Optimizer> optimizers;
      size_t states = 0;
      for (int i = 0; i <= kRanks; ++i) {
        const ElementSelection own = i == 0 ? ElementSelection{} : weight_share(axes, i - 1, kRanks).elements;
        optimizers.emplace_back(settings, std::vector<TrainedTensor>{{"w", weights[i], gradient, true, own}});
        for (const OptimizerState& state : optimizers.back().states())
          states += static_cast<size_t>(state.value.elements()) * (i == 0 ? 1 : static_cast<size_t>(-1));
      }
      EXPECT_EQ(states, 0U) << "the shares have as many states as the whole";
      const Tensor before({70}, dtype);
      randomize(before, 1, 1);
      for (int step = 0; step < kSteps; ++step) {
        randomize(gradient, static_cast<uint64_t>(step + 2), 0.3);
        for (Optimizer& optimizer : optimizers) optimizer.step(step, 0.7);
      }
      for (int i = 1; i <= kRanks; ++i) {
        const ElementSelection own = weight_share(axes, i - 1, kRanks).elements;
        for (int64_t at = 0; at < 70; ++at) {
          const bool ours = at % own.every >= own.first && at % own.every < own.first + own.count;
          EXPECT_EQ(element(weights[i], at), element(ours ? weights[0] : before, at))
              << name_of(dtype) << ' ' << name_of(kind) << ", share " << i - 1 << ", element " << at;
        }
      }
    }
}

}  // namespace
}  // namespace moe
