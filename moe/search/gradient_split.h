#pragma once
// Finds how many of a layer's gradient bytes go into the first of a schedule's two places for them in a backward
// (GradientPolicy: MoE part and beside the dense part, or beside the dense part and after everything else).
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

/// Seconds of a candidate that has not been priced yet.
inline constexpr double kUnpriced = std::numeric_limits<double>::max();
/// Returns whether a later candidate wins: by more than rounding errors of a sum, which must not decide.
inline bool better(double candidate_s, double best_s) { return candidate_s < best_s * (1 - 1e-12); }

/// The seconds of a backward's longest paths, without the slices' own seconds: `first` is through the first slice,
/// `both` through both. A field may be the length of a path with fewer slices.
struct SplitPaths {
  double neither = 0, first = 0, second = 0, both = 0;
  double seconds(double first_s, double second_s) const;
};

/// Returns the paths of a backward with a slice in each place, by four replays: a slice that outweighs everything else
/// is on the longest path, and its seconds are subtracted. If even the path without slices is not shorter than
/// `to_beat`, the others are 0. `seconds`: the tasks' prices, in which the slices are changed, and which `makespan`
/// replays.
SplitPaths replayed_paths(const Structure& backward, std::vector<double>& seconds,
                          const std::function<double()>& makespan, double to_beat = kUnpriced);

/// Returns the bytes in the first place, of `all` in both, with which the backward is shortest: whole elements, more
/// than none and less than all; the fewest of equals; 0 if there are fewer than two elements. It is exact for straight
/// and for measured price curves: between their bends every path is linear, so the minimum is at a bend or where two
/// paths are equally long.
int64_t best_split(const SplitPaths& paths, const LayerPricer& pricer, int64_t all);
/// Returns splits of several backwards, including one that makes the shortest of them as short as any split can.
std::vector<int64_t> best_splits(std::span<const SplitPaths> paths, const LayerPricer& pricer, int64_t all);

/// Finds the best split under contention, where paths are not straight: `replay` has a backward with a slice in each
/// place, `seconds` its prices. It is exact, because the time is straight as long as no events change their order, and
/// each such piece is visited.
int64_t best_contended_split(const FluidReplay& replay, const Structure& backward, const LayerPricer& pricer,
                             std::vector<double> seconds);

/// Returns a lower bound on the seconds of such a backward: those without contention, with the best split or everything
/// in one place. Contention only slows.
double least_free_split(const Replay& replay, const Structure& backward, const LayerPricer& pricer,
                        std::vector<double> seconds);

}  // namespace moe::search
