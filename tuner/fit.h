#pragma once
// The verb `fit`: microbench records -> cluster profile.
#include <string>
#include <vector>

namespace moe::tuner {

struct FitOptions {
  std::vector<std::string> records{"results/microbench-testbed-b.jsonl"};  // of one cluster, fitted together
  std::string name;                                                        // of the profile; empty: CLUSTER-fitted
  std::string out;                                                         // empty: results/NAME.toml
  bool strict = false;  // exit code kDoubtful where a row is weak or unusable
  bool json = false;
};

int run_fit(const FitOptions& options);

}  // namespace moe::tuner
