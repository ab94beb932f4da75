// Rows of T_rank, the gate's choices and the order's four maps, on cases small enough to know the answer.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

#include "moe/base/random.h"
#include "moe/layer/gates/gate.h"
#include "moe/layer/orders/order.h"

namespace moe {
namespace {

TEST(AssignRows, TakesFirstChoicesInTokenOrderThenSecondOnesAndDropsWhatIsTooMuch) {
  Routing r({4, 2, 3, 2}, DType::float64);
  r.expert = {0, 1, 0, 1, 0, 2, 1, 0};  // tokens 0, 1, 2 want expert 0 first, token 3 expert 1
  assign_rows(r);
  EXPECT_EQ(r.row, (std::vector<int32_t>{0, 1, 1, -1, -1, 0, 0, -1}));
  EXPECT_EQ(r.filled, (std::vector<int64_t>{2, 2, 1}));
  r.expert = {2, 1, 2, 1, 2, 1, 2, 1};
  assign_rows(r);  // nothing is left of the routing before
  EXPECT_EQ(r.row, (std::vector<int32_t>{0, 0, 1, 1, -1, -1, -1, -1}));
  EXPECT_EQ(r.filled, (std::vector<int64_t>{0, 2, 2}));
}

RankShape rank_of(int64_t experts, int64_t top_k, int64_t seq = 6) {
  LayerShape layer{.batch = 1, .seq = seq, .model_dim = 4, .hidden = 4, .heads = 1, .experts = experts, .top_k = top_k};
  layer.dtype = DType::float64;
  return rank_shape(complete(layer, {.nodes = 2, .ranks_per_node = 1, .ep = 2}, Rounding::ragged), 1);
}

void set(TensorView t, double value) { std::fill_n(t.as<double>(), t.elements(), value); }

// A gate whose logits are the hidden state's first columns, without noise.
std::unique_ptr<Gate> plain_gate(const RankShape& s) {
  auto gate = make_gate("gshard", {s, {}});
  const auto weights = gate->parameters();
  set(weights[0].value, 0);
  for (int64_t e = 0; e < s.experts.total; ++e) weights[0].value.as<double>()[e * s.model_dim() + e] = 1;
  set(weights[1].value, -1e6);  // softplus(hidden . noise) = 0 for positive hidden states
  return gate;
}

TEST(GShardGate, KeepsTheLargestLogitsAndPrefersTheLowerExpertOfEqualOnes) {
  const RankShape s = rank_of(4, 2, 4);
  Routing r({4, 2, 4, s.rows}, DType::float64);
  const Tensor hidden({4, 4}, DType::float64);
  const std::vector<double> rows{1, 2, 4, 3, 5, 5, 5, 5, 1, 3, 1, 3, 2, 1, 1, 1};
  std::copy(rows.begin(), rows.end(), hidden.view().as<double>());
  plain_gate(s)->forward(hidden, r);
  EXPECT_EQ(r.expert, (std::vector<int32_t>{2, 3, 0, 1, 1, 3, 0, 1}));
  const double* w = r.weight.view().as<double>();
  EXPECT_NEAR(w[0], 1 / (1 + std::exp(-1.0)), 1e-15);
  for (int64_t t = 0; t < 4; ++t) EXPECT_NEAR(w[2 * t] + w[2 * t + 1], 1, 1e-15);
}

TEST(GShardGate, DrawsItsNoiseByGlobalToken) {
  const RankShape first = rank_of(4, 4);
  const LayerSeed seed{.seed = 3};
  const Tensor both({2 * first.tokens.count, 4}, DType::float64), part({first.tokens.count, 4}, DType::float64);
  fill_gate_noise(both, {0, both.view().size(0), both.view().size(0)}, seed);
  fill_gate_noise(part, first.tokens, seed);
  EXPECT_EQ(first.tokens.first, 6);
  for (int64_t i = 0; i < part.view().elements(); ++i)
    EXPECT_EQ(part.view().as<double>()[i], both.view().as<double>()[first.tokens.first * 4 + i]);
}

TEST(Registries, NameWhatTheyKnow) {
  const RankShape s = rank_of(2, 1);
  try {
    make_gate("gshart", {s, {}});
    FAIL();
  } catch (const BadInput& e) {
    EXPECT_EQ(std::string(e.what()), "gate: unknown 'gshart', expected one of: gshard");
  }
  EXPECT_THROW(make_order("none", DType::float64), BadInput);
  EXPECT_THROW(make_order("tutel", DType::float16), BadInput);
}

class OrderTest : public testing::TestWithParam<std::string_view> {
 protected:
  OrderTest() : order_(make_order(GetParam(), DType::float64)) {
    for (int64_t p = 0; p < routing_.pairs(); ++p) {
      const auto bits = random_bits(1, 2, static_cast<uint64_t>(p / 2));
      routing_.expert[static_cast<size_t>(p)] = static_cast<int32_t>((bits % 3 + static_cast<uint64_t>(p % 2)) % 4);
    }
    assign_rows(routing_);
    fill(routing_.weight, 1);
    fill(tokens_, 2);
    fill(rows_, 3);
  }
  static void fill(TensorView t, uint64_t stream) {
    for (int64_t i = 0; i < t.elements(); ++i) t.as<double>()[i] = random_normal(9, stream, static_cast<uint64_t>(i));
  }
  static double dot(TensorView a, TensorView b) {
    return std::inner_product(a.as<double>(), a.as<double>() + a.elements(), b.as<double>(), 0.0);
  }

  RankShape shape_ = rank_of(4, 2, 12);
  Routing routing_{{12, 2, 4, shape_.rows}, DType::float64};
  WireLayout layout_{shape_, 3}, other_{shape_, 2};
  std::unique_ptr<Order> order_;
  Tensor tokens_{{12, 4}, DType::float64}, rows_{{shape_.rows * 4 * 4}, DType::float64};
};

TEST_P(OrderTest, PlacesKeptTokensAndClearsEmptyRows) {
  ASSERT_GT(std::ranges::count(routing_.row, Routing::kDropped), 0);
  order_->order(routing_, tokens_, {rows_, layout_});
  int64_t nonzero = 0;
  for (int64_t i = 0; i < rows_.view().elements(); ++i) nonzero += rows_.view().as<double>()[i] != 0;
  EXPECT_EQ(nonzero, 4 * std::accumulate(routing_.filled.begin(), routing_.filled.end(), int64_t{0}));
  for (int64_t p = 0; p < routing_.pairs(); ++p) {
    const auto pair = static_cast<size_t>(p);
    if (routing_.row[pair] == Routing::kDropped) continue;
    const int64_t at = layout_.offset(routing_.expert[pair], routing_.row[pair]);
    for (int64_t j = 0; j < 4; ++j)
      EXPECT_EQ(rows_.view().as<double>()[at + j], tokens_.view().as<double>()[p / 2 * 4 + j]);
  }
}

TEST_P(OrderTest, OrderBackwardIsItsTranspose) {
  const Tensor random({shape_.rows * 4 * 4}, DType::float64), d_tokens({12, 4}, DType::float64);
  fill(random, 4);
  fill(d_tokens, 5);  // overwritten
  order_->order(routing_, tokens_, {rows_, layout_});
  order_->order_backward(routing_, {random, layout_}, d_tokens);
  EXPECT_NEAR(dot(rows_, random), dot(tokens_, d_tokens), 1e-12);
}

TEST_P(OrderTest, IOrderBackwardIsItsTransposeInRowsAndInWeights) {
  const Tensor output({12, 4}, DType::float64), d_output({12, 4}, DType::float64);
  const Tensor d_rows({shape_.rows * 4 * 4}, DType::float64), d_weight({12, 2}, DType::float64);
  fill(d_output, 6);
  fill(d_rows, 7);
  fill(d_weight, 8);
  order_->i_order(routing_, {rows_, layout_}, output);
  order_->i_order_backward(routing_, d_output, {rows_, layout_}, {d_rows, other_}, d_weight);
  // Both maps are linear: in the rows, and in the weights.
  EXPECT_NEAR(dot(routing_.weight, d_weight), dot(output, d_output), 1e-12);
  const Tensor moved({shape_.rows * 4 * 4}, DType::float64);  // the rows in the other degree's layout
  for (int64_t e = 0; e < 4; ++e)
    for (int64_t t = 0; t < shape_.rows; ++t)
      std::copy_n(rows_.view().as<double>() + layout_.offset(e, t), 4, moved.view().as<double>() + other_.offset(e, t));
  EXPECT_NEAR(dot(moved, d_rows), dot(output, d_output), 1e-12);
  for (size_t p = 0; p < routing_.row.size(); ++p)
    EXPECT_EQ(d_weight.view().as<double>()[p] == 0, routing_.row[p] == Routing::kDropped);
}

INSTANTIATE_TEST_SUITE_P(All, OrderTest, testing::ValuesIn(order_names()),
                         [](const auto& row) { return std::string(row.param); });

}  // namespace
}  // namespace moe
