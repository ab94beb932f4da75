#pragma once
// Finds how many of a layer's gradient bytes go into the first of the two places that a schedule has for them in a
// backward (GradientPolicy: MoE part and beside the dense part, or beside the dense part and after everything else).
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "moe/prices/pricer.h"

namespace moe {
class FluidReplay;
class Replay;
}  // namespace moe

namespace moe::search {

/// Seconds of a candidate that nobody has priced yet.
inline constexpr double kUnpriced = std::numeric_limits<double>::max();
/// Returns whether a later candidate wins: by more than the last bits of a sum, on which no decision must hang.
inline bool better(double candidate_s, double best_s) { return candidate_s < best_s * (1 - 1e-12); }

/// The lengths of a backward's longest paths, without the slices' own seconds: `first` through the first slice
/// alone, `both` through both. A field may hold the length of a path with fewer slices.
struct SplitPaths {
  double neither = 0, first = 0, second = 0, both = 0;
  double seconds(double first_s, double second_s) const;
};

/// Returns the paths of a backward with a slice in each place, by four replays: a slice that outweighs everything else
/// lies on the longest path, which is as long without it. Where even the path without slices is no shorter than
/// `to_beat`, the others are left at 0. `seconds`: the tasks' prices, in which slices are changed, and of which
/// `makespan` makes a replay.
SplitPaths replayed_paths(const Structure& backward, std::vector<double>& seconds,
                          const std::function<double()>& makespan, double to_beat = kUnpriced);

/// Returns the bytes in the first place, of `all` in both, for which the backward is shortest: whole elements, more
/// than none and less than all; the fewest of equals. 0 of fewer than two elements. It is exact for straight and for
/// measured price curves: between their bends every path is linear, so that the least lies at a bend or where two paths
/// are equally long.
int64_t best_split(const SplitPaths& paths, const LayerPricer& pricer, int64_t all);
/// Returns splits of several backwards, among them one with which the shortest of them all is as short as any makes it.
std::vector<int64_t> best_splits(std::span<const SplitPaths> paths, const LayerPricer& pricer, int64_t all);

/// Finds the split under contention, where no path stays straight: `replay` has a backward with a slice in each place,
/// `seconds` its prices. It is exact, as the time is straight between events that change places, and each such piece is
/// visited.
int64_t best_contended_split(const FluidReplay& replay, const Structure& backward, const LayerPricer& pricer,
                             std::vector<double> seconds);

/// Returns the seconds of such a backward without contention, split as is best then, all or nothing in one place too:
/// contention only slows.
double least_free_split(const Replay& replay, const Structure& backward, const LayerPricer& pricer,
                        std::vector<double> seconds);

}  // namespace moe::search
