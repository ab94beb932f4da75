// Prints small whole iterations as problems of ordering tasks on lanes, each with what wave's order takes: for a solver
// to beat. Gradients are not summed, so that nothing but the order is left to decide.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "moe/search/degrees.h"
#include "moe/search/wave.h"
#include "moe/simulator/fluid_replay.h"
#include "tests/prices/random_layer.h"

int main() {
  using namespace moe;
  constexpr int kProblems = 50, kLayers = 3;
  int printed = 0;
  for (uint64_t seed = 1; printed < kProblems; ++seed) {
    const random_layer::RandomLayer layer = random_layer::random_layer(seed, seed % 2 == 0);
    const LayerPricer pricer(layer.profile, layer.shape);
    const int most = std::min(2, largest_degree(pricer));
    if (pricer.has(GroupKind::dp)) continue;
    const ModelShape model{layer.shape, kLayers, 1 + static_cast<int>(seed % 2)};
    const int degree = 1 + static_cast<int>(seed / 2) % most;
    const Plan plan =
        wave_plan(pricer, model, kLayers + 1 + static_cast<int>(seed / 4 % 3), {degree, degree, degree, degree}, {100});
    const std::vector<double> seconds = price(pricer, plan);
    nlohmann::json tasks = nlohmann::json::array();
    for (const Task& task : plan.tasks())
      tasks.push_back({{"lane", task.lane}, {"seconds", seconds[task.id]}, {"after", task.after}});
    fmt::print(
        "{}\n",
        nlohmann::json{{"text", layer.text}, {"tasks", tasks}, {"wave", timeline_of(plan, seconds, {}).makespan_s}}
            .dump());
    ++printed;
  }
}
