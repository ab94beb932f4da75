// Writes random layers' plans with what the simulator makes of them, a line of JSON each: what the page's replay is
// compared with.
#include <cstdio>

#include "moe/cost/simulator.h"
#include "report/layer_replays.h"
#include "tests/cost/random_layer.h"
#include "tests/schedule/any_decision.h"

namespace {

constexpr int kPlans = 1000;

moe::Json line_of(const moe::random_layer::RandomLayer& layer, uint64_t seed) {
  const auto schedules = moe::any_decision::fitting(layer.shape);
  const moe::Schedule& schedule = *schedules[seed % schedules.size()];
  const moe::Decision decision = moe::any_decision::any_decision(schedule, layer.shape, seed, 16);
  const moe::Plan plan = moe::build_plan(schedule, layer.shape, decision);
  const std::vector<double> seconds = moe::price(moe::LayerPricer(layer.profile, layer.shape), plan);
  const moe::Timeline timeline = moe::simulate(*plan.structure, seconds);
  return {{"text", layer.text},       {"structure", moe::report::structure_json(*plan.structure)},
          {"seconds", seconds},       {"start_s", timeline.start_s},
          {"end_s", timeline.end_s},  {"makespan_s", timeline.makespan_s},
          {"schedule", schedule.name}};
}

}  // namespace

int main() {
  int written = 0;
  for (uint64_t seed = 1; written < kPlans; ++seed) {
    try {
      fmt::print("{}\n", line_of(moe::random_layer::random_layer(seed), seed).dump());
      ++written;
    } catch (const moe::Unsupported&) {  // this schedule has no price on this layer
    }
  }
  return 0;
}
