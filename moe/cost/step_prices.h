#pragma once
// Prices the tasks of a step.
#include "moe/cost/pricer.h"

namespace moe::cost {

/// Returns the seconds of a task of Phase::step, by the pricer's rows. A task without a row is derived, or noted as not
/// priced: a step refuses no plan. A computation without a row of its own takes as long as a copy of its bytes.
double step_seconds(const LayerPricer& pricer, TaskKind kind, const Work& work);

}  // namespace moe::cost
