// The orders' four maps on random routings: each pair where it belongs, adjoint to each other, and the same by all
// orders. With drops, several groups, layouts of other degrees and of some groups only, rows of any count, mixed rows.
#include "moe/layer/orders/order.h"

#include <gtest/gtest.h>
#include <numeric>

#include "moe/device/cpu/cores.h"
#include "moe/tensor/cpu/math.h"
#include "tests/tensor/random_tensor.h"

namespace moe {
namespace {

constexpr int64_t kWidth = 5, kExperts = 4, kGroupTokens = 12;

struct Kind {
  const char* name;
  int64_t groups = 1, choices = 2, rows = 4;
  bool mixes = false, by_counts = false;  // rows hold sums of tokens; a cell has as many rows as hold tokens
};

constexpr Kind kKinds[] = {{"drops", 3},
                           {"roomy", 2, 2, 20},
                           {"one", 1, 1, 5},
                           {"counts", 3, 3, 12, false, true},
                           {"mixed", 2, kExperts * 3, 3, true},
                           {"mixed_drops", 2, 3, 4, true}};

Routing random_routing(const Kind& kind, uint64_t seed) {
  Routing r({kind.groups * kGroupTokens, kGroupTokens, kind.choices, kExperts, kind.rows}, DType::float64);
  const auto draw = [&](int64_t p, uint64_t what, int64_t below) {
    return static_cast<int32_t>(random_bits(seed, what, static_cast<uint64_t>(p)) % static_cast<uint64_t>(below));
  };
  fill_random(r.weight, seed);
  for (int64_t p = 0; p < r.pairs(); ++p)  // expert 3 is nobody's but where all tokens meet
    r.expert[p] = draw(p, 1, kExperts - 1);
  if (!kind.mixes) {
    assign_rows(r);
    return r;
  }
  r.fill = random_tensor({r.tokens, r.choices}, seed + 1);
  const bool all = kind.choices == kExperts * kind.rows;
  for (int64_t p = 0; p < r.pairs(); ++p) {
    if (all) r.expert[p] = static_cast<int32_t>(p % r.choices / kind.rows);
    r.row[p] = all ? static_cast<int32_t>(p % kind.rows) : draw(p, 2, kind.rows + 1) - 1;
  }
  std::fill(r.filled.begin(), r.filled.end(), kind.rows);
  return r;
}

// A piece a cell, of the groups in [first, last).
RowLayout layout_of(const Routing& r, int degree, int first, int last, bool by_counts) {
  RowLayout::Shape shape{r.rows, kWidth, static_cast<int>(r.groups()), kExperts, degree, false, {}};
  for (int64_t e = 0; e < kExperts; ++e)
    for (int group = last - 1; group >= first; --group)
      shape.cells.push_back({group, e, static_cast<int>(shape.cells.size())});
  RowLayout layout(std::move(shape));
  if (by_counts) layout.set_counts(r.filled);
  return layout;
}

double dot(TensorView a, TensorView b) {
  return std::inner_product(a.as<double>(), a.as<double>() + a.elements(), b.as<double>(), 0.0);
}

void expect_near(TensorView a, TensorView b, const char* what) {
  ASSERT_EQ(a.elements(), b.elements()) << what;
  for (int64_t i = 0; i < a.elements(); ++i) ASSERT_NEAR(a.as<double>()[i], b.as<double>()[i], 1e-12) << what << i;
}

// Random rows, alike whatever the layout; empty ones are 0, as experts leave them.
Tensor random_rows(const Routing& r, const RowLayout& layout, uint64_t seed) {
  Tensor rows({layout.elements()}, DType::float64);
  for (int group = 0; group < r.groups(); ++group)
    for (int64_t e = 0; e < kExperts; ++e)
      for (int64_t row = 0; row < r.filled[group * kExperts + e]; ++row)
        for (int64_t j = 0; j < kWidth; ++j)
          rows.view().as<double>()[layout.offset(group, e, row) + j] =
              random_normal(seed, 3, static_cast<uint64_t>(((group * kExperts + e) * r.rows + row) * kWidth + j));
  return rows;
}

class OrderTest : public testing::TestWithParam<std::tuple<std::string_view, Kind>> {
 protected:
  std::unique_ptr<Order> order_ = make_order(std::get<0>(GetParam()), DType::float64);
  Kind kind_ = std::get<1>(GetParam());
  Routing routing_ = random_routing(kind_, 11);
  Tensor tokens_ = random_tensor({routing_.tokens, kWidth}, 21);
  double* fill_ = routing_.fill.view().as<double>();
  int groups_ = static_cast<int>(routing_.groups());

  RowLayout layout(int degree) const { return layout_of(routing_, degree, 0, groups_, kind_.by_counts); }
};

TEST_P(OrderTest, PutsEveryTokenWhereItsPairsSay) {
  for (const int degree : {1, 3, 7})
    for (const int first : {0, groups_ - 1}) {
      const RowLayout some = layout_of(routing_, degree, first, groups_, kind_.by_counts);
      const Tensor rows = random_tensor({some.elements()}, 31), expected({some.elements()}, DType::float64);
      for (int64_t p = first * kGroupTokens * routing_.choices; p < routing_.pairs(); ++p) {
        if (routing_.row[p] == Routing::kDropped) continue;
        const int64_t token = p / routing_.choices;
        const int64_t at = some.offset(static_cast<int>(token / kGroupTokens), routing_.expert[p], routing_.row[p]);
        for (int64_t j = 0; j < kWidth; ++j)
          expected.view().as<double>()[at + j] +=
              (fill_ == nullptr ? 1 : fill_[p]) * tokens_.view().as<double>()[token * kWidth + j];
      }
      order_->order(routing_, tokens_, {rows, some});
      expect_near(rows, expected, "row element ");
    }
}

TEST_P(OrderTest, OrderBackwardIsItsTransposeInTokensAndInFill) {
  const RowLayout all = layout(3);
  const Tensor rows({all.elements()}, DType::float64), d_rows = random_rows(routing_, all, 41);
  const Tensor d_tokens = random_tensor({routing_.tokens, kWidth}, 42);  // overwritten
  const Tensor d_fill = kind_.mixes ? random_tensor({routing_.tokens, routing_.choices}, 43) : Tensor();
  order_->order(routing_, tokens_, {rows, all});
  order_->order_backward(routing_, tokens_, {d_rows, all}, d_tokens, d_fill);
  EXPECT_NEAR(dot(rows, d_rows), dot(tokens_, d_tokens), 1e-11);
  if (kind_.mixes) {
    EXPECT_NEAR(dot(rows, d_rows), dot(routing_.fill, d_fill), 1e-11);
  }
}

TEST_P(OrderTest, IOrderBackwardIsItsTransposeInRowsAndInWeights) {
  const RowLayout forward = layout(2), backward = layout(5);
  const Tensor rows = random_rows(routing_, forward, 51), moved = random_rows(routing_, backward, 51);
  const Tensor output = random_tensor({routing_.tokens, kWidth}, 52),
               d_output = random_tensor({routing_.tokens, kWidth}, 53);
  const Tensor d_rows = random_tensor({backward.elements()}, 54);
  const Tensor d_weight = random_tensor({routing_.tokens, routing_.choices}, 55);
  order_->i_order(routing_, {rows, forward}, output);
  order_->i_order_backward(routing_, d_output, {rows, forward}, {d_rows, backward}, d_weight);
  EXPECT_NEAR(dot(routing_.weight, d_weight), dot(output, d_output), 1e-11);
  EXPECT_NEAR(dot(moved, d_rows), dot(output, d_output), 1e-11);
  for (size_t p = 0; p < routing_.row.size(); ++p)
    EXPECT_EQ(d_weight.view().as<double>()[p] == 0, routing_.row[p] == Routing::kDropped);
  // Empty rows bring nothing back: their gradients are 0.
  const Tensor kept = random_rows(routing_, backward, 51);
  for (int64_t i = 0; i < backward.elements(); ++i)
    EXPECT_TRUE(kept.view().as<double>()[i] != 0 || d_rows.view().as<double>()[i] == 0);
}

TEST_P(OrderTest, EqualsTutel) {
  const auto tutel = make_order("tutel", DType::float64);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Routing r = random_routing(kind_, 100 * seed);
    const RowLayout forward = layout_of(r, 1 + seed % 5, 0, groups_, kind_.by_counts);
    const RowLayout backward = layout_of(r, 1 + seed % 3, 0, groups_, kind_.by_counts);
    const Tensor in = random_rows(r, forward, seed);
    std::vector<std::vector<Tensor>> found;
    for (Order* order : {tutel.get(), order_.get()}) {
      Tensor rows({forward.elements()}, DType::float64), out({r.tokens, kWidth}, DType::float64);
      Tensor d_rows({backward.elements()}, DType::float64), d_weight({r.tokens, r.choices}, DType::float64);
      Tensor d_tokens({r.tokens, kWidth}, DType::float64), d_fill({r.tokens, r.choices}, DType::float64);
      order->order(r, tokens_, {rows, forward});
      order->i_order(r, {in, forward}, out);
      order->i_order_backward(r, tokens_, {in, forward}, {d_rows, backward}, d_weight);
      order->order_backward(r, tokens_, {d_rows, backward}, d_tokens, d_fill);
      auto& all = found.emplace_back();
      for (Tensor* t : {&rows, &out, &d_rows, &d_weight, &d_tokens, &d_fill}) all.push_back(std::move(*t));
    }
    for (size_t i = 0; i < found[0].size(); ++i) expect_near(found[0][i], found[1][i], "result ");
  }
}

TEST_P(OrderTest, IsTheSameOnSeveralThreads) {
  constexpr int64_t kWide = 4096;  // enough to be shared out
  RowLayout::Shape shape{routing_.rows, kWide, groups_, kExperts, 2, false, {}};
  for (int group = 0; group < groups_; ++group)
    for (int64_t e = 0; e < kExperts; ++e) shape.cells.push_back({group, e, group});
  const RowLayout wide(std::move(shape));
  const Tensor tokens = random_tensor({routing_.tokens, kWide}, 61);
  std::vector<std::vector<Tensor>> found;
  for (const int threads : {1, 3}) {
    cpu::set_thread_count(threads);
    Tensor rows({wide.elements()}, DType::float64), out({routing_.tokens, kWide}, DType::float64);
    Tensor d_rows({wide.elements()}, DType::float64), d_weight({routing_.tokens, routing_.choices}, DType::float64);
    order_->order(routing_, tokens, {rows, wide});
    order_->i_order(routing_, {rows, wide}, out);
    order_->i_order_backward(routing_, tokens, {rows, wide}, {d_rows, wide}, d_weight);
    auto& all = found.emplace_back();
    for (Tensor* t : {&rows, &out, &d_rows, &d_weight}) all.push_back(std::move(*t));
  }
  cpu::set_thread_count(1);
  for (size_t i = 0; i < found[0].size(); ++i) {
    const double *one = found[0][i].view().as<double>(), *three = found[1][i].view().as<double>();
    for (int64_t j = 0; j < found[0][i].view().elements(); ++j) ASSERT_NEAR(one[j], three[j], 1e-9);
  }
}

INSTANTIATE_TEST_SUITE_P(All, OrderTest, testing::Combine(testing::ValuesIn(order_names()), testing::ValuesIn(kKinds)),
                         [](const auto& row) {
                           return std::string(std::get<0>(row.param)) + "_" + std::get<1>(row.param).name;
                         });

TEST(Orders, NameWhatTheyKnow) {
  EXPECT_THROW(make_order("none", DType::float64), BadInput);
  EXPECT_THROW(make_order("tutel", DType::float16), BadInput);
}

}  // namespace
}  // namespace moe
