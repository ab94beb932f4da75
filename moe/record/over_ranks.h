#pragma once
// Reduces what each rank's clock says, values[iteration][rank], to one number an iteration.
#include <vector>

namespace moe {

std::vector<double> max_over_ranks(const std::vector<std::vector<double>>& values);
std::vector<double> min_over_ranks(const std::vector<std::vector<double>>& values);

}  // namespace moe
