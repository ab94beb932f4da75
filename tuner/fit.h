#pragma once
// The verb `fit`: makes a cluster profile from the records of `microbench`.
#include <optional>
#include <string>
#include <vector>

#include "moe/base/json.h"
#include "moe/prices/fit.h"
#include "moe/record/record.h"

namespace moe::tuner {

struct FitOptions {
  std::vector<std::string> records{"results/microbench-testbed-b.jsonl"};  // records of one cluster, fitted together
  std::string name;                                                        // name of the profile; empty: CLUSTER-fitted
  std::string out;           // path of the profile; empty: results/NAME.toml
  std::string compute_from;  // cluster whose prices of computations are used if the records have none
  /// Cluster whose ranks and collectives are used, and whose prices of computations if the records have none.
  std::string network_from;
  bool strict = false;  // true: exit code kDoubtful if a row is weak or unusable
  bool json = false;
};

int run_fit(const FitOptions& options);

// Times and errors of a run, from its record.

/// Returns whether the record has a measured time. A record of status `invalid` may have one, which tables show and
/// figures exclude.
bool was_timed(const CaseRecord& record);
/// Returns whether the record's status is ok and it has a measured time. Figures and choices only use such runs.
bool is_sound_run(const CaseRecord& record);

double predicted_s(const CaseRecord& record);
double run_s(const CaseRecord& record);
/// Returns measured time / predicted time - 1.
double error_of(const CaseRecord& record);
/// Returns the slowdown of the cores while the run was timed, relative to their best speed; 1 if it is unknown.
double core_slowdown(const CaseRecord& record);

// A fitted profile, as a table and as a file.

/// Returns one line for each row of the profile: alpha, beta, r^2 of all samples, held-out error (median and worst) and
/// number of excluded samples. If `truth` (the profile that paced an emulated cluster) is not null, the errors of alpha
/// and beta follow. "!" marks a weak
/// or unusable row. Then come the slowdowns, and a line for each warning.
std::string fit_table(const FittedProfile& fitted, const Profile* truth);

/// Returns the rows of the profile, each with the numbers of its line in fit_table and with its warnings.
Json fit_json(const FittedProfile& fitted);

/// Writes the profile atomically (moe/base/files.h) and creates the folders above it.
void save_profile(const Profile& profile, const std::string& path);

}  // namespace moe::tuner
