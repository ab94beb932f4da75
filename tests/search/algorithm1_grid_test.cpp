// Algorithm 1 on the layers of FSMoE's Table 4, against the exact search over every integer degree.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "moe/search/algorithm1.h"
#include "moe/search/layer_search.h"
#include "moe/shape/grid.h"

namespace moe {
namespace {

// What a degree loses against the best one, over layers.
class Loss {
 public:
  void add(double seconds, double best) {
    const double loss = seconds / best - 1;
    least_ = std::min(least_, loss);
    worst_ = std::max(worst_, loss);
    sum_ += loss;
    other_ += loss > 1e-12;
    ++count_;
  }
  double mean() const { return sum_ / count_; }
  double least() const { return least_; }
  std::string text() const {
    return fmt::format("not the best in {:>4} of {}, slower by {:.2f} % in the mean, {:.1f} % at worst", other_, count_,
                       100 * mean(), 100 * worst_);
  }

 private:
  double sum_ = 0, worst_ = 0, least_ = 0;
  int other_ = 0, count_ = 0;
};

TEST(Algorithm1Grid, DegreesOfTable4AgainstTheExactSearch) {
  const Schedule& fsmoe = find_schedule("fsmoe");
  for (const auto& [grid_name, cluster] : {std::pair{"fsmoe-a", "testbed-a"}, {"fsmoe-b", "testbed-b"}}) {
    const Profile profile = find_profile(cluster);
    const Grid grid = find_grid(grid_name);
    LayerSearch search;
    Loss forward, forward_powers, backward, backward_powers;
    for (const GridLayer& layer : grid.layers) {
      const ParallelShape ranks{.nodes = profile.nodes, .ranks_per_node = profile.ranks_per_node};
      const LayerPricer pricer(profile, complete(layer.shape, ranks, Rounding::exact));
      const LayerResult best = search.tune(fsmoe, pricer);
      const int most = static_cast<int>(std::min<int64_t>(kMaxDegree, pricer.rows()));
      const int64_t in_moe = best.decision.gar_in_moe_bytes;
      const PhaseCosts ahead = phase_costs(pricer, Phase::forward, 0);
      const PhaseCosts back = phase_costs(pricer, Phase::backward, in_moe > 0 ? pricer.gradient_seconds(in_moe) : 0);
      for (const DegreeRounding rounding : {DegreeRounding::neighbours, DegreeRounding::powers_of_two}) {
        Decision d = best.decision;
        d.degree_forward = algorithm1(ahead, most, rounding).degree;
        d.degree_backward = algorithm1(back, most, rounding).degree;
        const LayerResult result = search.evaluate(fsmoe, pricer, d);
        const bool near = rounding == DegreeRounding::neighbours;
        (near ? forward : forward_powers).add(result.forward_s, best.forward_s);
        (near ? backward : backward_powers).add(result.backward_s, best.backward_s);
      }
    }
    fmt::print("{}, Algorithm 1's degree replayed beside the best integer:\n", grid_name);
    fmt::print("  r_f, floor or ceil   {}\n  r_f, {{1, 2, 4, 8}}    {}\n", forward.text(), forward_powers.text());
    fmt::print("  r_b, floor or ceil   {}\n  r_b, {{1, 2, 4, 8}}    {}\n", backward.text(), backward_powers.text());
    for (const Loss* loss : {&forward, &forward_powers, &backward, &backward_powers})
      EXPECT_GE(loss->least(), -1e-9) << "better than the exact search";
    EXPECT_LT(forward.mean(), 0.01);
    EXPECT_LT(backward.mean(), 0.01);
  }
}

}  // namespace
}  // namespace moe
