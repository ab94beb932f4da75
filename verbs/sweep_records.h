#pragma once
// Planned layers as records.
#include <string>
#include <vector>

#include "moe/record/writer.h"
#include "verbs/sweep.h"

namespace moe {

/// results/VERB-CLUSTER.jsonl, where the user named no file.
std::string records_path(const std::string& out, const std::string& verb, const std::string& cluster);

/// Parameters of a case, for its record; of `degrees` the sizes that are not the usual ones.
Fields parameters_of(const LayerCase& shape, const std::string& cluster, const std::string& layer,
                     const DegreeChoice& degrees = {});

/// One record a layer and schedule, but those the writer has already; those of a layer are one line.
void append_rows(RecordWriter& writer, const std::vector<SweepRow>& rows, const std::vector<const Schedule*>& schedules,
                 const std::string& cluster, const DegreeChoice& degrees = {});

}  // namespace moe
