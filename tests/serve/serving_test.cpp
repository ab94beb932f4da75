#include "moe/serve/serving.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/serve/synthetic_routing.h"

namespace moe {
namespace {

constexpr int kRanks = 4, kLayers = 6, kExperts = 8, kLength = 2;
constexpr int64_t kTokens = 32;  // of a rank

// One node whose AlltoAll, GEMM and expert have prices that differ by more than rounding.
struct Served {
  Served() {
    profile.name = "served";
    profile.nodes = 1;
    profile.ranks_per_node = kRanks;
    CommRow alltoall;
    alltoall.op = Op::alltoall;
    alltoall.network = Network::intra;
    alltoall.ranks = kRanks;
    alltoall.alpha_s = 2e-5;
    alltoall.beta_s_per_byte = 3e-9;
    profile.comm = {alltoall};
    ComputeRow gemm;
    gemm.op = Op::gemm;
    gemm.alpha_s = 5e-6;
    gemm.beta_s_per_flop = 1e-11;
    profile.compute = {gemm};
    LayerShape layer{.batch = 1, .seq = kTokens, .model_dim = 16, .hidden = 32, .heads = 2, .experts = kExperts};
    layer.top_k = 1;
    layer.capacity_factor = std::nullopt;
    ParallelShape p{.nodes = 1, .ranks_per_node = kRanks};
    p.mp = p.esp = 1;
    p.ep = kRanks;
    shape = complete(layer, p, Rounding::ragged);
    setup.costs = {3e-5, 4e-4, 5e-4, 6e-5, 7e-5, 1e8};
  }
  // Four dimensions of a row, forward and back, and the four GEMMs of attention, from the profile's rows alone.
  double alltoall_s(double rows) const { return 2e-5 + 3e-9 * rows * 16 * 4; }
  double expert_s(double rows) const { return 2 * 5e-6 + 1e-11 * rows * 2 * 2 * 16 * 32; }

  Profile profile;
  LayerCase shape;
  ServingSetup setup;
  SyntheticRouting source{.layers = kLayers, .experts = kExperts, .skew = 0.9, .correlation = 0.7, .drift = 0.5};
  RoutingTrace profiled = generate_routing(source, 20, kRanks* kTokens);
  RoutingTrace trace = generate_routing(source, 30, kRanks* kTokens, 20);
  PathProfile paths{profiled, kLength};
};

const ServingVariant& variant(std::string_view name) {
  return *std::ranges::find(serving_variants(), name, &ServingVariant::name);
}

// A layer's rows and copied experts by device, computed from the placements alone.
struct Loads {
  std::vector<double> received = std::vector<double>(kRanks), expert_s = received;
  std::vector<double> copied_before = received, copied_behind = received;
  bool checks = false, places_again = false;
};

Loads loads_of(const Served& s, const ServingVariant& v, int layer, int64_t batch, ServingResult& counted) {
  std::vector<int64_t> counts = s.trace.counts(layer, batch);
  if (v.balanced) counts.assign(kExperts, kRanks * kTokens / kExperts);
  const std::vector<double> truth(counts.begin(), counts.end());
  const ExpertPlacement home = uniform_placement(kExperts, kRanks);
  ExpertPlacement before = home, final = home;
  Loads loads;
  if (v.estimates && layer >= kLength) {
    const std::vector<double> estimate = s.paths.estimate(s.trace, layer, batch);
    const auto list = most_popular(estimate, 2), right = most_popular(truth, 2);
    ++counted.estimated;
    counted.right_lists += list[0] == right[0] && list[1] == right[1];
    const bool same = std::is_permutation(list.begin(), list.end(), right.begin());
    loads.checks = v.fine_tunes;
    loads.places_again = v.fine_tunes && !same;
    counted.placed_again += loads.places_again;
    before = final = place_experts(estimate, kRanks, s.setup.max_experts);
  } else if (v.fine_tunes && !v.estimates) {
    loads.checks = loads.places_again = true;
  }
  if (loads.places_again) final = place_experts(truth, kRanks, s.setup.max_experts);
  const auto tokens = split_tokens(final, counts);
  for (size_t d = 0; d < kRanks; ++d) {
    const int device = static_cast<int>(d);
    for (int e = 0; e < kExperts; ++e) {
      loads.copied_before[d] += before.holds(device, e) && !home.holds(device, e);
      loads.copied_behind[d] += final.holds(device, e) && !before.holds(device, e) && !home.holds(device, e);
    }
    for (const int64_t rows : tokens[d]) {
      loads.received[d] += static_cast<double>(rows);
      if (rows > 0) loads.expert_s[d] += s.expert_s(static_cast<double>(rows));
    }
  }
  return loads;
}

// The seconds of a batch by a recursion over its layers, without a plan: every quantity is a time.
double batch_by_hand(const Served& s, const LayerPricer& pricer, const ServingVariant& v, int64_t batch,
                     ServingResult& counted) {
  const double attention = pricer.dense_seconds(TaskKind::attention, Phase::forward);
  const double gate = pricer.dense_seconds(TaskKind::gate, Phase::forward);
  const double order = pricer.dense_seconds(TaskKind::order, Phase::forward);
  const double back = pricer.dense_seconds(TaskKind::i_order, Phase::forward);
  const ServingCosts& c = s.setup.costs;
  const double copy_s = 2 * 16 * 32 * 4 / c.swap_bytes_per_s;  // of one expert's weights
  std::vector<double> at(kRanks), host(kRanks), copied(kRanks), weights(kRanks);
  std::vector<Loads> layers;
  for (int layer = 0; layer < kLayers; ++layer) layers.push_back(loads_of(s, v, layer, batch, counted));
  for (int layer = 0; layer < kLayers; ++layer) {
    const Loads& l = layers[layer];
    double gated = 0;
    for (double& t : at) gated = std::max(gated, t += attention + gate);
    double known = gated, sent = 0;
    if (l.checks) {
      known += c.check_s;
      if (l.places_again) host[0] = known = std::max(known, host[0]) + c.reschedule_s;
      known += c.broadcast_s;
      for (size_t d = 0; d < kRanks && l.places_again; ++d)
        weights[d] = copied[d] = std::max(known, copied[d]) + l.copied_behind[d] * copy_s;
    }
    const bool estimates_next = v.estimates && layer + 1 >= kLength && layer + 1 < kLayers;
    for (size_t d = 0; d < kRanks; ++d) {
      const double ready = l.checks ? known : at[d];
      double begin = ready + order;
      if (estimates_next) begin = std::max(begin, host[d] = std::max(at[d], host[d]) + c.estimate_s);
      sent = std::max(sent, begin);
    }
    const double most = *std::ranges::max_element(l.received);
    sent += s.alltoall_s(std::max<double>(kTokens, most));
    double returned = 0;
    for (size_t d = 0; d < kRanks; ++d) returned = std::max(returned, std::max(sent, weights[d]) + l.expert_s[d]);
    if (estimates_next) returned = std::max(returned, host[0] = std::max(sent, host[0]) + c.schedule_s);
    returned += s.alltoall_s(std::max<double>(kTokens, most));
    for (size_t d = 0; d < kRanks; ++d) {
      if (estimates_next)
        weights[d] = copied[d] = std::max(returned, copied[d]) + layers[layer + 1].copied_before[d] * copy_s;
      at[d] = returned + back;
    }
  }
  return *std::ranges::max_element(at);
}

TEST(Serving, BatchesTakeAsLongAsByHand) {
  const Served s;
  const LayerPricer pricer(s.profile, s.shape);
  Serving serving(pricer, s.setup);
  EXPECT_EQ(serving.expert_bytes(), 2 * 16 * 32 * 4);
  for (const ServingVariant& v : serving_variants()) {
    const ServingResult result = serving.run(v, s.trace, &s.paths);
    ServingResult counted;
    ASSERT_EQ(result.batch_s.size(), 30U);
    for (int64_t batch = 0; batch < 30; ++batch)
      EXPECT_NEAR(result.batch_s[batch] / batch_by_hand(s, pricer, v, batch, counted), 1, 1e-9)
          << v.name << " " << batch;
    EXPECT_EQ(result.estimated, counted.estimated) << v.name;
    EXPECT_EQ(result.right_lists, counted.right_lists) << v.name;
    EXPECT_EQ(result.placed_again, counted.placed_again) << v.name;
  }
}

TEST(Serving, LayersAndAlltoAllOfAUniformBatch) {
  const Served s;
  const LayerPricer pricer(s.profile, s.shape);
  const ServingResult result = Serving(pricer, s.setup).run(variant("uniform"), s.trace, nullptr);
  ServingResult counted;
  const double gate = pricer.dense_seconds(TaskKind::gate, Phase::forward);
  for (size_t i = 0; i < result.layer_s.size(); ++i) {
    const auto batch = static_cast<int64_t>(i / kLayers);
    const Loads l = loads_of(s, variant("uniform"), static_cast<int>(i % kLayers), batch, counted);
    const double most = std::max<double>(kTokens, *std::ranges::max_element(l.received));
    const double alltoall = 2 * s.alltoall_s(most), expert = *std::ranges::max_element(l.expert_s);
    const double order = pricer.dense_seconds(TaskKind::order, Phase::forward);
    EXPECT_NEAR(result.alltoall_s[i] / alltoall, 1, 1e-9);
    EXPECT_NEAR(result.layer_s[i] / (gate + order + alltoall + expert), 1, 1e-9);
  }
  EXPECT_EQ(result.estimated, 0);
  EXPECT_EQ(result.host_bytes, 0);
  EXPECT_EQ(result.device_bytes, kLayers * kExperts / kRanks * 2 * 16 * 32 * 4);
}

TEST(Serving, VariantsAreRankedAsTheyMustBe) {
  Served s;
  s.setup.costs = {0, 0, 0, 1e-12, 1e-12, 1e30};  // scheduling for nothing
  s.profile.compute.front().alpha_s = 0;          // and as many experts on a device as it may be
  const LayerPricer pricer(s.profile, s.shape);
  Serving serving(pricer, s.setup);
  const auto sum = [](const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); };
  const ServingResult uniform = serving.run(variant("uniform"), s.trace, nullptr),
                      ideal = serving.run(variant("ideal"), s.trace, nullptr),
                      known = serving.run(variant("no-estimation"), s.trace, nullptr),
                      lina = serving.run(variant("lina-serve"), s.trace, &s.paths);
  for (size_t i = 0; i < uniform.batch_s.size(); ++i) EXPECT_LE(ideal.batch_s[i], uniform.batch_s[i] * (1 + 1e-12));
  for (size_t i = 0; i < uniform.alltoall_s.size(); ++i) {
    EXPECT_LE(known.alltoall_s[i], uniform.alltoall_s[i] * (1 + 1e-9));
    EXPECT_GE(known.alltoall_s[i], ideal.alltoall_s[i] * (1 - 1e-9));
  }
  EXPECT_LT(sum(known.batch_s), sum(uniform.batch_s));
  EXPECT_LT(sum(known.batch_s), sum(lina.batch_s));  // from the first layer on, and never by a wrong estimate
  EXPECT_LT(sum(lina.batch_s), sum(uniform.batch_s));
  EXPECT_LT(sum(ideal.idle), sum(uniform.idle));
  EXPECT_GT(lina.device_bytes, uniform.device_bytes);
}

// A batch of which each fourth token is known, the other three going alike, against all of them written out.
TEST(Serving, TokensOfATraceMayStandForSeveral) {
  Served s;
  RoutingTrace some = generate_routing(s.source, 3, kRanks * kTokens / 4), all = some;
  all.batch_tokens *= 4;
  for (std::vector<int32_t>& layer : all.choices) {
    std::vector<int32_t> four;
    for (const int32_t expert : layer) four.insert(four.end(), 4, expert);
    layer = four;
  }
  const LayerPricer pricer(s.profile, s.shape);
  const ServingResult expected = Serving(pricer, s.setup).run(variant("lina-serve"), all, &s.paths);
  s.setup.weight = 4;
  EXPECT_EQ(Serving(pricer, s.setup).run(variant("lina-serve"), some, &s.paths).batch_s, expected.batch_s);
  s.setup.weight = 3;
  EXPECT_THROW(Serving(pricer, s.setup).run(variant("lina-serve"), some, &s.paths), BadInput);
}

TEST(Serving, EveryPlanIsSound) {
  const Served s;
  for (uint64_t number = 0; number < 64; ++number) {
    std::vector<ServedLayer> layers(5);
    for (size_t i = 0; i < layers.size(); ++i) {
      const uint64_t bits = random_bits(3, number, i);
      layers[i] = {(bits & 1) != 0 && i + 1 < layers.size(), (bits & 2) != 0, (bits & 6) == 6};
    }
    const Plan plan = serving_plan(s.shape, layers);  // which checks it
    for (const Task& task : plan.tasks()) EXPECT_EQ(task.phase, Phase::forward);
    EXPECT_EQ(std::ranges::count(plan.tasks(), TaskKind::expert, &Task::kind), 5);
    EXPECT_EQ(std::ranges::count(plan.tasks(), TaskKind::serve_check, &Task::kind),
              std::ranges::count(layers, true, &ServedLayer::checks));
  }
}

TEST(Serving, RefusesOtherLayers) {
  Served s;
  const auto refuses = [&](auto change) {
    LayerCase shape = s.shape;
    change(shape);
    EXPECT_THROW(serving_plan(shape, std::vector<ServedLayer>(1)), Unsupported);
  };
  refuses([](LayerCase& c) { c.layer.top_k = 2; });
  refuses([](LayerCase& c) { c.parallel.mp = 2; });
  refuses([](LayerCase& c) { c.layer.shared_hidden = 8; });
  refuses([](LayerCase& c) { c.layer.capacity_factor = 1.0; });
  const LayerPricer pricer(s.profile, s.shape);
  s.setup.max_experts = 1;
  EXPECT_THROW(Serving(pricer, s.setup), BadInput);
  s.setup.max_experts = 4;
  const RoutingTrace other = generate_routing({.layers = 3, .experts = kExperts}, 1, 8);
  EXPECT_THROW(Serving(pricer, s.setup).run(variant("uniform"), other, nullptr), BadInput);
  EXPECT_THROW(Serving(pricer, s.setup).run(variant("lina-serve"), s.trace, nullptr), BadInput);
}

TEST(RankReplay, SecondsOfEachRank) {
  const Served s;
  const Plan plan = serving_plan(s.shape, std::vector<ServedLayer>(2));
  const RankReplay replay(*plan.structure, s.shape.parallel);
  const size_t classes = plan.structure->tasks.size();
  std::vector<double> alike(classes), each;
  for (size_t c = 0; c < classes; ++c) {
    alike[c] = 1 + static_cast<double>(c);
    each.insert(each.end(), kRanks, alike[c]);
  }
  RankTimes times;
  EXPECT_EQ(replay.replay_rank_seconds(each, &times).makespan_s, replay.replay(alike, {}).makespan_s);
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_DOUBLE_EQ(times.end(0, rank), 1);
  each.back() += 5;  // of the last task, on the last rank
  const double longer = replay.replay_rank_seconds(each).makespan_s.front();
  EXPECT_DOUBLE_EQ(longer, replay.replay(alike, {}).makespan_s.front() + 5);
  each.pop_back();
  EXPECT_THROW(replay.replay_rank_seconds(each), std::exception);
}

}  // namespace
}  // namespace moe
