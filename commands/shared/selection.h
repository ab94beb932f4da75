#pragma once
// What a verb works on, as it was asked for: a cluster, a layer or a grid, schedules, degrees.
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
inline constexpr std::string_view kAllSchedules = "all";  // schedules() of a layer, all_schedules() of some models
/// Stands for whole systems: without the steps of papers' tables, and without the restricted orders of wave.
inline constexpr std::string_view kDefaultSchedules = "default";
inline constexpr std::string_view kDefaultGrid = "fsmoe-b";  // of clusters that have none of their own

/// What flags say of a layer and its groups; what they leave open comes from the layer file, or the defaults.
struct LayerFlags {
  SomeLayerFields fields;
  std::optional<Rounding> rounding;
  std::optional<int> dp, cp, mp, ep, esp, pp, zero;
  std::optional<Recompute> recompute;
  std::optional<std::string> placement;
  bool operator==(const LayerFlags&) const = default;
};

struct Selection {
  std::string cluster{kDefaultCluster};
  std::optional<int> nodes;  // of the cluster's kind; none: as many as it has
  std::string grid;          // empty: the one that belongs to the cluster
  std::string layer_file;    // empty: none
  LayerFlags layer;
  std::vector<std::string> schedules;  // empty: what the verb compares by default
  DegreeChoice degrees;
  bool nearest = false;
};

/// Returns the profile of the cluster asked for, with as many nodes as were asked for. Throws BadInput for `host`,
/// which is measured and has no profile.
Profile chosen_profile(const Selection& selection);

/// Returns how a profile prices what it has no row for.
PricingOptions pricing_of(const Selection& selection);

/// Returns the schedules asked for; `all`: those for which kAllSchedules stands; `by_default`: the name that stands
/// where none is asked for. Throws BadInput listing the known names, or naming a flag that no schedule reads.
std::vector<const Schedule*> chosen_schedules(const Selection& selection, const ScheduleTable& all = schedules(),
                                              std::string_view by_default = kDefaultSchedules);

/// Returns the grid asked for, or the first whole one of configs/grids that names this cluster as its own, or
/// kDefaultGrid.
Grid grid_of(const Selection& selection, const std::string& cluster);

/// Returns the one layer asked for, on a cluster of `nodes` x `ranks_per_node`. Throws BadInput naming the flag.
LayerCase chosen_case(const Selection& selection, int nodes, int ranks_per_node);
/// Returns the case likewise, but takes what no flag says from `base`, whatever the selection's layer file.
LayerCase chosen_case(const Selection& selection, LayerFile base, int nodes, int ranks_per_node);

}  // namespace moe::commands
