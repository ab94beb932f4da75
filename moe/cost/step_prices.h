#pragma once
// What a step's tasks take.
#include "moe/cost/pricer.h"

namespace moe {

/// Returns the seconds of a task of Phase::step, by the pricer's rows. What has none is derived, or noted as not
/// priced: a step refuses no plan. Computations without a row of their own copy so many bytes.
double step_seconds(const LayerPricer& pricer, TaskKind kind, const Work& work);

}  // namespace moe
