#pragma once
// The split of a layer's gradient bytes between the two places that a schedule has for them in a backward
// (GradientPolicy: the MoE part and beside the dense part, or beside the dense part and after everything else).
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

/// The seconds of a candidate that has not been priced yet.
inline constexpr double kUnpriced = std::numeric_limits<double>::max();
/// Returns whether a candidate is faster than the best one by more than the rounding errors of a sum.
inline bool is_better(double candidate_s, double best_s) { return candidate_s < best_s * (1 - 1e-12); }

/// The longest paths of a backward in seconds, excluding the seconds of the slices: without slices (`neither`), through
/// the first, the second, or both. A field may have the length of a path with fewer slices, if that is longer.
struct SplitPaths {
  double neither = 0, first = 0, second = 0, both = 0;
  double seconds(double first_s, double second_s) const;
};

/// Returns the paths of a backward that has a slice in each place, by four replays: a slice that is made longer than
/// everything else lies on the longest path, and its seconds are then subtracted. If the path without slices is not
/// shorter than `to_beat`, the other fields are 0. `seconds`: the tasks' prices; the slices' are overwritten.
/// `makespan`: replays them.
SplitPaths replayed_paths(const Structure& backward, std::vector<double>& seconds,
                          const std::function<double()>& makespan, double to_beat = kUnpriced);

/// Returns the number of bytes in the first place, of `all` in both, with which the backward is shortest: whole
/// elements, at least one and not all; the smallest of equally good numbers; 0 if there are fewer than two elements. It
/// is exact for straight and for measured price curves: between bends every path is linear, so the minimum is at a bend
/// or where two paths are equally long.
int64_t best_split(const SplitPaths& paths, const LayerPricer& pricer, int64_t all);
/// Returns candidate splits for several backwards; one of them minimises the seconds of the shortest backward.
std::vector<int64_t> best_splits(std::span<const SplitPaths> paths, const LayerPricer& pricer, int64_t all);

/// Returns the best split under contention, where paths don't add up. `replay`: of a backward with a slice in each
/// place; `seconds`: its prices. It is exact: the time is linear as long as events keep their order, and every linear
/// piece is visited.
int64_t best_contended_split(const FluidReplay& replay, const Structure& backward, const LayerPricer& pricer,
                             std::vector<double> seconds);

/// Returns a lower bound on the seconds of such a backward over all splits: the best result without contention, which
/// only slows tasks.
double min_free_split(const Replay& replay, const Structure& backward, const LayerPricer& pricer,
                      std::vector<double> seconds);

}  // namespace moe::search
