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

/// Returns the cluster as Table II has it, with the coefficients that section VI-B prints; MP groups of 2 and 4.
Profile parm_cluster(std::string_view testbed);

/// One layer, the MoE part's forward and backward alone: attention and the AllReduce of gradients are left out,
/// as the paper leaves them (section VI-A).
struct ParmLayer {
  LayerCase shape;
  std::map<std::string_view, double> seconds;  // by schedule: baseline, parm-s1, parm-s2-aas, parm-s2, parm
  double communication_s = 0;                  // by which collectives lengthen the baseline

  double speedup(std::string_view schedule) const { return seconds.at(kParmBaseline) / seconds.at(schedule); }
  /// Returns whether it has either group. Without both Parm has nothing to pause and is the baseline.
  bool has_mp_or_esp() const { return shape.parallel.mp > 1 || shape.parallel.esp > 1; }
  /// Returns whether it has both, as Table IV's rows do.
  bool has_mp_and_esp() const { return shape.parallel.mp > 1 && shape.parallel.esp > 1; }
};

/// Returns the layers that fit their GPUs' memory as the baseline runs them; none where the profile lacks a row;
/// `missing` then gains its name.
std::vector<ParmLayer> parm_layers(std::string_view testbed, const Assumptions* assumed,
                                   std::set<std::string>& missing);

}  // namespace moe::reproduce
