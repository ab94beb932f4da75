// Lane orders of one layer under contention, against every order, degree and split.
#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>

#include "moe/search/detail/lane_order.h"
#include "moe/search/layer_search.h"
#include "tests/prices/random_layer.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

using any_decision::any_decision;
using random_layer::contended;
using random_layer::random_layer;
using random_layer::RandomLayer;

constexpr uint64_t kLayers = 60, kFreeDegrees = 60;

void add_all(const LaneOrder& order, int gathers, int scatters, std::vector<LaneOrder>& all) {
  if (gathers == 0 && scatters == 0) all.push_back(order);
  if (gathers > 0) add_all(order + 'G', gathers - 1, scatters, all);
  if (scatters > gathers) add_all(order + 'S', gathers, scatters - 1, all);
}

// Every order of this degree, in either phase, with every split of the gradients.
double least_of_all(LayerSearch& search, const LayerPricer& pricer, int degree) {
  const Schedule& schedule = find_schedule("fsmoe-interleaved");
  const int64_t all = pricer.has(GroupKind::dp) ? pricer.gradient_bytes() : 0;
  double forward = std::numeric_limits<double>::max(), backward = forward;
  std::vector<LaneOrder> orders;
  add_all({}, degree, degree, orders);
  for (const LaneOrder& order : orders)
    for (int64_t first = 0; first <= all; first += 4) {
      Decision d = with_split(schedule, degree, degree, first);
      d.order_forward = d.order_backward = order;
      if (first == 0) forward = std::min(forward, search.evaluate(schedule, pricer, d).forward_s);
      const auto seconds = [&] { return search.replay(schedule, pricer).seconds(d, Phases::backward); };
      backward = std::min(backward, seconds());
      d.gar_after_bytes = all - first;  // none beside the dense part
      backward = std::min(backward, seconds());
      d.gar_in_moe_bytes = 0;
      d.gar_after_bytes = first;  // none in the MoE part
      backward = std::min(backward, seconds());
    }
  return forward + backward;
}

TEST(ContendedOrders, AreTheBestOfAllAtDegree3) {
  LayerSearch search;
  const Schedule& schedule = find_schedule("fsmoe-interleaved");
  int gained = 0, layers = 0;
  double most = 0;
  for (uint64_t seed = 1; seed <= kLayers; ++seed) {
    const RandomLayer layer = contended(random_layer(seed, seed % 4 == 0), seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    if (pricer.rows() < 3) continue;
    const LayerResult plain = search.tune(find_schedule("fsmoe"), pricer, {3, 3});
    const LayerResult found = search.tune(schedule, pricer, {3, 3});
    const double least = least_of_all(search, pricer, 3);
    EXPECT_TRUE(found.exact_order) << layer.text;
    ASSERT_NEAR(found.total_s(), least, 1e-9 * least)
        << layer.text << ": " << found.decision.order_forward << " " << found.decision.order_backward;
    gained += found.total_s() < plain.total_s() * (1 - 1e-6);
    most = std::max(most, plain.total_s() / found.total_s() - 1);
    ++layers;
  }
  fmt::print("{} layers at degree 3: {} gain by their orders, most {:.2f} %\n", layers, gained, 100 * most);
  EXPECT_GT(gained, 0);
}

// Whatever the degrees: no decision that splits gradients in two is faster, or by no more than the gap says.
TEST(ContendedOrders, AreOffByNoMoreThanTheySay) {
  LayerSearch search;
  const Schedule& schedule = find_schedule("fsmoe-interleaved");
  int exact = 0, layers = 0, faster = 0;
  double worst = 0;
  for (uint64_t seed = 1; seed <= kFreeDegrees; ++seed) {
    const RandomLayer layer = contended(random_layer(seed, seed % 4 == 0), seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    const LayerResult found = search.tune(schedule, pricer);
    ASSERT_LE(found.total_s(), search.tune(find_schedule("fsmoe"), pricer).total_s() * (1 + 1e-9)) << layer.text;
    const double least = found.total_s() / (1 + found.gap);
    for (uint64_t i = 0; i < 300; ++i) {
      const int degree = static_cast<int>(std::min<int64_t>(2 + static_cast<int64_t>(i % 9), pricer.rows()));
      Decision d = any_decision(schedule, layer.shape, 1000 * seed + i, degree);
      if (d.gar_in_moe_bytes > 0 && d.gar_after_bytes > 0)
        d.gar_after_bytes = pricer.gradient_bytes() - d.gar_in_moe_bytes;
      const double seconds = search.evaluate(schedule, pricer, d).total_s();
      ASSERT_GE(seconds, least * (1 - 1e-9)) << layer.text;
      faster += seconds < found.total_s() * (1 - 1e-9);
    }
    exact += found.exact_order;
    worst = std::max(worst, found.gap);
    ++layers;
  }
  fmt::print("{} layers: order exact in {}, off by at most {:.2f} %; {} random decisions faster\n", layers, exact,
             100 * worst, faster);
  EXPECT_GT(exact, layers / 2);
  EXPECT_EQ(faster, 0);
}

}  // namespace
}  // namespace moe
