#pragma once
// The schedules by file; the registry lists them.
#include "moe/schedule/schedule.h"

namespace moe {

extern const Schedule kDsMoe, kTutel, kTutelImproved, kFsmoeNoIio, kFsmoeNoPartition, kFsmoe;

}  // namespace moe
