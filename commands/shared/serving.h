#pragma once
// Batches of inference as flags ask for them, and how their times are shown: `simulate --serve` predicts them,
// `layerbench --serve` runs them too.
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
  std::vector<std::string> variants;               // empty: all
  std::string routing;                             // a trace's file; empty: synthetic
  std::optional<double> skew, correlation, drift;  // of the synthetic source; none: RoutingSource's
  std::optional<int> batches;                      // of the synthetic source, profiled and served; none: by the verb
  std::optional<int> path, pack;                   // none: kServePath; ServingSetup's
  std::optional<double> swap_gb_per_s;             // from host memory to a device; none: ServingCosts'
  std::string write_profile;                       // CSV of the paths' profile; empty: none
};
inline constexpr int kServePath = 3, kServeBatches = 100;
/// The cluster of `--serve` where no flag names one: one that has prices for an EP group of all its ranks.
inline constexpr std::string_view kServeCluster = "a100-8";

/// What a verb is asked to serve.
struct ServeRequest {
  const ServeFlags& flags;
  const Selection& selection;
  const ModelFlags& model;
  std::optional<uint64_t> seed;  // of synthetic routing; none: 1
  int batches = kServeBatches;   // of it, where no flag says
};

/// A layer as serving_plan takes it: what flags leave open has one expert a token and a rank, and no capacity.
struct ServedCase {
  LayerCase shape;
  int layers = 12;
};
ServedCase served_case(const ServeRequest& request, const Profile& profile);

/// The batches whose routing is profiled, and those that are served.
struct RoutedBatches {
  RoutingTrace profiled, served;
  std::string source;
};
/// Reads or draws batches of `tokens`; a trace sets the layers of `served`. Throws BadInput for fewer than two batches,
/// a trace beside a flag of synthetic routing, or fewer layers than a path has.
RoutedBatches routed_batches(const ServeRequest& request, ServedCase& served, int64_t tokens);
int path_length(const ServeFlags& flags);

/// Returns the variants asked for, in their order. Throws BadInput listing the known names.
std::vector<const ServingVariant*> chosen_variants(const ServeFlags& flags);
ServingSetup serving_setup(const ServeFlags& flags);

/// A variant's batches. `measured`: they ran, and `predicted` is what they were predicted to take; else that alone.
struct ServedVariant {
  const ServingVariant* variant = nullptr;
  ServingResult predicted;
  std::optional<ServingResult> measured = {};
  const ServingResult& shown() const { return measured ? *measured : predicted; }
  /// Returns measured over predicted seconds, in the median over batches.
  double measured_over_predicted() const;
};

/// Returns the numbers of a variant under the names that JSON and records have.
Fields numbers_of(const ServingResult& result);
std::string table_text(const std::vector<ServedVariant>& all);
/// Returns what records of a variant begin with, its key "serve/VARIANT" included.
CaseRecord record_of(const ServedVariant& served, const Fields& parameters);
/// Returns what records have in common.
Fields serving_parameters(const ServeRequest& request, const ServedCase& served, const RoutedBatches& routing,
                          const std::string& cluster);
/// Returns the document, whose `variants` have `row_of` each.
Json serving_json(const ServedCase& served, const RoutedBatches& routing, const std::string& cluster, Json variants);
/// Returns the lines above the table. `where`: the cluster, as "a100-8 (1 node x 8)".
std::string serving_heading(const ServedCase& served, const RoutedBatches& routing, const std::string& where);

}  // namespace moe::commands
