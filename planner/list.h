#pragma once
// The verb `list`: what there is to choose from.

namespace moe {

int run_list(bool json);

}  // namespace moe
