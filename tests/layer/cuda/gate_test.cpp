// Gates on a device against the CPU's: the same experts, rows and counts, weights and gradients within rounding.
#include "moe/layer/gates/gate.h"

#include <gtest/gtest.h>
#include <numeric>

#include "moe/base/registry.h"
#include "moe/layer/cuda/gate_kernels.h"
#include "moe/tensor/host_copy.h"
#include "tests/layer/cuda/device_values.h"
#include "tests/layer/cuda/test_device.h"

namespace moe {
namespace {

struct Drawn {
  int64_t seq, experts, top_k;
  double factor, losses;
  int mp;  // groups of tokens, all gated here
};

constexpr Drawn kDrawn[] = {{16, 4, 1, 1.2, 0, 1},   {33, 8, 2, 0.6, 0.1, 1}, {24, 40, 4, 1, 0.2, 2},
                            {300, 5, 3, 0.8, 0, 1},  {8, 3, 2, 4, 0.1, 4},    {1, 1, 1, 1, 0, 1},
                            {64, 64, 2, 1.5, 0.3, 2}};

RankShape shape_of(const std::string& gate, const Drawn& drawn, DType dtype) {
  LayerShape layer{.batch = 1, .seq = drawn.seq, .model_dim = 12, .hidden = 8, .heads = 4};
  layer.experts = drawn.experts;
  layer.top_k = drawn.top_k;
  layer.capacity_factor = drawn.factor;
  layer.gate = gate;
  layer.dtype = dtype;
  if (find_gate(gate).losses == Losses::balance_and_z) layer.aux_loss = drawn.losses;
  if (find_gate(gate).losses != Losses::none) layer.z_loss = drawn.losses;
  const ParallelShape parallel{.nodes = 1, .ranks_per_node = drawn.mp, .mp = drawn.mp, .ep = 1, .esp = drawn.mp};
  return rank_shape(complete(layer, parallel, Rounding::ragged), drawn.mp - 1,
                    drawn.mp > 1 ? Flow::tensor : Flow::sharded);
}

class CudaGateTest : public testing::TestWithParam<std::tuple<std::string, DType>> {
 protected:
  const std::string& gate() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }
  /// The CPU's, and what a gate computes in.
  DType sums() const { return accumulation_type(dtype()); }
  double tolerance() const { return dtype() == DType::float64 ? 1e-12 : 1e-5; }

  void compare(const Drawn& drawn, bool preset) {
    const RankShape rank = shape_of(gate(), drawn, dtype()), known = shape_of(gate(), drawn, sums());
    MemorySpace& memory = math_->memory();
    const LayerSeed seed{.seed = 5};
    const auto there = cuda::make_gate(*math_, {rank, seed, *math_}), here = find_gate(gate()).make({known, seed});
    Routing routed = make_routing(rank, memory), expected = make_routing(known);
    if (preset) {
      for (size_t p = 0; p < expected.expert.size(); ++p)
        expected.expert[p] = static_cast<int32_t>(p % static_cast<size_t>(rank.experts.total));
      routed.expert = expected.expert;
      routed.preset = expected.preset = true;
      routed.send();
    }
    const auto random = [&](int64_t width, DType type, uint64_t stream) {
      Pair pair({expected.tokens, width}, type, memory, stream);
      pair.reference = Tensor({expected.tokens, width}, sums());
      cpu_math().convert(HostCopy(pair.device, memory).view(), pair.reference);
      return pair;
    };
    Pair hidden = random(12, dtype(), 1), d_hidden = random(12, dtype(), 2);
    Pair d_weight = random(expected.choices, sums(), 3), d_fill = random(expected.choices, sums(), 4);
    there->forward(hidden.device, routed), here->forward(hidden.reference, expected);
    routed.fetch();
    EXPECT_EQ(routed.expert, expected.expert);
    EXPECT_EQ(routed.row, expected.row);
    EXPECT_EQ(routed.filled, expected.filled);
    expect_slots(routed);
    expect_near(routed.weight, expected.weight, tolerance(), "weight");
    if (routed.mixes()) expect_near(routed.fill, expected.fill, tolerance(), "fill");
    ASSERT_EQ(there->statistics().data() == nullptr, here->statistics().data() == nullptr);
    if (here->statistics().data() != nullptr) {
      expect_near(there->statistics(), here->statistics(), tolerance(), "statistics");
      EXPECT_NEAR(there->auxiliary_loss(), here->auxiliary_loss(), tolerance());
    }
    there->backward({hidden.device, routed, d_weight.device, d_fill.device, d_hidden.device, 0.5});
    here->backward({hidden.reference, expected, d_weight.reference, d_fill.reference, d_hidden.reference, 0.5});
    expect_near(d_hidden.device, d_hidden.reference, std::max(tolerance(), tolerance_for(dtype())), "d_hidden");
    const auto weights = there->parameters(), cpus = here->parameters();
    ASSERT_EQ(weights.size(), cpus.size());
    for (size_t i = 0; i < weights.size(); ++i) {
      EXPECT_EQ(weights[i].name, cpus[i].name);
      expect_near(weights[i].value, cpus[i].value, 0, "value");
      expect_near(weights[i].gradient, cpus[i].gradient, 4 * tolerance(), weights[i].name);
    }
  }

  // Pairs and slots point at each other; where tokens are mixed pairs alone do.
  static void expect_slots(const Routing& r) {
    std::vector<int32_t> slot_of(r.expert.size()), pair_of(static_cast<size_t>(r.device.pair_of.size()));
    r.device.slot_of.to_host(slot_of.data());
    r.device.pair_of.to_host(pair_of.data());
    int64_t kept = 0;
    for (size_t p = 0; p < slot_of.size(); ++p) {
      ASSERT_EQ(slot_of[p] < 0, r.row[p] < 0);
      if (slot_of[p] < 0) continue;
      ++kept;
      const int64_t group = r.group_of(static_cast<int64_t>(p) / r.choices);
      EXPECT_EQ(slot_of[p], (group * r.experts + r.expert[p]) * r.slots() + r.row[p]);
      if (r.mixes()) continue;
      EXPECT_EQ(pair_of[slot_of[p]], static_cast<int32_t>(p));
    }
    if (r.mixes()) return;
    EXPECT_EQ(std::ranges::count_if(pair_of, [](int32_t pair) { return pair >= 0; }), kept);
  }

  std::unique_ptr<cuda::CudaMath> math_ = make_test_math();
};

TEST_P(CudaGateTest, EqualsTheCpus) {
  for (const Drawn& drawn : kDrawn)
    for (const bool preset : {false, true}) {
      if (preset && find_named(kGateParts, gate(), "gate").fills_evenly()) continue;
      SCOPED_TRACE(fmt::format("{} tokens, {} of {} experts, mp {}, preset {}", drawn.seq, drawn.top_k, drawn.experts,
                               drawn.mp, preset));
      compare(drawn, preset);
      if (HasFailure()) return;
    }
}

std::vector<std::string> names() {
  const auto all = gate_names();
  return {all.begin(), all.end()};
}

INSTANTIATE_TEST_SUITE_P(All, CudaGateTest, testing::Combine(testing::ValuesIn(names()), testing::ValuesIn(kDTypes)),
                         [](const auto& row) {
                           std::string name = std::get<0>(row.param);
                           std::ranges::replace(name, '-', '_');
                           return name + "_" + std::string(name_of(std::get<1>(row.param)));
                         });

TEST(CudaTopK, EqualOnesGoToTheLowerExpertAndNotANumberLast) {
  const auto memory = make_test_memory();
  for (const DType dtype : {DType::float32, DType::float64}) {
    const Tensor logits({2, 70}, dtype, *memory);
    for_each_element(logits, [&](int64_t i, auto& v) {
      const double value = i >= 70 ? NAN : i == 40 || i == 7 || i == 65 ? 3 : i == 50 ? NAN : -1;
      v = cuda::rounded<std::remove_reference_t<decltype(v)>>(value);
    });
    const Array<int32_t> chosen(*memory, 10);
    cuda::choose_top_k({nullptr, dtype}, {logits.view().data(), 2, 70, 70}, 5, chosen.data());
    finish_test_device();
    std::vector<int32_t> found(10);
    chosen.to_host(found.data());
    EXPECT_EQ(found, (std::vector<int32_t>{7, 40, 65, 0, 1, 0, 1, 2, 3, 4}));
  }
}

// Groups larger than what a block of threads reads at once, of no round number of tokens.
TEST(CudaAssignedRows, AreGivenInTheOrderOfChoicesAndTokens) {
  const auto memory = make_test_memory();
  constexpr int64_t kGroups = 2, kTokens = 4501, kChoices = 3, kExperts = 5, kRows = 1930, kPadding = 7;
  constexpr int64_t kPairs = kGroups * kTokens * kChoices, kSlots = kRows + kPadding;
  std::vector<int32_t> expert(kPairs);
  for (int64_t p = 0; p < kPairs; ++p)  // some experts get too many, and some pairs have none
    expert[p] = std::max(-1, static_cast<int32_t>(random_bits(5, 1, static_cast<uint64_t>(p)) % 7) - 2);
  std::vector<int32_t> row(kPairs, -1), slot_of(kPairs, -1), pair_of(kGroups * kExperts * kSlots, -1);
  std::vector<int64_t> filled(kGroups * kExperts);
  for (int64_t group = 0; group < kGroups; ++group)
    for (int64_t choice = 0; choice < kChoices; ++choice)
      for (int64_t token = 0; token < kTokens; ++token) {
        const auto p = static_cast<size_t>((group * kTokens + token) * kChoices + choice);
        if (expert[p] < 0) continue;
        int64_t& used = filled[group * kExperts + expert[p]];
        if (used == kRows) continue;
        row[p] = static_cast<int32_t>(used);
        slot_of[p] = static_cast<int32_t>((group * kExperts + expert[p]) * kSlots + used);
        pair_of[slot_of[p]] = static_cast<int32_t>(p);
        ++used;
      }
  const Array<int32_t> experts(*memory, kPairs), rows(*memory, kPairs), slots(*memory, kPairs),
      pairs(*memory, kGroups * kExperts * kSlots);
  const Array<int64_t> counts(*memory, kGroups * kExperts);
  experts.from_host(expert.data());
  const auto fill = [](const Array<int32_t>& array) {
    array.from_host(std::vector<int32_t>(static_cast<size_t>(array.size()), -1).data());
  };
  fill(rows), fill(slots);  // nobody writes what has no expert
  cuda::assign_rows(nullptr, {kGroups, kTokens, kChoices, kExperts, kRows, experts.data(), rows.data(), slots.data(),
                              pairs.data(), counts.data(), kPadding});
  finish_test_device();
  const auto read = [](const auto& array, auto like) {
    array.to_host(like.data());
    return like;
  };
  EXPECT_EQ(read(rows, row), row);
  EXPECT_EQ(read(slots, slot_of), slot_of);
  EXPECT_EQ(read(pairs, pair_of), pair_of);
  EXPECT_EQ(read(counts, filled), filled);
  EXPECT_EQ(std::ranges::max(filled), kRows);
  EXPECT_LT(std::ranges::min(filled), kRows);
}

// Scores as a softmax of far logits gives them: equal ones, zeros, and what is no number.
TEST(CudaTakenTokens, EqualOnesGoToTheLowerTokenAndNotANumberLast) {
  const auto memory = make_test_memory();
  for (const DType dtype : {DType::float32, DType::float64})
    for (const int64_t rows : {1, 3, 5, 7, 300}) {
      constexpr int64_t kTokens = 290;
      const auto score = [](int64_t token) {
        return token == 4 ? NAN : token % 97 == 5 ? 0.5 : token == 280 ? 1.0 : token == 281 ? 1e-30 : 0.0;
      };
      std::vector<int64_t> order(kTokens);
      std::iota(order.begin(), order.end(), 0);
      const auto key = [&](int64_t token) { return std::isnan(score(token)) ? -1.0 : score(token); };
      std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return key(a) > key(b); });
      const int64_t taken = std::min(rows, kTokens);
      std::vector<int64_t> expected(order.begin(), order.begin() + taken);
      std::ranges::sort(expected);
      const Tensor scores({kTokens, 1}, dtype, *memory);
      for_each_element(scores,
                       [&](int64_t i, auto& v) { v = cuda::rounded<std::remove_reference_t<decltype(v)>>(score(i)); });
      const Array<int32_t> expert(*memory, kTokens), row(*memory, kTokens), slot(*memory, kTokens), pair(*memory, rows);
      const Array<int64_t> filled(*memory, 1);
      cuda::take_tokens({nullptr, dtype}, scores.view().data(),
                        {1, kTokens, 1, 1, rows, expert.data(), row.data(), slot.data(), pair.data(), filled.data()},
                        expert.data());
      finish_test_device();
      std::vector<int32_t> found(rows);
      pair.to_host(found.data());
      for (int64_t i = 0; i < rows; ++i) EXPECT_EQ(found[i], i < taken ? expected[i] : -1) << rows << " " << i;
    }
}

TEST(CudaParts, NameWhatThereIs) {
  const auto device = make_test_layer_device();
  const auto make = [&](auto change) {
    LayerCase c = shape_of("gshard", kDrawn[0], DType::bfloat16).shape;
    change(c.layer);
    const RankShape rank = rank_shape(c, 0);
    device->make_gate({rank, {}, device->math()}), device->make_order(rank);
  };
  for (const std::string_view gate : gate_names()) EXPECT_NO_THROW(make([&](LayerShape& l) { l.gate = gate; })) << gate;
  for (const std::string_view order : order_names())
    EXPECT_NO_THROW(make([&](LayerShape& l) { l.order = order; })) << order;
  EXPECT_THROW(make([](LayerShape& l) { l.gate = "none"; }), BadInput);
  EXPECT_THROW(make([](LayerShape& l) { l.order = "none"; }), BadInput);
}

}  // namespace
}  // namespace moe
