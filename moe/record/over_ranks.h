#pragma once
// One number an iteration, of what each rank's clock says: values[iteration][rank].
#include <vector>

namespace moe {

std::vector<double> max_over_ranks(const std::vector<std::vector<double>>& values);
std::vector<double> min_over_ranks(const std::vector<std::vector<double>>& values);

}  // namespace moe
