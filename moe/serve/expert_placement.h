#pragma once
// Places experts on devices by their popularity: popular ones on several, unpopular ones together (Lina, section 5.2).
#include <cstdint>
#include <span>
#include <vector>

namespace moe {

struct HostedExpert {
  int expert = 0;
  double share = 1;  // of the expert's tokens that the device computes
};

/// Which experts each device holds. An expert's shares add up to 1.
struct ExpertPlacement {
  std::vector<std::vector<HostedExpert>> devices;

  bool holds(int device, int expert) const;
};

/// Returns the placement that ignores popularity: as many experts on each device, in their order; of fewer experts than
/// devices, replicas with equal shares on neighbours.
ExpertPlacement uniform_placement(int experts, int devices);

/// Places experts so that the slowest device has few tokens. `popularity`: by expert, in tokens or in shares of them;
/// 0: not estimated. A device holds at most `most_experts`.
///
/// An expert gets devices in proportion to its popularity, n_e = devices x popularity / sum: whole ones for itself, and
/// the rest of n_e, as every expert with n_e < 1, on devices that it shares. These are packed first-fit decreasing into
/// as few devices as they fill; what fits nowhere is split over the devices with most room. Experts without an
/// estimate go to the devices with the fewest experts. Of equal choices the first counts, so that all ranks place
/// alike. If the uniform placement is no slower, that is returned. Devices get the experts that they hold under the
/// uniform placement where that costs nothing.
///
/// Throws BadInput for no popularity, a negative one, or fewer than experts places on all devices.
ExpertPlacement place_experts(std::span<const double> popularity, int devices, int most_experts);

/// Returns the tokens that a device computes of each expert it holds, by device, then as ExpertPlacement has them:
/// whole tokens in proportion to the shares, the largest remainders rounded up.
std::vector<std::vector<int64_t>> split_tokens(const ExpertPlacement& placement, std::span<const int64_t> counts);

/// Returns the tokens of the device that has most, where the shares split an expert's tokens exactly.
double most_tokens(const ExpertPlacement& placement, std::span<const double> popularity);

/// Returns the `count` most popular experts, the first of equal ones first.
std::vector<int> most_popular(std::span<const double> popularity, int count);

}  // namespace moe
