#pragma once
// `simulate --serve`: batches of inference, whose experts are placed by popularity or stay where they are.
#include <optional>
#include <string>

namespace moe::commands {

struct SimulateOptions;

struct ServeFlags {
  bool serve = false;
  std::string routing;                             // a trace's file; empty: synthetic
  std::optional<double> skew, correlation, drift;  // of the synthetic source; none: RoutingSource's
  std::optional<int> batches;                      // of the synthetic source, profiled and served; none: kServeBatches
  std::optional<int> path, pack;                   // none: kServePath; ServingSetup's
  std::optional<double> swap_gb_per_s;             // from host memory to a device; none: ServingCosts'
  std::string write_profile;                       // CSV of the paths' profile; empty: none
};
inline constexpr int kServeBatches = 100, kServePath = 3;
/// The cluster of `--serve` where no flag names one: one that has prices for an EP group of all its ranks.
inline constexpr std::string_view kServeCluster = "a100-8";

int run_serve(const SimulateOptions& options);

}  // namespace moe::commands
