#pragma once
// Files of records, and of what modelbench printed.
#include <string>
#include <vector>

#include "moe/record/reader.h"
#include "moe/record/record.h"
#include "moe/schedule/model_plan.h"
#include "moe/search/layer_search.h"

namespace moe::commands {

/// A run of a file that has a case.
struct FileRun {
  std::string file;
  Run run;
  size_t earlier = 0;  // runs with cases that stand before it in the file
  bool last = true;    // of the file's runs with cases
};

/// Reads the last run with a case of each file, packed by gzip or not. A name that ends in .json or .json.gz holds what
/// `modelbench --json` printed. Throws BadInput "FILE:LINE: ..." as read_runs does, and for a file in which no run has
/// a case.
std::vector<FileRun> read_files(const std::vector<std::string>& files);
/// Reads likewise at most `most` of each file's last runs with cases, the earliest first.
std::vector<FileRun> read_last_runs(const std::vector<std::string>& files, size_t most);

// A layer or model and its degrees as parameters of records, and back.

/// Returns the parameters of a case; they have those sizes of `degrees` that are not the usual ones.
Fields parameters_of(const LayerCase& shape, const std::string& cluster, const std::string& layer,
                     const DegreeChoice& degrees = {});
/// Returns a model's parameters: its layer's, with "layers" and "micro_batches"; of several micro-batches their order,
/// "pipeline".
Fields parameters_of(const ModelShape& model, const std::string& cluster, const std::string& layer,
                     const DegreeChoice& degrees = {});

/// Returns the sizes of a layer's groups, as parameters have them, and what its ranks do not keep.
Fields group_parameters(const ParallelShape& parallel);

/// Returns the layer that parameters say. `at` begins errors: the record's file and line. Throws BadInput.
LayerCase shape_of(const Fields& parameters, const std::string& at);
/// Returns the model that parameters say, or its layer as a model of one, with its ends if they are known. Throws
/// BadInput.
ModelShape model_of(const Fields& parameters, const std::string& at);
/// Returns the degrees of a record, and the sizes that it was planned with. Throws BadInput.
DegreeChoice degrees_of(const CaseRecord& record);

}  // namespace moe::commands
