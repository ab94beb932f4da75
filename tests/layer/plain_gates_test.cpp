// Every gate against the same in plain PyTorch: who gets a row, weights and gradients, in float64.
#include "tests/layer/plain_gates.h"

#include <gtest/gtest.h>

#include "moe/layer/gates/gate.h"

namespace moe {
namespace {

LayerCase single_rank_samples(int64_t tokens, int64_t experts, int64_t top_k, double factor) {
  LayerShape layer{.batch = 1, .seq = tokens, .model_dim = 24, .hidden = 8, .heads = 2, .experts = experts};
  layer.top_k = top_k;
  layer.capacity_factor = factor;
  layer.dtype = DType::float64;
  return complete(layer, {}, Rounding::ragged);
}

class PlainGateTest : public testing::TestWithParam<std::string_view> {};

TEST_P(PlainGateTest, ComputesWhatOursDoes) {
  for (const LayerCase& shape : {single_rank_samples(48, 4, 2, 1.2), single_rank_samples(64, 8, 2, 0.7),
                                 single_rank_samples(40, 5, 1, 1.0), single_rank_samples(30, 6, 3, 2.0)}) {
    GatePair pair(GetParam(), shape);
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      pair.run_ours(phase);
      pair.run_plain(phase);
    }
    EXPECT_LE(pair.worst_error(), 1e-12) << shape.layer.seq << " tokens";
  }
}

INSTANTIATE_TEST_SUITE_P(All, PlainGateTest, testing::ValuesIn(gate_names()), [](const auto& row) {
  std::string name(row.param);
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace
}  // namespace moe
