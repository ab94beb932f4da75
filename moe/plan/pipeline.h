#pragma once
// The order in which the stages of a pipeline run the forwards and backwards of micro-batches.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "moe/plan/plan.h"

namespace moe {

std::string_view name_of(PipelineOrder order);
PipelineOrder pipeline_order_from(std::string_view name, std::string_view where);

/// Returns "1f1b", or "1f1b, 2 virtual stages" for several chunks per stage.
std::string describe_order(PipelineOrder order, int virtual_stages);

/// Returns "first 3 last 1", the numbers of layers that the first and last stage set; empty if neither does.
std::string describe_ends(const StageSplit& split);

/// Throws BadInput naming the field if first_layers and last_layers do not fit the other stages. Several chunks per
/// stage need 1f1b, a number of micro-batches that the stages divide, a number of layers per stage that its chunks
/// divide, and samples that are not cut into parts; otherwise throws BadInput naming `where`.
void check_stages(const StageSplit& split, PipelineOrder order, int micro_batches,
                  std::string_view where = "virtual stages");

/// Returns a chunk's layers, [first, last) (StageSplit). Throws BadInput for fewer layers than chunks.
std::pair<int, int> layers_of_chunk(const StageSplit& split, int chunk);
/// These return the number of a stage's layers, and the layer numbers in ascending order.
int layers_in(const StageSplit& split, int stage);
std::vector<int> layers_of_stage(const StageSplit& split, int stage);
/// Returns the number of layers on the stage with the most.
int max_layers(const StageSplit& split);
/// Returns the layer whose backward is the stage's n-th of a micro-batch; n = 0 is the stage's last layer.
int nth_backward(const StageSplit& split, int stage, int n);
/// Returns the chunk of a layer; the model's ends belong to the chunk of the layer next to them.
int chunk_of_layer(const StageSplit& split, int layer);

/// One stage's forward or backward of one micro-batch, over all layers of a chunk.
struct PipelineStep {
  Phase phase = Phase::forward;
  int chunk = 0, micro_batch = 0;
  int stage(const StageSplit& split) const { return chunk % split.stages; }
  bool operator==(const PipelineStep&) const = default;
};

/// Returns the micro-batch of a stage's last backward.
int last_backward(int micro_batches, const StageSplit& split);
/// Returns the steps of one stage in the order in which it runs them.
std::vector<PipelineStep> steps_of_stage(PipelineOrder order, int micro_batches, const StageSplit& split, int stage);
/// Returns the steps of all stages in the order in which a plan issues them: it keeps the order of each stage, and a
/// step follows the step of the neighbouring chunk that it waits for. Several chunks per stage follow the interleaved
/// 1F1B schedule: micro-batches pass all chunks in groups of `stages`, and stage s runs 2 (stages - s - 1) +
/// (virtual_stages - 1) stages forwards before it alternates backwards and forwards.
std::vector<PipelineStep> pipeline_steps(PipelineOrder order, int micro_batches, const StageSplit& split);

/// Returns the largest number of chunk forwards that a stage has run at any time without having run their backwards.
int passes_in_flight(PipelineOrder order, int micro_batches, const StageSplit& split, int stage);

}  // namespace moe
