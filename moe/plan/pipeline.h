#pragma once
// The order of a pipeline: which stage runs which micro-batch's forward or backward, and after what.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "moe/plan/plan.h"

namespace moe {

std::string_view name_of(PipelineOrder order);
PipelineOrder pipeline_order_from(std::string_view name, std::string_view where);

/// Returns "1f1b", or of several chunks a stage "1f1b, 2 virtual stages".
std::string describe_order(PipelineOrder order, int virtual_stages);

/// Throws BadInput naming `where` unless a split with several chunks a stage has an order of passes: 1f1b, with
/// micro-batches that the stages divide, layers that the chunks divide and whole samples.
void check_virtual_stages(const StageSplit& split, PipelineOrder order, int micro_batches,
                          std::string_view where = "virtual stages");

/// Returns a chunk's layers, [first, last): the first chunks have one more where the chunks don't divide the layers.
/// Throws BadInput for fewer layers than chunks.
std::pair<int, int> layers_of_chunk(const StageSplit& split, int chunk);
/// These return how many layers a stage has, and which, ascending.
int layers_in(const StageSplit& split, int stage);
std::vector<int> layers_of_stage(const StageSplit& split, int stage);
/// Returns the layer of a stage's n-th backward of a micro-batch; its last layer has the first.
int nth_backward(const StageSplit& split, int stage, int n);
/// Returns the chunk of a layer; what is before the first layer or behind the last one belongs to the chunk beside it.
int chunk_of_layer(const StageSplit& split, int layer);

/// One stage's forward or backward of one micro-batch, over all layers of a chunk.
struct PipelineStep {
  Phase phase = Phase::forward;
  int chunk = 0, micro_batch = 0;
  int stage(const StageSplit& split) const { return chunk % split.stages; }
  bool operator==(const PipelineStep&) const = default;
};

/// Returns the micro-batch whose backward is a stage's last one.
int last_backward(int micro_batches, const StageSplit& split);
/// Returns one stage's steps in its order.
std::vector<PipelineStep> steps_of_stage(PipelineOrder order, int micro_batches, const StageSplit& split, int stage);
/// Returns all steps in the order in which a plan issues them: each stage's own order, and each step behind that of the
/// neighbouring chunk that it waits for. With several chunks a stage the order is the interleaved 1F1B schedule:
/// micro-batches in groups of as many as there are stages, each group through all chunks; stage s runs
/// 2 (stages - s - 1) + (virtual_stages - 1) stages forwards before it alternates.
std::vector<PipelineStep> pipeline_steps(PipelineOrder order, int micro_batches, const StageSplit& split);

/// Returns how many forwards of its chunks at most a stage has run whose backwards it has not.
int passes_in_flight(PipelineOrder order, int micro_batches, const StageSplit& split, int stage);

}  // namespace moe
