#pragma once
// Measures what plans are made of: a layer's own tasks, each run alone, at the sizes that degrees cut them to.
#include <array>
#include <vector>

#include "commands/shared/run/layer_run.h"
#include "moe/record/writer.h"

namespace moe::commands {

/// The degrees that a layer is cut by to see what its tasks take.
inline constexpr std::array kProfiledDegrees{1, 4};

inline constexpr int kProfiledLayers = 6;  // of a grid

/// Returns some of the layers, as different as pick_layers finds them, each as a job whose tasks show what the tasks of
/// all layers take: one layer alone; of a model two with its ends and its step, beside a dense layer if it has any. Of
/// pipeline stages, all ranks run the layers as replicas of one stage.
std::vector<LayerJob> profiled(const std::vector<LayerJob>& layers);

/// Returns the rows of collectives that measure_tasks leaves records for, without prices.
std::vector<CommRow> rows_of_tasks(const LayerJob& job);

/// Runs the job's layer, of every flow that its schedules have, at each of those degrees one task after the other on
/// all ranks together (rank_run.h), verified first. Returns a record of every kind of task in each phase: a computation
/// by its terms (op `task`), a collective by its op, network, group size and bytes; median_s is the mean over chunks of
/// each one's median over passes (overlap.h: in_step_seconds), its samples are these medians. What `writer` has is
/// taken from there. Every process of the target calls it, all get the same. A layer that can't run, or that the job
/// has no schedule for, leaves none.
std::vector<CaseRecord> measure_tasks(const Target& target, const LayerJob& job, RecordWriter& writer);

}  // namespace moe::commands
