#pragma once
// Which cores a thread runs on.
#include <vector>

namespace moe::cpu {

/// Returns the cores that the calling thread may use, ascending.
std::vector<int> usable_cores();

/// Keeps the calling thread, and those it starts from now on, to share `part` of `parts` of the cores that it may use;
/// where there are more parts than cores, neighbouring parts share one. Does nothing where the system refuses.
void keep_to_share(int part, int parts);

}  // namespace moe::cpu
