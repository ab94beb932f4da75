// Whole models under contention and with measured curves: `exact` against every other strategy, against coarse brute
// force, and against the bound that its gap is told from.
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>

#include "moe/base/random.h"
#include "moe/search/detail/model_replay.h"
#include "moe/search/model_search.h"
#include "moe/shape/model_file.h"
#include "moe/simulator/contended_work.h"
#include "tests/prices/random_layer.h"

namespace moe {
namespace {

using random_layer::contended;
using random_layer::random_layer;
using random_layer::RandomLayer;

constexpr uint64_t kModels = 90, kSmallModels = 60;

struct Draws {
  uint64_t seed, index = 0;
  int64_t below(int64_t n) { return static_cast<int64_t>(random_bits(seed, 77, index++) % static_cast<uint64_t>(n)); }
};

// A quarter each: neither, contention, measured curves, both.
RandomLayer draw(uint64_t seed) {
  const RandomLayer layer = random_layer(seed, seed % 4 >= 2);
  return seed % 2 == 0 ? layer : contended(layer, seed);
}

LaneOrder any_order(int degree, Draws& draws) {
  LaneOrder order;
  for (int gathers = 0, scatters = 0; scatters < degree;) {
    const bool gather = scatters == gathers || (gathers < degree && draws.below(2) == 0);
    order += gather ? 'G' : 'S';
    ++(gather ? gathers : scatters);
  }
  return order;
}

// Of degrees up to 6, and any of the bytes that wait in either place.
ModelDecision any_model_decision(const Schedule& schedule, const LayerPricer& pricer, int layers, Draws& draws) {
  const int64_t element = bytes_of(pricer.shape().layer.dtype);
  const int64_t made = pricer.has(GroupKind::dp) ? pricer.gradient_bytes() : 0;
  const int most = static_cast<int>(std::min<int64_t>(6, pricer.rows()));
  const auto degree = [&] { return 1 + static_cast<int>(draws.below(most)); };
  ModelDecision d;
  d.degree_forward = d.degree_backward = degree();
  if (schedule.searched_order && draws.below(2) == 0) d.order_forward = any_order(d.degree_forward, draws);
  int64_t waiting = 0;
  for (int i = 0; i < layers; ++i) {
    BackwardDecision& b = d.backwards.emplace_back();
    b.degree = schedule.degrees == DegreePolicy::apart ? degree() : d.degree_forward;
    const auto some = [&] { return draws.below(3) == 0 ? 0 : element * draws.below(waiting / element + 1); };
    if (schedule.gradients == GradientPolicy::adaptive) waiting -= b.gar_in_moe_bytes = some();
    waiting -= b.gar_beside_dense_bytes = some();
    waiting += made;
    if (schedule.searched_order && draws.below(2) == 0) b.order = any_order(b.degree, draws);
  }
  return d;
}

TEST(ModelContention, ExactIsNeverSlowerThanAnyOtherStrategyReplayed) {
  ModelSearch search;
  double most = 0;
  int models = 0, faster = 0;
  for (uint64_t seed = 1; seed <= kModels; ++seed) {
    const RandomLayer layer = draw(seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    const ModelShape model{layer.shape, 1 + static_cast<int>(seed / 4 % 4), seed % 5 == 0 ? 3 : 1};
    for (const char* name : {"fsmoe", "fsmoe-no-iio", "tutel-improved", "fsmoe-interleaved"}) {
      const Schedule& schedule = find_schedule(name);
      const ModelResult found = search.tune(schedule, pricer, model);
      if (model.micro_batches == 1) {
        ASSERT_GE(found.total_s(), found.at_least_s * (1 - 1e-9)) << name << ", " << layer.text;
      }
      double best = std::numeric_limits<double>::max();
      for (const PartitionStrategy& row : partition_strategies().subspan(1))
        best = std::min(best, search.tune(schedule, pricer, model, {}, row).total_s());
      ASSERT_LE(found.total_s(), best * (1 + 1e-9)) << name << ", " << model.layers << " layers, " << layer.text;
      faster += found.total_s() < best * (1 - 1e-6);
      most = std::max(most, best / found.total_s() - 1);
      ++models;
    }
  }
  fmt::print("{} models: faster than all other strategies in {}, most {:.2f} %\n", models, faster, 100 * most);
  EXPECT_GT(faster, models / 10);
}

TEST(ModelContention, NoDecisionIsFasterThanTheBound) {
  ModelSearch search;
  double closest = std::numeric_limits<double>::max();
  int beaten = 0, decisions = 0;
  for (uint64_t seed = 1; seed <= kModels; ++seed) {
    const RandomLayer layer = draw(seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    ModelShape model{layer.shape, 1 + static_cast<int>(seed / 4 % 3), 1};
    if (seed % 2 == 0) add_ends(model, 1000 * static_cast<int64_t>(1 + seed % 7), seed % 4 == 0);
    for (const char* name : {"fsmoe", "fsmoe-no-iio", "tutel-improved", "fsmoe-interleaved"}) {
      const Schedule& schedule = find_schedule(name);
      const ModelResult found = search.tune(schedule, pricer, model);
      search::ModelReplay replay(schedule, pricer, model);
      Draws draws{seed};
      for (int i = 0; i < 20; ++i) {
        const ModelDecision d = any_model_decision(schedule, pricer, model.layers, draws);
        ASSERT_TRUE(replay.sends_all_waiting_bytes(d));
        const double seconds = replay.seconds(d);
        ASSERT_GE(seconds, found.at_least_s * (1 - 1e-9)) << name << ", " << model.layers << " layers, " << layer.text;
        beaten += seconds < found.total_s() * (1 - 1e-9);
        ++decisions;
      }
      closest = std::min(closest, found.total_s() / found.at_least_s);
    }
  }
  fmt::print("{} random decisions: {} faster than what was found, none below the bound\n", decisions, beaten);
  EXPECT_EQ(beaten, 0);
  EXPECT_LT(closest, 1 + 1e-9) << "the bound is never reached: is it one?";
}

// Where gradients go last there is nothing to decide but degrees, with a model's ends too.
TEST(ModelContention, TheBoundOfGradientsAtTheEndCountsTheOutputProjection) {
  ModelSearch search;
  const Profile profile = find_profile("testbed-b");
  const Model file = model_on_cluster(find_model("mixtral-7b@fsmoe"), profile.name);
  ParallelShape parallel = file.parallel;
  parallel.nodes = profile.nodes;
  parallel.ranks_per_node = profile.ranks_per_node;
  ModelShape model{complete(file.layer, parallel, Rounding::ragged), file.layers, 1};
  add_ends(model, file.vocabulary, file.tied_embedding);
  ASSERT_GT(model.head_gradient_bytes, 0);
  const ModelResult found = search.tune(find_schedule("tutel"), LayerPricer(profile, model.shape), model);
  EXPECT_NEAR(found.total_s() / found.at_least_s, 1, 1e-6);
}

// Every degree to 3 and every quarter of a layer's gradients anywhere, of two layers and of three.
class Coarse {
 public:
  Coarse(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model)
      : replay_(schedule, pricer, model), most_(static_cast<int>(std::min<int64_t>(3, pricer.rows()))) {
    const int64_t element = bytes_of(pricer.shape().layer.dtype);
    quarter_ = std::max(element, replay_.made_bytes() / 4 / element * element);
    decision_.backwards.resize(model.layers);
  }

  double least() {
    for (decision_.degree_forward = 1; decision_.degree_forward <= most_; ++decision_.degree_forward) layer(0, 0);
    return least_;
  }

 private:
  void layer(size_t i, int64_t waiting) {
    if (i == decision_.backwards.size()) {
      least_ = std::min(least_, replay_.seconds(decision_));
      return;
    }
    BackwardDecision& b = decision_.backwards[i];
    for (b.degree = 1; b.degree <= most_; ++b.degree)
      for (int64_t moe = 0; moe <= waiting; moe += quarter_)
        for (int64_t dense = 0; moe + dense <= waiting; dense += quarter_) {
          b.gar_in_moe_bytes = moe;
          b.gar_beside_dense_bytes = dense;
          layer(i + 1, waiting - moe - dense + replay_.made_bytes());
        }
  }

  search::ModelReplay replay_;
  int most_;
  int64_t quarter_;
  ModelDecision decision_;
  double least_ = std::numeric_limits<double>::max();
};

TEST(ModelContention, NoCoarseDecisionIsFaster) {
  ModelSearch search;
  double worst = 0;
  int models = 0, slower = 0;
  for (uint64_t seed = 1; seed <= kSmallModels; ++seed) {
    const RandomLayer layer = draw(seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    if (!pricer.has(GroupKind::dp)) continue;
    const ModelShape model{layer.shape, seed % 10 == 0 ? 3 : 2, 1};
    const Schedule& schedule = find_schedule("fsmoe");
    const ModelResult found = search.tune(schedule, pricer, model);
    const double least = Coarse(schedule, pricer, model).least();
    ASSERT_LE(found.total_s(), least * (1 + found.gap()) * (1 + 1e-9)) << layer.text;
    worst = std::max(worst, found.total_s() / least - 1);
    slower += found.total_s() > least * (1 + 1e-9);
    ++models;
  }
  fmt::print("{} models: {} slower than coarse brute force, worst {:.3f} %\n", models, slower, 100 * worst);
  EXPECT_LT(worst, 0.01);
}

TEST(ModelContention, ModelsThatWereLostAreNot) {
  ModelSearch search;
  Profile b = find_profile("testbed-b");
  b.contention.compute_by_inter = 3;
  b.contention.compute_by_intra = 1.5;
  const Model mixtral = model_on_cluster(find_model("mixtral-7b@fsmoe"), "testbed-b");
  ParallelShape parallel = mixtral.parallel;
  parallel.nodes = b.nodes;
  parallel.ranks_per_node = b.ranks_per_node;
  const ModelShape seven{complete(mixtral.layer, parallel, Rounding::ragged), mixtral.layers, 1};
  const LayerPricer on_b(b, seven.shape);
  const Schedule& fsmoe = find_schedule("fsmoe");
  const ModelResult found = search.tune(fsmoe, on_b, seven);
  EXPECT_LT(found.total_s(), 0.2860) << "FSMoE's steps: 0.2926";
  EXPECT_LT(found.gap(), 0.015);
  Profile a = find_profile("testbed-a");
  a.contention = {1.5, 1.5, 1.1, 1.1, 1, 1};
  LayerShape layer{.batch = 2, .seq = 2048, .model_dim = 2048, .hidden = 4096, .heads = 32, .experts = 6, .top_k = 1};
  layer.capacity_factor = 2.4;
  layer.ffn = Ffn::mixtral;
  const ModelShape twelve{complete(layer, {.nodes = a.nodes, .ranks_per_node = a.ranks_per_node}, Rounding::exact), 12,
                          1};
  const LayerPricer on_a(a, twelve.shape);
  const ModelResult tuned = search.tune(fsmoe, on_a, twelve);
  EXPECT_LT(tuned.total_s(), 0.7065) << "degrees 2 and 2, gradients by FSMoE's first step: 0.7327";
  EXPECT_LT(tuned.gap(), 0.02);
}

// Orders beside FSMoE's can be chosen for each backward of a model.
TEST(ModelContention, OrdersAreSearchedInBackwardsToo) {
  ModelSearch search;
  int models = 0, gained = 0, ordered = 0;
  double most = 0;
  for (uint64_t seed = 1; seed <= kModels; ++seed) {
    const RandomLayer layer = seed % 2 == 0 ? random_layer(seed) : contended(random_layer(seed), seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    const ModelShape model{layer.shape, 2, 1};
    const double plain = search.tune(find_schedule("fsmoe"), pricer, model).total_s();
    const ModelResult found = search.tune(find_schedule("fsmoe-interleaved"), pricer, model);
    ASSERT_LE(found.total_s(), plain * (1 + 1e-9)) << layer.text;
    gained += found.total_s() < plain * (1 - 1e-6);
    most = std::max(most, plain / found.total_s() - 1);
    ordered +=
        std::ranges::any_of(found.decision.backwards, [](const BackwardDecision& b) { return !b.order.empty(); });
    ++models;
  }
  fmt::print("{} models: {} gain by orders, most {:.2f} %; {} order a backward\n", models, gained, 100 * most, ordered);
  EXPECT_GT(gained, 0);
  EXPECT_GT(ordered, 0);
}

// Rates of a lane that is slowed a hundredfold: rounding had a corner far outside.
TEST(LinearProgram, StaysWithinItsLimits) {
  constexpr double e = 0.0089682301876655764;
  const LinearProgram program{{{1, 0, 0, 0, 0, 0},
                               {0, 1, 0, 0, 0, 0},
                               {1, e, 0, 0, 0, 0},
                               {0, 0, 1, 0, 0, 0},
                               {0, e, 1, 0, 0, 0},
                               {0, 0, 0, 1, 0, 0},
                               {0, 0, 0, 0, 1, 0},
                               {0, 0, 0, 1, 1, 0},
                               {0, 0, 0, 0, 0, 1},
                               {0, 0, 0, e, 0, 1},
                               {0, 0, 0, 0, 1, 1},
                               {0, 0, 0, e, 1, 1},
                               {1, 0, 0, e, 0, 0},
                               {1, 0, 0, 0, 1, 0},
                               {1, 0, 0, e, 1, 0},
                               {0, 1, 0, 0, 1, 0},
                               {0, e, 0, 0, 0, 1},
                               {0, e, 0, 0, 1, 1},
                               {1, e, 0, 0, 1, 0}},
                              std::vector<double>(19, 1)};
  const std::vector<double> gains{2.6406922054467484e-06, 0.0053765306142134752, 9.9178676456109384e-06,
                                  0.00088143985606294441, 0.002361418951688345,  2.391570299272527e-06};
  const double sum = std::accumulate(gains.begin(), gains.end(), 0.0);
  EXPECT_LE(maximum(program, gains), sum);
  EXPECT_GE(maximum(program, gains), gains[1] + gains[3]) << "the second and the fourth have no row in common";
}

TEST(LinearProgram, OfARowWithoutALimitIsNothingOfIt) {
  EXPECT_EQ(maximum({{{1, 1}, {0, 1}}, {0, 2}}, std::vector{1.0, 1.0}), 0);
  EXPECT_EQ(maximum({{{1, 0}, {0, 1}}, {0, 2}}, std::vector{1.0, 1.0}), 2);
  EXPECT_EQ(maximum({{{1, 0}}, {1}}, std::vector{1.0, 1.0}), std::numeric_limits<double>::infinity());
}

// Two variables: the most is at a corner.
TEST(LinearProgram, IsAtTheBestCorner) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    LinearProgram program;
    const size_t rows = 2 + seed % 5;
    for (size_t r = 0; r < rows; ++r) {
      program.rows.push_back({0.1 + random_uniform(seed, 1, r), 0.1 + random_uniform(seed, 2, r)});
      program.limits.push_back(random_uniform(seed, 3, r));
    }
    const std::array gains{random_uniform(seed, 4, 0), random_uniform(seed, 4, 1)};
    std::vector<std::array<double, 3>> lines{{1, 0, 0}, {0, 1, 0}};
    for (size_t r = 0; r < rows; ++r) lines.push_back({program.rows[r][0], program.rows[r][1], program.limits[r]});
    double best = 0;
    for (size_t i = 0; i < lines.size(); ++i)
      for (size_t j = 0; j < i; ++j) {
        const auto &p = lines[i], &q = lines[j];
        const double determinant = p[0] * q[1] - p[1] * q[0];
        if (std::abs(determinant) < 1e-12) continue;
        const double x = (p[2] * q[1] - p[1] * q[2]) / determinant, y = (p[0] * q[2] - p[2] * q[0]) / determinant;
        const bool inside = std::ranges::all_of(lines.begin() + 2, lines.end(),
                                                [&](const auto& l) { return l[0] * x + l[1] * y <= l[2] + 1e-9; });
        if (x >= -1e-9 && y >= -1e-9 && inside) best = std::max(best, gains[0] * x + gains[1] * y);
      }
    ASSERT_NEAR(maximum(program, gains), best, 1e-6) << "seed " << seed;
  }
}

}  // namespace
}  // namespace moe
