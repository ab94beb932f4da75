#pragma once
// What the papers print, from configs/papers/.
#include <string>
#include <string_view>

namespace moe {

/// FSMoE Table 5's mean speedup over tutel of a schedule on a grid; 0 where none is printed.
double printed_speedup(const std::string& grid, std::string_view schedule);

}  // namespace moe
