#pragma once
// Measures a layer's tasks, each run alone, at the sizes that they have under several degrees.
#include <array>
#include <vector>

#include "commands/shared/run/layer_run.h"
#include "moe/record/writer.h"

namespace moe::commands {

/// The degrees at which a layer's tasks are measured.
inline constexpr std::array kProfiledDegrees{1, 4};

inline constexpr int kProfiledLayers = 6;  // number of a grid's layers whose tasks are measured

/// Returns jobs for the layers that pick_layers picks as most different, whose tasks represent those of all layers. A
/// job has one layer alone; for a model, it has two layers with the model's ends and step, and a dense layer if the
/// model has one. Instead of pipeline stages, all ranks run the layers as replicas of one stage.
std::vector<LayerJob> profiled(const std::vector<LayerJob>& layers);

/// Returns the rows, without prices, of the collectives that measure_tasks records.
std::vector<CommRow> comm_rows_of_tasks(const LayerJob& job);

/// Verifies the job's layer under every flow of its schedules, then runs it at each of kProfiledDegrees, one task after
/// the other on all ranks together (rank_run.h). Returns a record of every kind of task in each phase: a computation
/// with its terms (op `task`), a collective with its op, network, group size and bytes. The samples are the medians
/// over passes of each chunk (overlap.h: lockstep_seconds), and median_s is their mean. Records that `writer` has are
/// not measured again. Every process of the target has to call it, and all get the same. Returns no records for a layer
/// that cannot run, or a job without a schedule.
std::vector<CaseRecord> measure_tasks(const Target& target, const LayerJob& job, RecordWriter& writer);

}  // namespace moe::commands
