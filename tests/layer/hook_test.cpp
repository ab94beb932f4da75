// Hooks: what bf16 makes of an element, what goes over the wire, and that a hook which is its own transpose leaves
// gradients right.
#include "moe/layer/hooks/hook.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <iostream>
#include <limits>
#include <map>

#include "moe/base/random.h"
#include "moe/layer/binding.h"
#include "moe/tensor/cpu/math.h"
#include "tests/layer/local_layers.h"
#include "tests/layer/wire_count.h"

namespace moe {
namespace {

constexpr DType kFloat = DType::float32, kDouble = DType::float64;

template <class T>
std::vector<T> through_bf16(std::vector<T> values) {
  const auto n = static_cast<int64_t>(values.size());
  const TensorView rows(values.data(), {n, 1}, sizeof(T) == 4 ? kFloat : kDouble);
  const Tensor wire({n, 1}, DType::bfloat16);
  const auto hook = make_hook("bf16");
  hook->before_dispatch(Phase::forward, rows, wire);
  std::ranges::fill(values, T{-77});
  hook->after_dispatch(Phase::forward, wire, rows);
  return values;
}

// Of every exponent that a bfloat16 of full precision has, both signs.
template <class T>
std::vector<T> any_values(uint64_t count) {
  std::vector<T> values;
  for (uint64_t i = 0; i < count; ++i) {
    const auto exponent = static_cast<int>(random_bits(1, 1, i) % 253) - 126;
    const double sign = random_bits(1, 2, i) % 2 ? -1 : 1;
    values.push_back(static_cast<T>(sign * std::ldexp(1 + random_uniform(1, 3, i), exponent)));
  }
  return values;
}

template <class T>
void expect_nearest(const std::vector<T>& values) {
  const std::vector<T> coded = through_bf16(values), twice = through_bf16(coded);
  EXPECT_EQ(coded, twice);
  double worst = 0;
  for (size_t i = 0; i < values.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(coded[i]) - static_cast<double>(values[i])) /
                                std::abs(static_cast<double>(values[i])));
  EXPECT_LE(worst, 0x1p-8);
  EXPECT_GT(worst, 0x1p-9);
}

TEST(Bf16Hook, ChangesAnElementByHalfItsLastBitAtMost) {
  expect_nearest(any_values<float>(100000));
  expect_nearest(any_values<double>(100000));
}

TEST(Bf16Hook, RoundsTiesToEvenAndTwiceNowhere) {
  const double ulp = 0x1p-7;  // of 1
  EXPECT_EQ(through_bf16<double>({1 + ulp / 2, 1 + 3 * ulp / 2, -1 - ulp / 2}),
            (std::vector<double>{1, 1 + 2 * ulp, -1}));
  EXPECT_EQ(through_bf16<float>({1 + 0x1p-8F, 1 + 3 * 0x1p-8F}), (std::vector<float>{1, 1 + 0x1p-6F}));
  // Beside a tie by less than float32 can tell.
  const double nearly = 0x1p-40;
  EXPECT_EQ(through_bf16<double>({1 + ulp / 2 + nearly, 1 + 3 * ulp / 2 - nearly, -1 - ulp / 2 - nearly}),
            (std::vector<double>{1 + ulp, 1 + ulp, -1 - ulp}));
}

template <class T>
void expect_special_values() {
  using Limits = std::numeric_limits<T>;
  const T infinite = Limits::infinity();
  const std::vector<T> same{
      infinite, -infinite, 0, T{-0.0}, 1, -2.5, static_cast<T>(0x1p-126), static_cast<T>(0x1p-133)};
  const std::vector<T> coded = through_bf16(same);
  EXPECT_EQ(coded, same);
  EXPECT_TRUE(std::signbit(coded[3]));
  const auto quiet_of_low_bits = static_cast<T>(std::bit_cast<float>(0x7f800001u));
  for (const T nan : through_bf16<T>({Limits::quiet_NaN(), -Limits::quiet_NaN(), quiet_of_low_bits}))
    EXPECT_TRUE(std::isnan(nan));
  const T most = static_cast<T>(std::numeric_limits<float>::max());
  EXPECT_EQ(through_bf16<T>({most, -most}), (std::vector<T>{infinite, -infinite}));
  EXPECT_EQ(through_bf16<T>({std::numeric_limits<T>::denorm_min() / 2}), std::vector<T>{0});
}

TEST(Bf16Hook, KeepsInfinitiesNaNsZerosAndWhatItCanHold) {
  expect_special_values<float>();
  expect_special_values<double>();
  EXPECT_EQ(
      through_bf16<double>({1e300, -1e300, 1e-300}),
      (std::vector<double>{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(), 0}));
}

LayerCase case_of(std::string_view hook, bool residual = true) {
  LayerShape layer{.batch = 2, .seq = 8, .model_dim = 12, .hidden = 24, .heads = 4, .experts = 8};
  layer.dtype = kDouble;
  layer.residual = residual;
  layer.hook = hook;
  return complete(layer, {.nodes = 2, .ranks_per_node = 2, .mp = 2, .ep = 2, .esp = 2}, Rounding::ragged);
}

double worst_of(const std::vector<TensorError>& errors) {
  double worst = 0;
  for (const TensorError& e : errors) worst = std::max(worst, e.error);
  return worst;
}

// A tensor passes at most four roundings of 2^-8 each, two of them on the way back.
TEST(LayerHook, Bf16LayerIsTheReferencesWithinItsRoundingsAndNoBetterInEveryFlow) {
  const LayerCase shape = case_of("bf16");
  const LayerReference reference = reference_layer(shape, {.seed = 6});
  for (const std::string_view schedule :
       {"fsmoe", "tutel", "ds-moe", "ds-moe-replicated", "parm-s1", "parm-s2", "parm-s2-aas", "monta-baseline"}) {
    SCOPED_TRACE(schedule);
    const int degree = find_schedule(schedule).degrees == DegreePolicy::one ? 1 : 3;
    const Plan plan = plan_for(shape, schedule, degree, degree);
    LocalLayers layers(shape, {.seed = 6}, plan.structure->flow);
    layers.run(plan);
    const double worst = worst_of(layer_errors(layers.ranks(), reference));
    std::cout << fmt::format("{} with bf16: worst error {:.2e} of the largest value\n", schedule, worst);
    EXPECT_LE(worst, 0x1p-6);
    EXPECT_GT(worst, 1e-5);
    EXPECT_THROW(verify_layer(layers.ranks(), reference, 1e-10), WrongResult);
    EXPECT_NO_THROW(verify_layer(layers.ranks(), reference));
  }
}

/// Bytes of all AlltoAlls of one pass.
int64_t wire_bytes(const LayerCase& shape) {
  WireCount count;
  LocalWorld world(shape.parallel.ranks());
  const Plan plan = plan_for(shape, "fsmoe", 2, 3);
  world.run([&](int rank) {
    const auto world_comm = counted(world.communicator(rank), count);
    MoeLayer layer(rank_shape(shape, rank), {.seed = 6}, LayerComms::split(*world_comm, shape.parallel));
    LayerBinding binding(layer, plan);
    const auto device = make_cpu_device();
    Executor(*device, plan.structure).run(binding);
  });
  return count.bytes();
}

TEST(LayerHook, Bf16SendsAQuarterOfFloat64sBytesAndHalfOfFloat32s) {
  LayerCase plain = case_of("none"), hooked = case_of("bf16");
  EXPECT_EQ(wire_bytes(hooked) * 4, wire_bytes(plain));
  plain.layer.dtype = hooked.layer.dtype = kFloat;
  EXPECT_EQ(wire_bytes(hooked) * 2, wire_bytes(plain));
  // As planned, but for what a rank sends itself: half of it, of two EP peers.
  const auto planned = [](const LayerCase& c) {
    double bytes = 0;
    for (const Phase phase : {Phase::forward, Phase::backward})
      for (const TaskKind kind : {TaskKind::dispatch, TaskKind::combine})
        bytes += whole_work(kind, phase, c, Flow::sharded).bytes / 2;
    return bytes * c.parallel.ranks();
  };
  EXPECT_EQ(planned(hooked), static_cast<double>(wire_bytes(hooked)));
  EXPECT_EQ(planned(plain), static_cast<double>(wire_bytes(plain)));
}

// x (-1) at the start, 2 at dispatch, 1/4 at combine, 4 at the end; backward the transposes: the same in reverse.
class Scaling final : public Hook {
 public:
  void before_moe_start(Phase p, TensorView t) override { scale(t, p == Phase::forward ? -1 : 4); }
  void before_dispatch(Phase p, TensorView rows, TensorView) override { scale(rows, p == Phase::forward ? 2 : 0.25); }
  void after_combine(Phase p, TensorView, TensorView rows) override { scale(rows, p == Phase::forward ? 0.25 : 2); }
  void before_moe_end(Phase p, TensorView t) override { scale(t, p == Phase::forward ? 4 : -1); }
};

// Without residuals the scales are those of weights: W1 by -2, the gate's by -1. All are powers of two: exact.
TEST(LayerHook, GradientsAreTrueWhereEveryPointMirrorsItsTranspose) {
  const LayerCase shape = case_of("none", false);
  const Plan plan = plan_for(shape, "fsmoe", 2, 3);
  LocalLayers hooked(shape, {.seed = 7}), scaled(shape, {.seed = 7});
  const std::map<std::string, double> by{
      {std::string(kW1), -2.0}, {std::string(kGateWeight), -1.0}, {std::string(kGateNoise), -1.0}};
  const auto factor = [&](const std::string& name) { return by.contains(name) ? by.at(name) : 1.0; };
  for (MoeLayer* rank : hooked.ranks()) rank->set_hook(std::make_unique<Scaling>());
  for (MoeLayer* rank : scaled.ranks())
    for (const Parameter& p : rank->parameters()) scale(p.value, factor(p.name));
  hooked.run(plan);
  scaled.run(plan);
  for (size_t rank = 0; rank < hooked.ranks().size(); ++rank) {
    MoeLayer &a = *hooked.ranks()[rank], &b = *scaled.ranks()[rank];
    const auto expect_equal = [](TensorView x, TensorView y, double times, const std::string& what) {
      for (int64_t i = 0; i < x.elements(); ++i) ASSERT_EQ(x.as<double>()[i], times * y.as<double>()[i]) << what;
    };
    expect_equal(a.output(), b.output(), 1, "output");
    expect_equal(a.input_gradient(), b.input_gradient(), 1, "input gradient");
    const std::vector<Parameter> of_a = a.parameters(), of_b = b.parameters();
    for (size_t i = 0; i < of_a.size(); ++i)
      expect_equal(of_a[i].gradient, of_b[i].gradient, factor(of_a[i].name), "gradient of " + of_a[i].name);
  }
}

TEST(LayerHook, UnknownNamesListTheKnown) {
  EXPECT_THROW(make_hook("fp8"), BadInput);
  EXPECT_THROW(case_of("fp8"), BadInput);
  EXPECT_EQ(make_hook("none"), nullptr);
  for (const Part& part : hook_parts()) EXPECT_NO_THROW(make_hook(part.name));
}

}  // namespace
}  // namespace moe
