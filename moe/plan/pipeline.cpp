#include "moe/plan/pipeline.h"

#include <algorithm>

#include "moe/base/check.h"
#include "moe/base/enum_array.h"
#include "moe/base/registry.h"

namespace moe {
namespace {

constexpr EnumArray<PipelineOrder, Named<PipelineOrder>, 2> kOrders{
    {{{"gpipe", PipelineOrder::gpipe}, {"1f1b", PipelineOrder::one_f_one_b}}}};
static_assert(is_in_enum_order(kOrders, &Named<PipelineOrder>::value));

// Returns the micro-batch of the n-th backward. The parts of a sample run their backwards in reverse order. The
// function is its own inverse: it also returns the position of micro-batch n's backward.
int nth_backward_part(const StageSplit& split, int n) {
  return n / split.parts * split.parts + split.parts - 1 - n % split.parts;
}

// Returns the stage's chunk and the micro-batch of a stage's n-th pass in a phase. For backwards, the chunk is counted
// from the last.
std::pair<int, int> nth_pass(const StageSplit& split, Phase phase, int n) {
  if (split.virtual_stages == 1) return {0, phase == Phase::forward ? n : nth_backward_part(split, n)};
  return {n % split.chunks() / split.stages, n / split.chunks() * split.stages + n % split.stages};
}

// Returns the first layer of a stage if there is one chunk per stage and first or last stage have their own number of
// layers (has_own_ends). For the stage after the last one, returns the number of layers.
int first_layer_of(const StageSplit& split, int stage) {
  if (stage == 0) return 0;
  if (stage == split.stages) return split.layers;
  const StageSplit::MiddleStages others = split.middle_stages();
  const int earlier = stage - others.first;
  if (earlier >= others.stages) return split.layers - split.last_layers;
  return split.first_layers + static_cast<int>(chunk_rows(others.layers, others.stages, earlier).begin);
}

// Throws if first_layers and last_layers leave no layers for the other stages, or leave layers but no stage for them.
void check_ends(const StageSplit& split) {
  const int first = split.first_layers, last = split.last_layers, stages = split.stages;
  if (first == 0 && last == 0) return;
  const char* field = first == 0 ? "last-stage-layers" : "first-stage-layers";
  require<BadInput>(stages > 1, "{}: found {} on one pipeline stage, expected several stages", field, first + last);
  const StageSplit::MiddleStages others = split.middle_stages();
  const std::string found = first > 0 && last > 0 ? fmt::format("{} beside last-stage-layers {}", first, last)
                                                  : fmt::format("{}", first + last);
  require<BadInput>(others.stages > 0 || others.layers == 0,
                    "{}: found {} of {} layers over {} stages, expected all layers on the two", field, found,
                    split.layers, stages);
  require<BadInput>(others.layers >= others.stages,
                    "{}: found {} of {} layers over {} stages, expected at least one layer on each of the others",
                    field, found, split.layers, stages);
}

}  // namespace

std::string_view name_of(PipelineOrder order) { return kOrders[order].name; }
PipelineOrder pipeline_order_from(std::string_view name, std::string_view where) {
  return find_named(kOrders, name, where).value;
}

std::string describe_order(PipelineOrder order, int virtual_stages) {
  const std::string_view name = name_of(order);
  return virtual_stages == 1 ? std::string(name) : fmt::format("{}, {} virtual stages", name, virtual_stages);
}

std::string describe_ends(const StageSplit& split) {
  if (!split.has_own_ends()) return "";
  const std::string first = split.first_layers > 0 ? fmt::format("first {}", split.first_layers) : "";
  const std::string last = split.last_layers > 0 ? fmt::format("last {}", split.last_layers) : "";
  return first + (first.empty() || last.empty() ? "" : " ") + last;
}

void check_stages(const StageSplit& split, PipelineOrder order, int micro_batches, std::string_view where) {
  check_ends(split);
  const int chunks = split.virtual_stages, stages = split.stages;
  if (chunks == 1) return;
  require<BadInput>(chunks > 0, "{}: found {}, expected at least 1", where, chunks);
  require<BadInput>(order == PipelineOrder::one_f_one_b, "{}: found {} with the order {}, expected 1f1b", where, chunks,
                    name_of(order));
  require<BadInput>(micro_batches % stages == 0,
                    "{}: found {} with {} micro-batches over {} stages, expected a multiple of {} micro-batches", where,
                    chunks, micro_batches, stages, stages);
  require<BadInput>(split.parts == 1, "{}: found {} with samples in {} parts, expected one part", where, chunks,
                    split.parts);
  require<BadInput>(split.has_own_ends() || split.layers % split.chunks() == 0,
                    "{}: found {} with {} layers over {} stages, expected a multiple of {} layers", where, chunks,
                    split.layers, stages, split.chunks());
  StageSplit whole = split;
  whole.virtual_stages = 1;
  for (int stage = 0; stage < stages; ++stage)
    require<BadInput>(layers_in(whole, stage) % chunks == 0,
                      "{}: found {} with {} layers on stage {}, expected a multiple of {} layers", where, chunks,
                      layers_in(whole, stage), stage, chunks);
}

std::pair<int, int> layers_of_chunk(const StageSplit& split, int chunk) {
  const int layers = split.layers, chunks = split.chunks();
  if (split.has_own_ends()) {
    const int round = chunk / split.stages, stage = chunk % split.stages;
    const auto at = [&](int s) { return (round * layers + first_layer_of(split, s)) / split.virtual_stages; };
    return {at(stage), at(stage + 1)};
  }
  require<BadInput>(layers >= chunks, "layers: found {}, expected at least one for each of {} stages", layers, chunks);
  const auto at = [&](int c) { return static_cast<int>(chunk_rows(layers, chunks, c).begin); };
  return {at(chunk), chunk + 1 == chunks ? layers : at(chunk + 1)};
}

int layers_in(const StageSplit& split, int stage) {
  int count = 0;
  for (int chunk = stage; chunk < split.chunks(); chunk += split.stages) {
    const auto [first, last] = layers_of_chunk(split, chunk);
    count += last - first;
  }
  return count;
}

int max_layers(const StageSplit& split) {
  int most = 0;
  for (int stage = 0; stage < split.stages; ++stage) most = std::max(most, layers_in(split, stage));
  return most;
}

std::vector<int> layers_of_stage(const StageSplit& split, int stage) {
  std::vector<int> layers;
  for (int chunk = stage; chunk < split.chunks(); chunk += split.stages) {
    const auto [first, last] = layers_of_chunk(split, chunk);
    for (int layer = first; layer < last; ++layer) layers.push_back(layer);
  }
  return layers;
}

int nth_backward(const StageSplit& split, int stage, int n) {
  const auto [first, last] = layers_of_chunk(split, stage);  // all chunks of a stage have the same number of layers
  const int chunk = stage + (split.virtual_stages - 1 - n / (last - first)) * split.stages;
  return layers_of_chunk(split, chunk).second - 1 - n % (last - first);
}

int chunk_of_layer(const StageSplit& split, int layer) {
  int chunk = 0;
  while (chunk + 1 < split.chunks() && layer >= layers_of_chunk(split, chunk).second) ++chunk;
  return chunk;
}

int passes_in_flight(PipelineOrder order, int micro_batches, const StageSplit& split, int stage) {
  const int passes = micro_batches * split.virtual_stages, behind = split.stages - stage - 1;
  if (order == PipelineOrder::gpipe) return passes;
  if (split.virtual_stages == 1) return std::min(passes, behind + split.parts);
  return std::min(passes, 2 * behind + (split.virtual_stages - 1) * split.stages + 1);
}

int last_backward(int micro_batches, const StageSplit& split) { return nth_backward_part(split, micro_batches - 1); }

std::vector<PipelineStep> steps_of_stage(PipelineOrder order, int micro_batches, const StageSplit& split, int stage) {
  const int ahead = passes_in_flight(order, micro_batches, split, stage), passes = micro_batches * split.virtual_stages;
  std::vector<PipelineStep> steps;
  const auto add = [&](Phase phase, int n) {
    const auto [nth, micro_batch] = nth_pass(split, phase, n);
    const int own = phase == Phase::forward ? nth : split.virtual_stages - 1 - nth;
    steps.push_back({phase, own * split.stages + stage, micro_batch});
  };
  for (int i = 0; i < ahead; ++i) add(Phase::forward, i);
  for (int i = 0; i < passes; ++i) {
    add(Phase::backward, i);
    if (ahead + i < passes) add(Phase::forward, ahead + i);
  }
  return steps;
}

std::vector<PipelineStep> pipeline_steps(PipelineOrder order, int micro_batches, const StageSplit& split) {
  std::vector<std::vector<PipelineStep>> steps;
  for (int stage = 0; stage < split.stages; ++stage)
    steps.push_back(steps_of_stage(order, micro_batches, split, stage));
  std::vector<size_t> next(steps.size());
  std::vector<EnumArray<Phase, int, 2>> ended(split.chunks(), {0, 0});  // by chunk: forwards and backwards that ended
  const auto ready = [&](const PipelineStep& step) {
    const size_t c = static_cast<size_t>(step.chunk);
    if (step.phase == Phase::forward) return c == 0 || ended[c - 1][0] > step.micro_batch;
    return c + 1 == ended.size() || ended[c + 1][1] > nth_backward_part(split, step.micro_batch);
  };
  std::vector<PipelineStep> all;
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < steps.size(); ++s) {
      if (next[s] == steps[s].size() || !ready(steps[s][next[s]])) continue;
      all.push_back(steps[s][next[s]++]);
      ++ended[all.back().chunk][all.back().phase];
      moved = true;
    }
  }
  return all;
}

}  // namespace moe
