#pragma once
// Planned layers as records.
#include <string>
#include <vector>

#include "moe/record/writer.h"
#include "verbs/recorded_layer.h"
#include "verbs/sweep.h"

namespace moe::verbs {

/// Returns `out`, or results/VERB-CLUSTER.jsonl where the user named no file.
std::string records_path(const std::string& out, const std::string& verb, const std::string& cluster);

/// Returns the record of a plan that nothing ran: schedule, degrees, prediction and bound.
CaseRecord planned_record(std::string key, const LayerResult& result);

/// Appends one record for each layer and schedule, but those that the writer has already; those of a layer are one
/// line.
void append_rows(RecordWriter& writer, const std::vector<SweepRow>& rows, const std::vector<const Schedule*>& schedules,
                 const std::string& cluster, const DegreeChoice& degrees = {});

}  // namespace moe::verbs
