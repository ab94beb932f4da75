#pragma once
// The subject of a verb, as the flags request it: a cluster, a layer or a grid, schedules, degrees.
#include <optional>
#include <string>
#include <vector>

#include "moe/prices/pricer.h"
#include "moe/search/degrees.h"
#include "moe/shape/grid.h"
#include "moe/shape/layer_file.h"

namespace moe::commands {

inline constexpr std::string_view kDefaultCluster = "testbed-b";
inline constexpr std::string_view kHostCluster = "host";
inline constexpr std::string_view kAllSchedules =
    "all";  // means schedules() for a layer, and all_schedules() for some models
/// Whole systems, without the steps of papers' tables and without the restricted orders of wave.
inline constexpr std::string_view kDefaultSchedules = "default";
inline constexpr std::string_view kDefaultGrid = "fsmoe-b";  // grid for clusters without one

/// A layer and its groups by the flags; values that they leave open come from the layer file or the defaults.
struct LayerFlags {
  PartialLayerFields fields;
  std::optional<Rounding> rounding;
  std::optional<int> dp, cp, mp, ep, esp, pp, zero;
  std::optional<CpExchange> cp_exchange;
  std::optional<Recompute> recompute;
  std::optional<Offload> offload;
  std::optional<std::string> placement;
  bool operator==(const LayerFlags&) const = default;
};

struct Selection {
  std::string cluster{kDefaultCluster};
  std::optional<int> nodes;  // number of nodes, each like the cluster's; none: the cluster's number
  std::string grid;          // empty: the cluster's grid
  std::string layer_file;    // empty: none
  LayerFlags layer;
  std::vector<std::string> schedules;  // empty: the verb's default comparison
  DegreeChoice degrees;
  bool nearest = false;
};

/// Returns the profile of the requested cluster, with the requested number of nodes. Throws BadInput for `host`, which
/// is measured and has no profile.
Profile chosen_profile(const Selection& selection);

/// Returns how to price operations for which the profile has no row.
PricingOptions pricing_of(const Selection& selection);

/// Returns the requested schedules. `all`: those of kAllSchedules; `by_default`: the name used if none is requested.
/// Throws BadInput listing the known names, or naming a flag that no schedule reads.
std::vector<const Schedule*> chosen_schedules(const Selection& selection, const ScheduleTable& all = schedules(),
                                              std::string_view by_default = kDefaultSchedules);

/// Returns the requested grid, else the first whole one in configs/grids that names this cluster as its own, else
/// kDefaultGrid.
Grid grid_of(const Selection& selection, const std::string& cluster);

/// Returns the single requested layer on a cluster of `nodes` x `ranks_per_node`. Throws BadInput naming the flag.
LayerCase chosen_case(const Selection& selection, int nodes, int ranks_per_node);
/// Returns the same, but values that no flag gives come from `base` instead of the selection's layer file.
LayerCase chosen_case(const Selection& selection, LayerFile base, int nodes, int ranks_per_node);

}  // namespace moe::commands
