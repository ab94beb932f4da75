#pragma once
// [contention] of a cluster profile: how tasks on two resources of a rank slow each other down while both run.
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace moe {

/// Says what a task uses of its rank while it runs: a computation `compute`, a collective its group's network, a
/// re-layout copy, on whatever lane, the device's memory (`copy`). Who uses none is neither slowed nor slows.
enum class Resource : uint8_t { compute, inter, intra, copy, none };
inline constexpr int kResources = 5;
inline constexpr size_t kSlowed = kResources - 1;
std::string_view name_of(Resource resource);

struct Contention {
  // These say how many times as long the first takes beside the second, >= 1.
  double intra_by_inter = 1, inter_by_intra = 1;
  double compute_by_inter = 1, compute_by_intra = 1, inter_by_compute = 1, intra_by_compute = 1;
  double copy_by_inter = 1, copy_by_intra = 1, copy_by_compute = 1;
  double inter_by_copy = 1, intra_by_copy = 1, compute_by_copy = 1;
  /// Holds at [slowed][by] the seconds, >= 0, that a task loses whenever it and one of the other kind begin to run side
  /// by side, whatever their sizes: kernels that wait for each other to be scheduled (MoNTA's section Discussions).
  std::array<std::array<double, kSlowed>, kSlowed> stall_s{};

  bool none() const { return *this == Contention{}; }
  bool operator==(const Contention&) const = default;
};

/// Holds an ordered pair of resources and its factor. A profile names them SLOWED_by_BY, and SLOWED_by_BY_stall_s.
struct ContentionPair {
  Resource slowed, by;
  double Contention::*factor;
  std::string key() const;
  std::string stall_key() const { return key() + "_stall_s"; }
  template <class AnyContention>
  auto& stall_s(AnyContention& contention) const {
    return contention.stall_s[static_cast<size_t>(slowed)][static_cast<size_t>(by)];
  }
};
/// Returns all pairs, over which every reader and writer of contention goes.
std::span<const ContentionPair> contention_pairs();

}  // namespace moe
