#pragma once
// The verb `fit`: microbench records -> cluster profile.
#include <optional>
#include <string>
#include <vector>

#include "moe/base/json.h"
#include "moe/prices/fit.h"
#include "moe/record/record.h"

namespace moe::tuner {

struct FitOptions {
  std::vector<std::string> records{"results/microbench-testbed-b.jsonl"};  // of one cluster, fitted together
  std::string name;                                                        // of the profile; empty: CLUSTER-fitted
  std::string out;                                                         // empty: results/NAME.toml
  std::string compute_from;  // a cluster whose prices of computations are taken where the records have none
  std::string
      network_from;     // a cluster whose ranks, collectives and, where the records have none, computations these are
  bool strict = false;  // exit code kDoubtful where a row is weak or unusable
  bool json = false;
};

int run_fit(const FitOptions& options);

// What the record of a run says of its time.

/// Returns whether the record has a measured time. One that is `invalid` may have: tables show it, no figure counts it.
bool was_timed(const CaseRecord& record);
/// Returns whether the run kept its rules and was timed. Every figure and choice is of such runs.
bool ran_well(const CaseRecord& record);

double predicted_s(const CaseRecord& record);
double run_s(const CaseRecord& record);
/// Returns the run's time over the prediction, less 1.
double error_of(const CaseRecord& record);
/// Returns the slowdown of the cores while the run was timed, relative to their best speed; 1 if it is unknown.
double core_slowdown(const CaseRecord& record);

// A fitted profile as a table, and as a file.

/// Returns one line a row: alpha, beta, r^2 of all samples, held-out error (median and worst), samples set aside;
/// beside `truth`, where given (the profile that paced an emulated cluster), the error of both. "!": weak or unusable.
/// Then the slowdowns, and a line for each warning.
std::string fit_table(const FittedProfile& fitted, const Profile* truth);

/// Returns the rows, each with what its table's line and warnings say.
Json fit_json(const FittedProfile& fitted);

/// Writes the profile as a whole (moe/base/files.h), and makes the folders above it.
void save_profile(const Profile& profile, const std::string& path);

}  // namespace moe::tuner
