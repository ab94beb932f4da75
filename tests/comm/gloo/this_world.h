#pragma once
#include "moe/comm/gloo/gloo_world.h"

namespace moe {

/// The world of which this process is a rank.
GlooWorld& this_world();

}  // namespace moe
