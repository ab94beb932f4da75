#pragma once
// The order of a pipeline: which stage runs which micro-batch's forward or backward, and after what.
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "moe/plan/plan.h"

namespace moe {

std::string_view name_of(PipelineOrder order);
PipelineOrder pipeline_order_from(std::string_view name, std::string_view where);

/// One stage's forward or backward of one micro-batch, over all its layers.
struct PipelineStep {
  Phase phase = Phase::forward;
  int stage = 0, micro_batch = 0;
  bool operator==(const PipelineStep&) const = default;
};

/// Returns all steps in the order in which a plan issues them: each stage's own order, and each step behind that of the
/// neighbouring stage that it waits for.
std::vector<PipelineStep> pipeline_steps(PipelineOrder order, int micro_batches, int stages);

/// Returns a stage's layers, [first, last): the first stages have one more where the stages don't divide the layers.
/// Throws BadInput for fewer layers than stages.
std::pair<int, int> layers_of_stage(int layers, int stages, int stage);

/// Returns how many micro-batches at most a stage has run forward and not yet backward.
int micro_batches_in_flight(PipelineOrder order, int micro_batches, int stages, int stage);

}  // namespace moe
