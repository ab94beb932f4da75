#include "moe/plan/pipeline.h"

#include <algorithm>
#include <array>

#include "moe/base/check.h"
#include "moe/base/registry.h"

namespace moe {
namespace {

constexpr std::array<Named<PipelineOrder>, 2> kOrders{
    {{"gpipe", PipelineOrder::gpipe}, {"1f1b", PipelineOrder::one_f_one_b}}};
static_assert(in_enum_order(kOrders, &Named<PipelineOrder>::value));

std::vector<PipelineStep> steps_of(PipelineOrder order, int micro_batches, int stages, int stage) {
  const int ahead = micro_batches_in_flight(order, micro_batches, stages, stage);
  std::vector<PipelineStep> steps;
  for (int i = 0; i < ahead; ++i) steps.push_back({Phase::forward, stage, i});
  for (int i = 0; i < micro_batches; ++i) {
    steps.push_back({Phase::backward, stage, i});
    if (ahead + i < micro_batches) steps.push_back({Phase::forward, stage, ahead + i});
  }
  return steps;
}

}  // namespace

std::string_view name_of(PipelineOrder order) { return kOrders[static_cast<size_t>(order)].name; }
PipelineOrder pipeline_order_from(std::string_view name, std::string_view where) {
  return find_named(kOrders, name, where).value;
}

std::pair<int, int> layers_of_stage(int layers, int stages, int stage) {
  require<BadInput>(layers >= stages, "layers: found {}, expected at least one for each of {} stages", layers, stages);
  const auto at = [&](int s) { return static_cast<int>(chunk_rows(layers, stages, s).begin); };
  return {at(stage), stage + 1 == stages ? layers : at(stage + 1)};
}

int micro_batches_in_flight(PipelineOrder order, int micro_batches, int stages, int stage) {
  return order == PipelineOrder::gpipe ? micro_batches : std::min(micro_batches, stages - stage);
}

std::vector<PipelineStep> pipeline_steps(PipelineOrder order, int micro_batches, int stages) {
  std::vector<std::vector<PipelineStep>> steps;
  for (int stage = 0; stage < stages; ++stage) steps.push_back(steps_of(order, micro_batches, stages, stage));
  std::vector<size_t> next(steps.size());
  std::vector<std::array<int, 2>> ended(steps.size(), {0, 0});  // forwards, backwards
  const auto ready = [&](const PipelineStep& step) {
    const size_t s = static_cast<size_t>(step.stage);
    if (step.phase == Phase::forward) return s == 0 || ended[s - 1][0] > step.micro_batch;
    return s + 1 == steps.size() || ended[s + 1][1] > step.micro_batch;
  };
  std::vector<PipelineStep> all;
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < steps.size(); ++s) {
      if (next[s] == steps[s].size() || !ready(steps[s][next[s]])) continue;
      all.push_back(steps[s][next[s]++]);
      ++ended[s][static_cast<size_t>(all.back().phase)];
      moved = true;
    }
  }
  return all;
}

}  // namespace moe
