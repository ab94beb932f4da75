#pragma once
// Real runs of a paper's table, read from records: a column beside the simulated one.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "commands/reproduce/fsmoe_reading.h"
#include "commands/shared/record_files.h"
#include "commands/shared/sweep.h"

namespace moe::reproduce {

/// Reads `file`, or if that is empty the runs of the table that are shipped with the program (results/). Throws
/// BadInput for a table without such a column, and like read_files.
commands::FileRun measured_runs(std::string_view table, const std::string& file);
/// Returns the file that measured_runs reads.
std::string measured_file(std::string_view table, const std::string& file);

/// The layers of a testbed's grid under one reading of its f, each with the sound runs of its schedules.
using LayerRuns = std::map<std::string, std::map<std::string, const CaseRecord*>>;
/// Returns the sound runs of a grid's layers, on any cluster.
LayerRuns grid_runs(const commands::FileRun& file, const std::string& grid);
LayerRuns layer_runs(const commands::FileRun& file, Testbed testbed, Capacity capacity);
/// Returns the mean over layers of the ratio of forward + backward; none if no layer ran well under both.
std::optional<double> measured_speedup(const LayerRuns& layers, const std::string& schedule, const std::string& over);
/// Returns the number of layers that ran with r_f != r_b; none if the schedule did not run.
std::optional<double> measured_differing_degrees(const LayerRuns& layers, const std::string& schedule);

/// A model's steps as they were predicted at the time of the run, and as measured; none for schedules that did not run.
struct MeasuredSteps {
  StepSeconds predicted, measured;
  int64_t layers = 0;  // 0: the model did not run there
};
MeasuredSteps measured_steps(const commands::FileRun& file, const ModelSetting& run,
                             const std::vector<std::string>& schedules);

/// Returns the kind of a column: "emulated run" or "run". Throws BadInput for a file that has both.
std::string kind_of_run(const commands::FileRun& file);
/// Returns a description of those runs and their file.
std::string describe_runs(const commands::FileRun& file);

// Sweeps of FSMoE's 1458 layers, one for each reading, shared by all tables.

/// Returns Table 5's schedules in its order.
std::vector<const Schedule*> table5_schedules();

/// The figures of one sweep.
struct SweptReading {
  Reading reading;
  std::vector<commands::ScheduleSummary> schedules;  // in the order of table5_schedules
  const commands::ScheduleSummary& find(std::string_view schedule) const;
};

class SweepStore {
 public:
  const SweptReading& sweep(const Reading& reading);
  /// Sweeps the readings that have no sweep yet, on all cores; the results do not depend on the number of cores.
  void prepare(const std::vector<Reading>& readings);

 private:
  std::map<Reading, SweptReading> swept_;
};

}  // namespace moe::reproduce
