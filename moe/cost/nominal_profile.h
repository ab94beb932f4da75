#pragma once
// Prices for plans of which no time is asked, such as those that are to be verified: they need no cluster's.
#include "moe/cost/profile.h"

namespace moe {

/// Returns a profile that prices every task that any schedule may have of this case: all networks cost alike, experts
/// take as long as a dispatch, alpha is an eighth of that, so that cutting into a few chunks pays.
Profile nominal_profile(const LayerCase& shape);

}  // namespace moe
