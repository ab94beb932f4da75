#pragma once
// Batches of inference as requested by flags, and the display of their times: `simulate --serve` predicts them,
// `layerbench --serve` also runs them.
#include <optional>
#include <string>
#include <vector>

#include "commands/shared/chosen_model.h"
#include "commands/shared/selection.h"
#include "moe/base/json.h"
#include "moe/record/record.h"
#include "moe/serve/serving.h"

namespace moe::commands {

struct ServeFlags {
  bool serve = false;
  std::vector<std::string> variants;  // names of placements to serve; empty: all
  std::string routing;                // file of a routing trace; empty: synthetic routing
  std::optional<double> skew, correlation,
      drift;                   // parameters of synthetic routing; none: the defaults of SyntheticRouting
  std::optional<int> batches;  // batches of the synthetic routing to profile and to serve; none: the verb's default
  std::optional<int> path,
      pack;  // length of paths, and most experts on a device; none: kServePath, and the default of ServingSetup
  std::optional<double> swap_gb_per_s;  // GB/s from host memory to a device; none: the default of ServingCosts
  std::string write_profile;            // CSV file for the profile of the paths; empty: none
};
inline constexpr int kServePath = 3, kServeBatches = 100;
/// The cluster of `--serve` if no flag names one. It has prices for an EP group of all its ranks.
inline constexpr std::string_view kServeCluster = "a100-8";

/// A verb's request for serving.
struct ServeRequest {
  const ServeFlags& flags;
  const Selection& selection;
  const ModelFlags& model;
  std::optional<uint64_t> seed;  // seed of synthetic routing; none: 1
  int batches = kServeBatches;   // batches of synthetic routing if no flag gives a number
};

/// A layer for serving_plan: unless flags say otherwise, it has one expert per token and rank, and no capacity.
struct ServedCase {
  LayerCase shape;
  int layers = 12;
};
ServedCase served_case(const ServeRequest& request, const Profile& profile);

/// The batches whose routing is profiled, and the batches that are served.
struct RoutedBatches {
  RoutingTrace profiled, served;
  std::string source;
};
/// Reads or draws batches of `tokens` tokens; a trace sets the layers of `served`. Throws BadInput for fewer than two
/// batches, a trace together with a flag of synthetic routing, or fewer layers than a path has.
RoutedBatches routed_batches(const ServeRequest& request, ServedCase& served, int64_t tokens);
int path_length(const ServeFlags& flags);

/// Returns the requested variants in their order. Throws BadInput listing the known names.
std::vector<const ServingVariant*> chosen_variants(const ServeFlags& flags);
ServingSetup serving_setup(const ServeFlags& flags);

/// A variant's batches. `measured`: the times of batches that ran; none: they are only predicted.
struct ServedVariant {
  const ServingVariant* variant = nullptr;
  ServingResult predicted;
  std::optional<ServingResult> measured = {};
  const ServingResult& result() const { return measured ? *measured : predicted; }
  /// Returns the median over batches of measured over predicted seconds.
  double measured_over_predicted() const;
};

/// Returns the numbers of a variant, with the names used in JSON and records.
Fields numbers_of(const ServingResult& result);
std::string table_text(const std::vector<ServedVariant>& all);
/// Returns the beginning of a variant's records, including their key "serve/VARIANT".
CaseRecord record_of(const ServedVariant& served, const Fields& parameters);
/// Returns the parameters that the records have in common.
Fields serving_parameters(const ServeRequest& request, const ServedCase& served, const RoutedBatches& routing,
                          const std::string& cluster);
/// Returns the document with the `variants`.
Json serving_json(const ServedCase& served, const RoutedBatches& routing, const std::string& cluster, Json variants);
/// Returns the lines above the table. `where`: the cluster as text, "a100-8 (1 node x 8)".
std::string serving_heading(const ServedCase& served, const RoutedBatches& routing, const std::string& where);

}  // namespace moe::commands
