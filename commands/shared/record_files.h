#pragma once
// Files of records, and of modelbench's JSON output.
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
  size_t earlier = 0;  // number of earlier runs in the file that have cases
  bool last = true;    // true for the last run of the file that has cases
};

/// Reads the last run with a case of each file, compressed with gzip or not. A file whose name ends in .json or
/// .json.gz has the output of `modelbench --json`. Throws BadInput "FILE:LINE: ..." like read_runs, and for a file in
/// which no run has a case.
std::vector<FileRun> read_files(const std::vector<std::string>& files);
/// Reads at most `most` of each file's last runs with cases in the same way, the earliest first.
std::vector<FileRun> read_last_runs(const std::vector<std::string>& files, size_t most);

// A layer or model and its degrees as parameters of records, and back.

/// Returns the parameters of a case; sizes of `degrees` are only included if they differ from the defaults.
Fields parameters_of(const LayerCase& shape, const std::string& cluster, const std::string& layer,
                     const DegreeChoice& degrees = {});
/// Returns a model's parameters: its layer's, with "layers" and "micro_batches", and, for several micro-batches, their
/// order "pipeline".
Fields parameters_of(const ModelShape& model, const std::string& cluster, const std::string& layer,
                     const DegreeChoice& degrees = {});

/// Returns the sizes of a layer's groups as parameters, and what its ranks do not keep.
Fields group_parameters(const ParallelShape& parallel);

/// Returns the layer of the parameters. `at`: the record's file and line, with which errors begin. Throws BadInput.
LayerCase shape_of(const Fields& parameters, const std::string& at);
/// Returns the model of the parameters, or their layer as a model with one layer, with its ends if they are known.
/// Throws BadInput.
ModelShape model_of(const Fields& parameters, const std::string& at);
/// Returns the degrees of a record, and the sizes with which it was planned. Throws BadInput.
DegreeChoice degrees_of(const CaseRecord& record);

}  // namespace moe::commands
