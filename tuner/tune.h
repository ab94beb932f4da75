#pragma once
// The verb `tune`, without its real runs: a grid swept on a profile, its table, its records.
#include "moe/plan/grid.h"
#include "moe/record/writer.h"
#include "tuner/sweep.h"
#include "tuner/tune_options.h"

namespace moe {

/// The grid asked for, or the first whole one of configs/grids that names this cluster as its own.
Grid grid_of(const Selection& selection, const std::string& cluster);

/// results/VERB-CLUSTER.jsonl, where the user named no file.
std::string records_path(const std::string& out, const std::string& verb, const std::string& cluster);

/// Parameters of a case, for its record.
Fields parameters_of(const Case& shape, const std::string& cluster, const std::string& layer);

/// One record a layer and schedule, but those the writer has already; those of a layer are one line.
void append_rows(RecordWriter& writer, const std::vector<SweepRow>& rows, const std::vector<const Schedule*>& schedules,
                 const std::string& cluster);

/// Mean speedups over tutel beside the paper's, degrees, efficiency, and what has to be known of them.
std::string sweep_report(const std::vector<SweepRow>& rows, const std::vector<const Schedule*>& schedules,
                         const Grid& grid, const std::string& cluster);

/// `tune --no-verify`: plans on the profile as it stands.
int run_planned_tune(const TuneOptions& options);

}  // namespace moe
