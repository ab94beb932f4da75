#pragma once
// Finds which dependencies of a structure need an event at run time.
#include <vector>

#include "moe/plan/plan.h"

namespace moe {

/// Returns for each task the tasks of other lanes whose end its lane must wait for. Left out are those that the lane's
/// order, or another wait, implies already. Throws WrongResult naming the task that is out of issue order.
std::vector<std::vector<int>> crossings_of(const Structure& structure);

}  // namespace moe
