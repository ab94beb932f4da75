#include "moe/measure/layers/weight_files.h"

#include <filesystem>

#include "moe/base/log.h"

namespace moe::measure {
namespace {

Gpt2Shape gpt2_shape(const Plan& plan) { return {plan.shape.layer, plan.layers, plan.vocabulary, plan.step.tied}; }

}  // namespace

void take_weights(const std::string& file, World& world, const std::vector<RankRun*>& ranks, const Plan& plan) {
  world.run([&](int rank) {
    RankRun& mine = *ranks[static_cast<size_t>(rank - world.here().front())];
    read_gpt2(file, gpt2_shape(plan), mine.model()->parameters());
  });
}

void save_weights(const std::string& file, World& world, const std::vector<RankRun*>& ranks, const Plan& plan) {
  const std::string parts = file + ".parts";
  std::vector<std::string> written;
  for (size_t i = 0; i < ranks.size(); ++i) {
    std::vector<ShardedTensor> weights;
    for (const Parameter& p : ranks[i]->model()->parameters()) weights.push_back({p.name, p.axes, p.value});
    write_checkpoint(parts, 0, world.here()[i], weights);
    written.emplace_back();
  }
  gather(world, written);  // all have written then
  if (!leads(world)) return;
  write_gpt2(file, gpt2_shape(plan), complete_checkpoint(parts, 0, world.ranks(), ""));
  std::error_code error;
  std::filesystem::remove_all(parts, error);
  if (error) log_warning(fmt::format("{}: cannot be removed ({})", parts, error.message()));
}

}  // namespace moe::measure
