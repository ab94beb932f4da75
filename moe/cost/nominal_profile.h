#pragma once
// Costs for plans of which no time is asked: what is to be verified needs no cluster's prices.
#include "moe/cost/profile.h"

namespace moe {

/// Returns a profile that prices every task that any schedule may have of this case: on all its networks alike, experts
/// as long as a dispatch, alpha an eighth of that, so that cutting into a few chunks pays.
Profile nominal_profile(const LayerCase& shape);

}  // namespace moe
