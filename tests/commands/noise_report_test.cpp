#include "commands/noise_report.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <set>

#include "commands/shared/chosen_model.h"
#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/search/model_search.h"
#include "moe/simulator/fluid_replay.h"
#include "tests/simulator/rank_reference.h"

namespace moe::commands {
namespace {

// Where each rank stands in its EP group, by counting: neighbours differ in ESP's place, or with EP inside in EP's.
std::vector<int> ep_places(const ParallelShape& p) {
  std::vector<int> places;
  for (int outer = 0; outer < p.pp * p.edp; ++outer)
    for (int slow = 0; slow < (p.ep_inside ? p.esp : p.ep); ++slow)
      for (int fast = 0; fast < (p.ep_inside ? p.ep : p.esp); ++fast) places.push_back(p.ep_inside ? fast : slow);
  return places;
}

LayerCase dropless(int nodes, int ranks_per_node, int pp, bool ep_inside) {
  LayerShape layer;
  layer.capacity_factor.reset();
  layer.experts = 12;
  layer.seq = 768;
  layer.hidden = 3072;
  ParallelShape parallel{.nodes = nodes, .ranks_per_node = ranks_per_node};
  parallel.pp = pp;
  parallel.ep_inside = ep_inside;
  return complete(layer, parallel, Rounding::ragged);
}

// Zipf's law over 12 experts, the rows of each rank's experts over the mean: whatever the placement, ranks at one place
// of their EP groups have the same experts, and every group has all.
TEST(NoiseFlags, LoadsFollowThePlacement) {
  int drawn = 0;
  for (const auto& [nodes, ranks_per_node] : {std::pair{4, 2}, {6, 4}, {2, 3}, {12, 2}, {1, 12}})
    for (const int pp : {1, 2})
      for (const bool ep_inside : {false, true})
        for (uint64_t seed = 1; seed <= 5; ++seed) {
          const LayerCase shape = dropless(nodes, ranks_per_node, pp, ep_inside);
          const ParallelShape& p = shape.parallel;
          NoiseFlags flags;
          flags.zipf = 1.1;
          flags.seed = seed;
          const std::vector<double> load = noise_of(flags, shape, pp).load;
          const std::vector<int> places = ep_places(p);
          ASSERT_EQ(load.size(), places.size());
          std::map<int, double> of_place;
          for (size_t rank = 0; rank < load.size(); ++rank)
            EXPECT_EQ(of_place.try_emplace(places[rank], load[rank]).first->second, load[rank])
                << (ep_inside ? "ep" : "esp") << " inside, rank " << rank;
          ASSERT_EQ(of_place.size(), static_cast<size_t>(p.ep));
          double sum = 0;
          for (const auto& [place, rows] : of_place) sum += rows;
          EXPECT_NEAR(sum, p.ep, 1e-12);
          ++drawn;
        }
  EXPECT_EQ(drawn, 100);
}

// Returns the loads of ranks with one expert each, from the most popular one on.
std::vector<double> falling_loads(double zipf, int64_t top_k) {
  LayerCase shape = dropless(12, 2, 1, false);
  shape.layer.top_k = top_k;
  NoiseFlags flags;
  flags.zipf = zipf;
  std::vector<double> load = noise_of(flags, shape).load;
  std::ranges::sort(load, std::greater<>());
  std::vector<double> of_experts;
  for (size_t rank = 0; rank < load.size(); rank += 2) of_experts.push_back(load[rank]);
  return of_experts;
}

std::vector<double> zipf_law(double exponent) {
  std::vector<double> law;
  for (int e = 1; e <= 12; ++e) law.push_back(std::pow(e, -exponent));
  const double sum = std::accumulate(law.begin(), law.end(), 0.0);
  for (double& share : law) share /= sum;
  return law;
}

TEST(NoiseFlags, OneChoiceFollowsTheLaw) {
  for (const double exponent : {0.0, 0.4, 1.1, 3.0, 10.0}) {
    const std::vector<double> found = falling_loads(exponent, 1), law = zipf_law(exponent);
    for (size_t e = 0; e < 12; ++e) EXPECT_NEAR(found[e], 12 * law[e], 1e-11) << exponent;
  }
}

// An expert is the first choice of a token, or the second after another expert.
TEST(NoiseFlags, TheSecondChoiceIsAnotherExpert) {
  for (const double exponent : {0.0, 0.4, 1.1, 3.0, 10.0}) {
    const std::vector<double> found = falling_loads(exponent, 2), law = zipf_law(exponent);
    for (size_t e = 0; e < 12; ++e) {
      double share = law[e];
      for (size_t first = 0; first < 12; ++first)
        if (first != e) {
          double others = 0;
          for (size_t other = 0; other < 12; ++other) others += other != first ? law[other] : 0;
          share += law[first] * law[e] / others;
        }
      EXPECT_NEAR(found[e], 12 * share / 2, 1e-11) << exponent << ", expert " << e;
    }
  }
}

TEST(NoiseFlags, ChoicesAreDrawnOneAfterTheOther) {
  constexpr int kTokens = 100000;
  for (const int64_t k : {3, 7, 11}) {
    std::vector<double> rows(12);
    const std::vector<double> law = zipf_law(1.1);
    for (int token = 0; token < kTokens; ++token) {
      std::vector<double> left = law;
      for (int64_t choice = 0; choice < k; ++choice) {
        double at = random_uniform(5, static_cast<uint64_t>(token), static_cast<uint64_t>(choice)) *
                    std::accumulate(left.begin(), left.end(), 0.0);
        size_t e = 0;
        while (e + 1 < left.size() && (left[e] == 0 || (at -= left[e]) > 0)) ++e;
        left[e] = 0;
        rows[e] += 12.0 / static_cast<double>(k) / kTokens;
      }
    }
    const std::vector<double> found = falling_loads(1.1, k);
    for (size_t e = 0; e < 12; ++e) EXPECT_NEAR(found[e], rows[e], 0.02) << k << " choices, expert " << e;
  }
}

// A token that goes to every expert makes all of them alike, however popular they are.
TEST(NoiseFlags, AllExpertsOfATokenAreAlike) {
  for (const double exponent : {0.4, 3.0, 10.0})
    for (const double load : falling_loads(exponent, 12)) EXPECT_NEAR(load, 1, 1e-11) << exponent;
}

TEST(NoiseFlags, LayersHavePopularExpertsOfTheirOwn) {
  const LayerCase shape = dropless(12, 2, 1, false);
  NoiseFlags flags;
  flags.zipf = 1.1;
  const std::vector<double> one = noise_of(flags, shape).load, four = noise_of(flags, shape, 1, 4).load;
  ASSERT_EQ(four.size(), 4 * one.size());
  EXPECT_EQ(one, std::vector<double>(four.begin(), four.begin() + 24));
  std::set<std::vector<double>> different;
  for (int layer = 0; layer < 4; ++layer)
    different.insert(std::vector<double>(four.begin() + 24L * layer, four.begin() + 24L * (layer + 1)));
  EXPECT_EQ(different.size(), 4U);
}

// Where experts are padded to the largest load, every rank has it.
TEST(NoiseFlags, PaddedExpertsAreAllAsFullAsTheMostPopular) {
  LayerCase shape = dropless(12, 2, 1, false);
  NoiseFlags flags;
  flags.zipf = 1.1;
  const std::vector<double> uneven = noise_of(flags, shape).load;
  shape.rounding = Rounding::tutel;
  EXPECT_EQ(noise_of(flags, shape).load, std::vector<double>(uneven.size(), *std::ranges::max_element(uneven)));
}

TEST(NoiseFlags, WhatMeansNothingIsRefused) {
  NoiseFlags flags;
  flags.samples = 5;
  EXPECT_THROW(check_flags(flags), BadInput) << "all of them alike";
  flags.stragglers = {"3:2"};
  EXPECT_THROW(check_flags(flags), BadInput);
  flags.jitter = 0.1;
  EXPECT_NO_THROW(check_flags(flags));
  flags = {};
  flags.seed = 3;
  EXPECT_THROW(check_flags(flags), BadInput) << "seeds nothing";
  flags.zipf = 1;
  EXPECT_NO_THROW(check_flags(flags));
  EXPECT_NO_THROW(noise_of(flags, dropless(4, 2, 1, false)));
  EXPECT_THROW(noise_of(flags, complete({}, {.nodes = 4, .ranks_per_node = 2}, Rounding::ragged)), BadInput);
  for (const char* gate : {"softmoe", "expert-choice"}) {
    LayerCase even = dropless(4, 2, 1, false);
    even.layer.gate = gate;
    EXPECT_THROW(noise_of(flags, even), BadInput) << gate;
  }
}

// A small cluster, on which stages and groups differ, with or without contention.
Profile small_cluster(uint64_t seed) {
  Profile profile = find_profile("testbed-b");
  profile.nodes = 4;
  profile.ranks_per_node = 2;
  profile.comm.clear();
  for (const Op op : {Op::alltoall, Op::allgather, Op::reducescatter, Op::allreduce, Op::sendrecv})
    for (const Network network : {Network::intra, Network::inter}) {
      CommRow row;
      row.op = op;
      row.network = network;
      row.ranks = 2;
      row.alpha_s = network == Network::inter ? 2e-4 : 4e-5;
      row.beta_s_per_byte = network == Network::inter ? 4e-10 : 1.5e-10;
      profile.comm.push_back(row);
    }
  const auto factor = [&](uint64_t i) { return seed % 2 == 0 ? 1 : 1 + random_uniform(seed, 3, i); };
  profile.contention = {factor(0), factor(1), factor(2), factor(3), factor(4), factor(5)};
  return profile;
}

// Models under every kind of noise at once: as the clockwork of every rank goes, from the same seconds and draws.
TEST(NoiseOfModels, IsTheClockworkOfEveryRank) {
  double worst = 0;
  int replays = 0, slower = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed)
    for (const char* name : {"fsmoe", "lina-baseline", "lina", "tutel"}) {
      const Profile profile = small_cluster(seed);
      commands::Selection selection;
      selection.layer.fields.set(&LayerShape::capacity_factor, std::nullopt);
      selection.layer.fields.set(&LayerShape::experts, 4);
      selection.layer.pp = seed % 3 == 0 ? 2 : 1;
      selection.layer.fields.set(&LayerShape::seq, 256);
      if (seed % 2 == 1) selection.layer.placement = "ep-inside";
      selection.nearest = true;
      commands::ModelFlags flags;
      flags.layers = 2;
      flags.micro_batches = seed % 3 == 1 ? 2 : 1;
      const commands::ChosenModel chosen = commands::chosen_model(flags, selection, profile);
      const LayerPricer pricer(profile, chosen.model.shape, commands::pricing_of(selection));
      const Schedule& schedule = find_schedule(name);
      const int degree = schedule.degrees == DegreePolicy::one ? 1 : 2;
      const DegreeChoice degrees{degree, degree};
      const ModelResult result = ModelSearch().tune(schedule, pricer, chosen.model, degrees);
      NoiseFlags noise{.jitter = 0.2, .stragglers = {"1:1.5", "6:2"}, .zipf = 1.2, .samples = 2, .seed = seed};
      const NoiseRow found = replay_with_noise(noise, pricer, result.plan, result.total_s());
      const int stages = chosen.model.shape.parallel.pp;
      const ranks::Draw draw{*result.plan.structure,          result.plan.shape.parallel,
                             price(pricer, result.plan),      noise_of(noise, result.plan.shape, stages, 2),
                             networks_of(result.plan.groups), profile.contention};
      for (int sample = 0; sample < 2; ++sample) {
        const double expected = ranks::replay(draw, sample).makespan_s;
        const double off = std::abs(found.outcome.makespan_s.at(sample) / expected - 1);
        EXPECT_LE(off, 1e-9) << name << ", seed " << seed;
        worst = std::max(worst, off);
        slower += expected > 1.1 * found.even_s;
        ++replays;
      }
    }
  fmt::print("{} replays of models, {} slower by more than 10 %: worst difference {:.1e}\n", replays, slower, worst);
  EXPECT_GT(slower, replays / 2);
}

}  // namespace
}  // namespace moe::commands
