#pragma once
// Parm's tables beside our numbers.
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "commands/reproduce/assume.h"

namespace moe::reproduce {

// Parm's configured layers (Table III) under its schedules and the baseline's.

inline constexpr std::string_view kParmBaseline = "ds-moe-replicated";

/// Returns the cluster of Table II, with the coefficients that section VI-B prints; MP groups of 2 and 4.
Profile parm_cluster(std::string_view testbed);

/// One layer, only the forward and backward of its MoE part: attention and the AllReduce of gradients are left out, as
/// in the paper (section VI-A).
struct ParmLayer {
  LayerCase shape;
  std::map<std::string_view, double> seconds;  // by schedule: baseline, parm-s1, parm-s2-aas, parm-s2, parm
  double communication_s = 0;                  // the time that collectives add to the baseline

  double speedup(std::string_view schedule) const { return seconds.at(kParmBaseline) / seconds.at(schedule); }
  /// Returns whether it has an MP or an ESP group. Without both, Parm has nothing to pause and equals the baseline.
  bool has_mp_or_esp() const { return shape.parallel.mp > 1 || shape.parallel.esp > 1; }
  /// Returns whether it has both groups, like the rows of Table IV.
  bool has_mp_and_esp() const { return shape.parallel.mp > 1 && shape.parallel.esp > 1; }
};

/// Returns the layers that fit their GPUs' memory under the baseline; none if the profile lacks rows, whose names are
/// added to `missing`.
std::vector<ParmLayer> parm_layers(std::string_view testbed, const Assumptions* assumed,
                                   std::set<std::string>& missing);

}  // namespace moe::reproduce
