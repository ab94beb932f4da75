#pragma once
// Counts how evenly a layer's tokens fall on its experts, and how full the rows are that are sent to them.
#include <span>
#include <vector>

#include "moe/layer/moe_layer.h"

namespace moe {

/// Holds the counts of the last pass, over all ranks' own tokens.
struct RoutingLoad {
  int64_t pairs = 0, dropped = 0;       // that the gate chose; of them, without a row
  double drop_rate = 0;                 // dropped / pairs
  double most_load = 0, mean_load = 0;  // tokens that want an expert, dropped ones included
  double imbalance = 0;                 // most_load / mean_load
  double padding = 0;                   // empty rows / rows sent to the experts; none where the sizes are the loads
};

/// Returns one rank's part of a RoutingLoad, as numbers that another process can be sent.
std::vector<double> load_on(const MoeLayer& rank);
/// Joins every rank's part; `any` is one of the ranks.
RoutingLoad load_of(const RankShape& any, std::span<const std::vector<double>> ranks);
/// Counts the load of a layer; `ranks` are the layers of all ranks.
RoutingLoad load_of(std::span<MoeLayer* const> ranks);

}  // namespace moe
