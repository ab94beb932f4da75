// Gates on a device against the CPU's: the same experts, rows and counts, weights and gradients within rounding.
#include "moe/layer/gates/gate.h"

#include <gtest/gtest.h>

#include "moe/layer/cuda/kernels.h"
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
  if (gate != "sigmoid") layer.aux_loss = layer.z_loss = drawn.losses;
  const ParallelShape parallel{.nodes = 1, .ranks_per_node = drawn.mp, .mp = drawn.mp, .ep = 1, .esp = drawn.mp};
  return rank_shape(complete(layer, parallel, Rounding::ragged), drawn.mp - 1,
                    drawn.mp > 1 ? Flow::tensor : Flow::sharded);
}

class CudaGateTest : public testing::TestWithParam<std::tuple<std::string, DType>> {
 protected:
  const std::string& gate() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }
  /// The CPU's, and what a gate computes in.
  DType sums() const { return sums_type(dtype()); }
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
    Pair d_weight = random(expected.choices, sums(), 3);
    there->forward(hidden.device, routed), here->forward(hidden.reference, expected);
    routed.fetch();
    EXPECT_EQ(routed.expert, expected.expert);
    EXPECT_EQ(routed.row, expected.row);
    EXPECT_EQ(routed.filled, expected.filled);
    expect_slots(routed);
    expect_near(routed.weight, expected.weight, tolerance(), "weight");
    ASSERT_EQ(there->statistics().data() == nullptr, here->statistics().data() == nullptr);
    if (here->statistics().data() != nullptr) {
      expect_near(there->statistics(), here->statistics(), tolerance(), "statistics");
      EXPECT_NEAR(there->auxiliary_loss(), here->auxiliary_loss(), tolerance());
    }
    there->backward({hidden.device, routed, d_weight.device, {}, d_hidden.device, 0.5});
    here->backward({hidden.reference, expected, d_weight.reference, {}, d_hidden.reference, 0.5});
    expect_near(d_hidden.device, d_hidden.reference, std::max(tolerance(), tolerance_for(dtype())), "d_hidden");
    const auto weights = there->parameters(), cpus = here->parameters();
    ASSERT_EQ(weights.size(), cpus.size());
    for (size_t i = 0; i < weights.size(); ++i) {
      EXPECT_EQ(weights[i].name, cpus[i].name);
      expect_near(weights[i].value, cpus[i].value, 0, "value");
      expect_near(weights[i].gradient, cpus[i].gradient, 4 * tolerance(), weights[i].name);
    }
  }

  // Pairs and slots point at each other.
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
      EXPECT_EQ(slot_of[p], (group * r.experts + r.expert[p]) * r.rows + r.row[p]);
      EXPECT_EQ(pair_of[static_cast<size_t>(slot_of[p])], static_cast<int32_t>(p));
    }
    EXPECT_EQ(std::ranges::count_if(pair_of, [](int32_t pair) { return pair >= 0; }), kept);
  }

  std::unique_ptr<cuda::CudaMath> math_ = make_test_math();
};

TEST_P(CudaGateTest, EqualsTheCpus) {
  for (const Drawn& drawn : kDrawn)
    for (const bool preset : {false, true}) {
      SCOPED_TRACE(fmt::format("{} tokens, {} of {} experts, mp {}, preset {}", drawn.seq, drawn.top_k, drawn.experts,
                               drawn.mp, preset));
      compare(drawn, preset);
      if (HasFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(All, CudaGateTest,
                         testing::Combine(testing::Values("gshard", "switch", "sigmoid"), testing::ValuesIn(kDTypes)),
                         [](const auto& row) {
                           return std::get<0>(row.param) + "_" + std::string(name_of(std::get<1>(row.param)));
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

TEST(CudaParts, NameWhatThereIs) {
  const auto device = make_test_layer_device();
  const auto refuses = [&](auto change) {
    LayerCase c = shape_of("gshard", kDrawn[0], DType::bfloat16).shape;
    change(c.layer);
    const RankShape rank = rank_shape(c, 0);
    EXPECT_THROW(
        (device->require_runs(c.layer), device->make_gate({rank, {}, device->math()}), device->make_order(rank)),
        Unsupported);
  };
  refuses([](LayerShape& l) { l.gate = "xmoe"; });
  refuses([](LayerShape& l) { l.order = "gshard"; });
  refuses([](LayerShape& l) { l.dispatcher = "2dh"; });
  refuses([](LayerShape& l) { l.capacity_factor.reset(); });
}

}  // namespace
}  // namespace moe
