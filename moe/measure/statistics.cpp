#include "moe/measure/statistics.h"

#include <algorithm>
#include <cmath>

#include "moe/base/check.h"

namespace moe {

double quantile(std::vector<double> samples, double q) {
  require<WrongResult>(!samples.empty(), "statistics: no samples");
  std::sort(samples.begin(), samples.end());
  const double place = q * static_cast<double>(samples.size() - 1);
  const size_t below = static_cast<size_t>(place), above = std::min(below + 1, samples.size() - 1);
  return std::lerp(samples[below], samples[above], place - static_cast<double>(below));
}

double median(std::vector<double> samples) { return quantile(std::move(samples), 0.5); }

std::vector<double> max_over_ranks(const std::vector<std::vector<double>>& values) {
  std::vector<double> slowest;
  for (const auto& ranks : values) slowest.push_back(*std::max_element(ranks.begin(), ranks.end()));
  return slowest;
}

}  // namespace moe
