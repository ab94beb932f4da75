// Writes random layers' plans with what the simulator makes of them, a line of JSON each: what the page's replay is
// compared with. Every plan twice: without what lanes lose side by side, and with it.
#include <cstdio>

#include "commands/report/layer_replays.h"
#include "moe/simulator/fluid_replay.h"
#include "tests/prices/random_layer.h"
#include "tests/schedule/any_decision.h"

namespace {

constexpr int kPlans = 1000;

moe::Json networks_json(const moe::Plan& plan) {
  moe::Json networks(plan.structure->tasks.size(), "none");
  for (const moe::Task& task : plan.tasks()) networks[task.id] = name_of(plan.groups[task.group].network);
  return networks;
}

moe::Json line_of(const moe::random_layer::RandomLayer& layer, uint64_t seed, const moe::Contention& contention) {
  const auto schedules = moe::any_decision::fitting(layer.shape);
  const moe::Schedule& schedule = *schedules[seed % schedules.size()];
  const moe::Decision decision = moe::any_decision::any_decision(schedule, layer.shape, seed, 16);
  const moe::Plan plan = moe::build_plan(schedule, layer.shape, decision);
  const std::vector<double> seconds = moe::price(moe::LayerPricer(layer.profile, layer.shape), plan);
  const moe::Timeline timeline = moe::timeline_of(plan, seconds, contention);
  return {{"text", layer.text},
          {"structure", moe::report::structure_json(*plan.structure)},
          {"seconds", seconds},
          {"start_s", timeline.start_s},
          {"end_s", timeline.end_s},
          {"makespan_s", timeline.makespan_s},
          {"schedule", schedule.name},
          {"networks", networks_json(plan)},
          {"contention", moe::report::contention_json(contention)}};
}

}  // namespace

int main() {
  int written = 0;
  for (uint64_t seed = 1; written < kPlans; ++seed) {
    try {
      const moe::random_layer::RandomLayer layer = moe::random_layer::random_layer(seed);
      moe::Contention slowed = moe::random_layer::contended(layer, seed).profile.contention;
      for (const moe::ContentionPair& pair : moe::contention_pairs())
        if (seed % 3 == 0) pair.stall_s(slowed) = 1e-6 * static_cast<double>(1 + seed % 7);
      for (const moe::Contention& contention : {moe::Contention{}, slowed})
        fmt::print("{}\n", line_of(layer, seed, contention).dump());
      ++written;
    } catch (const moe::Unsupported&) {  // this schedule has no price on this layer
    }
  }
  return 0;
}
