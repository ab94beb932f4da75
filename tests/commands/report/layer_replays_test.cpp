// What the page gets of a plan, replayed here from the JSON alone, against the search.
#include "commands/report/layer_replays.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "commands/report/report.h"
#include "tests/prices/random_layer.h"

namespace moe::report {
namespace {

double replayed(const Json& schedule, const Json& plan, const Json& structures) {
  const Json& s = structures.at(plan.at("structure").get<size_t>());
  std::vector<double> lane_end(s.at("lanes").size()), end;
  for (size_t task = 0; task < s.at("lane").size(); ++task) {
    double& lane = lane_end.at(s["lane"][task].get<size_t>());
    double start = lane;
    for (const Json& other : s["after"][task]) start = std::max(start, end.at(other.get<size_t>()));
    const size_t price = plan.at("prices").at(task).get<size_t>();
    const Json& of = schedule.at("prices").at(price);
    const Json& work = schedule.at("works").at(of.at(0).get<size_t>());
    lane = start + work.at(4).get<double>() + of.at(2).get<double>();
    end.push_back(lane);
  }
  return *std::ranges::max_element(lane_end);
}

// Under measured curves too, whose prices are no lines.
TEST(LayerReplays, AreWhatTheSearchReplays) {
  int plans = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const auto layer = random_layer::random_layer(seed, seed % 2 == 0);
    const Profile growing = without_startup_seconds(layer.profile);
    const LayerPricer pricer(layer.profile, layer.shape), growing_pricer(growing, layer.shape);
    LayerReplays replays;
    LayerSearch search;
    for (const char* name : {"ds-moe", "tutel", "fsmoe", "pipemoe+lina"}) {
      const Schedule& schedule = find_schedule(name);
      Json json;
      LayerResult expected;
      try {
        expected = search.tune(schedule, pricer);
        json = replays.schedule_json(schedule, pricer, growing_pricer,
                                     {expected.decision.degree_forward, expected.decision.degree_backward});
      } catch (const Unsupported&) {
        continue;
      }
      EXPECT_NEAR(json["forward"][0]["seconds"].get<double>() / expected.forward_s, 1, 1e-8) << layer.text;
      EXPECT_NEAR(json["backward"][0]["seconds"].get<double>() / expected.backward_s, 1, 1e-8) << layer.text;
      for (const char* phase : {"forward", "backward"})
        for (const Json& plan : json[phase]) {
          const double seconds = plan.at("seconds").get<double>();
          EXPECT_NEAR(replayed(json, plan, replays.structures()) / seconds, 1, 1e-8) << name << ", " << layer.text;
          ++plans;
        }
    }
  }
  EXPECT_GT(plans, 1000);
}

TEST(WithoutStarts, LeavesWhatGrowsWithSize) {
  const auto layer = random_layer::random_layer(3);
  const Profile growing = without_startup_seconds(layer.profile);
  const LayerPricer pricer(growing, layer.shape);
  EXPECT_EQ(pricer.gradient_seconds(0), 0);
  EXPECT_NEAR(pricer.gradient_seconds(2048), 2 * pricer.gradient_seconds(1024), 1e-15);
}

}  // namespace
}  // namespace moe::report
