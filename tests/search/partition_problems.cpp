// Prints random models with our partitions of their gradients as JSON, for oracle/partition_de.py.
#include <cstdio>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/search/partition_random.h"

namespace {

nlohmann::json slices_of(const moe::Partition& partition) {
  nlohmann::json slices = nlohmann::json::array();
  for (const moe::LayerSlices& s : partition.layers) slices.push_back({s.moe_bytes, s.dense_bytes});
  return {{"slices", slices}, {"tail", partition.tail_bytes}, {"seconds", partition.seconds}};
}

nlohmann::json layers_of(const moe::partition_random::RandomModel& model) {
  nlohmann::json layers = nlohmann::json::array();
  for (size_t i = 0; i < model.layers.size(); ++i) {
    nlohmann::json degrees = nlohmann::json::array();
    for (const auto& degree : model.layers[i].degrees) degrees.push_back({degree.alone_s, degree.beside_s});
    layers.push_back({{"made", model.problem.layers[i].made_bytes},
                      {"dense_s", model.layers[i].dense_s},
                      {"degrees", degrees},
                      {"moe_window_s", model.problem.layers[i].moe_window_s}});
  }
  return layers;
}

}  // namespace

int main() {
  constexpr uint64_t kProblems = 200;
  nlohmann::json problems = nlohmann::json::array();
  for (uint64_t seed = 1001; problems.size() < kProblems; ++seed) {
    const auto model = moe::partition_random::random_model(seed, {.layers = 3 + static_cast<int>(seed % 4)});
    const moe::Partition first = moe::partition_step1(model->problem);
    const moe::Partition both = moe::partition_step2(model->problem, first);
    if (both.evaluations <= 2 * static_cast<int64_t>(model->layers.size())) continue;  // step 2 has nothing to choose
    problems.push_back({{"text", model->text},
                        {"alpha_s", model->alpha_s},
                        {"beta_s", model->beta_s},
                        {"waiting", model->problem.waiting_bytes},
                        {"layers", layers_of(*model)},
                        {"step1", slices_of(first)},
                        {"step2", slices_of(both)},
                        {"exact", slices_of(moe::partition_exact(model->problem))},
                        {"grain", moe::kMiB}});
  }
  fmt::print("{}\n", nlohmann::json{{"problems", problems}}.dump());
}
