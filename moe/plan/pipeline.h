#pragma once
// The order of a pipeline: which stage runs the forward or backward of which micro-batch, and after which steps.
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

/// Returns "first 3 last 1", the layers of stages that have their own number; empty if none has.
std::string describe_ends(const StageSplit& split);

/// Throws BadInput naming the field if the first and the last stage leave no layers to the others, or too many. Throws
/// BadInput naming `where` unless a split with several chunks per stage has an order of passes. It needs 1f1b,
/// micro-batches that the stages divide, layers of each stage that its chunks divide, and samples that are not cut into
/// parts.
void check_stages(const StageSplit& split, PipelineOrder order, int micro_batches,
                  std::string_view where = "virtual stages");

/// Returns a chunk's layers, [first, last) (StageSplit). Throws BadInput for fewer layers than chunks.
std::pair<int, int> layers_of_chunk(const StageSplit& split, int chunk);
/// These return the number of a stage's layers, and the layers in ascending order.
int layers_in(const StageSplit& split, int stage);
std::vector<int> layers_of_stage(const StageSplit& split, int stage);
/// Returns the layers of the stage that has most.
int most_layers(const StageSplit& split);
/// Returns the layer of a stage's n-th backward of a micro-batch, the last layer for n = 0.
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
/// Returns the steps of one stage in its order.
std::vector<PipelineStep> steps_of_stage(PipelineOrder order, int micro_batches, const StageSplit& split, int stage);
/// Returns all steps in the order in which a plan issues them: each stage's own order, with each step after the step of
/// the neighbouring chunk that it waits for. Several chunks per stage follow the interleaved 1F1B schedule:
/// micro-batches in groups of `stages`, each group through all chunks; stage s runs 2 (stages - s - 1) +
/// (virtual_stages - 1) stages forwards before it alternates.
std::vector<PipelineStep> pipeline_steps(PipelineOrder order, int micro_batches, const StageSplit& split);

/// Returns the largest number of forwards of its chunks that a stage has run and whose backwards it has not yet run.
int passes_in_flight(PipelineOrder order, int micro_batches, const StageSplit& split, int stage);

}  // namespace moe
