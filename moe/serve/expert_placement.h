#pragma once
// The placement of experts on devices by popularity: popular experts on several devices, unpopular ones together on one
// (Lina, section 5.2).
#include <cstdint>
#include <span>
#include <vector>

namespace moe {

struct HostedExpert {
  int expert = 0;
  double share = 1;  // share of the expert's tokens that the device computes
};

/// The experts on each device. The shares of each expert add up to 1.
struct ExpertPlacement {
  std::vector<std::vector<HostedExpert>> devices;

  bool holds(int device, int expert) const;
};

/// Returns the placement that ignores popularity: equally many consecutive experts on each device; with fewer experts
/// than devices, replicas with equal shares on neighbouring devices.
ExpertPlacement uniform_placement(int experts, int devices);

/// Returns a placement in which the device with the most tokens has as few as possible (a heuristic). `popularity`: for
/// each expert, in tokens or shares of tokens; 0: no estimate. `max_experts`: limit per device.
///
/// An expert gets devices in proportion to its popularity, n_e = devices x popularity / sum: floor(n_e) devices of its
/// own, and for the rest of n_e a share of devices with several experts. These rests are packed by first-fit
/// decreasing; a rest that fits nowhere is split over the devices with the most room. Experts without an estimate go to
/// the devices with the fewest experts. Of equal choices the first is taken, so all ranks find the same placement. If
/// the uniform placement is no slower, it is returned. Devices keep experts of the uniform placement if that costs
/// nothing.
///
/// Throws BadInput if `popularity` is empty or has a negative value, or if all devices together have too few places.
ExpertPlacement place_experts(std::span<const double> popularity, int devices, int max_experts);

/// Returns, for each device and each of its experts (in the order of ExpertPlacement), the number of tokens that it
/// computes: in proportion to the shares, with the largest remainders rounded up. `counts`: tokens of each expert.
std::vector<std::vector<int64_t>> split_tokens(const ExpertPlacement& placement, std::span<const int64_t> counts);

/// Returns the number of tokens on the device with the most, without rounding each expert's tokens to whole ones.
double max_tokens(const ExpertPlacement& placement, std::span<const double> popularity);

/// Returns the `count` most popular experts in descending order; of equally popular ones, the first comes first.
std::vector<int> most_popular(std::span<const double> popularity, int count);

}  // namespace moe
