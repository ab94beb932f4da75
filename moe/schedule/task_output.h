#pragma once
// Says what the tasks of the MoE part write.
#include "moe/plan/plan.h"

namespace moe::schedule {

Buffer buffer_of(TaskKind kind);

}  // namespace moe::schedule
