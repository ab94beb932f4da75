#include "moe/record/over_ranks.h"

#include <algorithm>

namespace moe {

std::vector<double> max_over_ranks(const std::vector<std::vector<double>>& values) {
  std::vector<double> most;
  for (const auto& ranks : values) most.push_back(*std::ranges::max_element(ranks));
  return most;
}

std::vector<double> min_over_ranks(const std::vector<std::vector<double>>& values) {
  std::vector<double> least;
  for (const auto& ranks : values) least.push_back(*std::ranges::min_element(ranks));
  return least;
}

}  // namespace moe
