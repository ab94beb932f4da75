#include "moe/search/gradient_split.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include "moe/cost/fluid_replay.h"

namespace moe::search {
namespace {

class SplitSearch {
 public:
  SplitSearch(const SplitPaths& paths, const LayerPricer& pricer, int64_t all)
      : paths_(paths), pricer_(pricer), all_(all), grain_(bytes_of(pricer.shape().layer.dtype)) {}

  int64_t best() {
    if (all_ < 2 * grain_) return 0;
    const std::vector<double> bends = bends_of_either_slice();
    for (size_t i = 0; i < bends.size(); ++i) {
      add(bends[i]);
      if (i > 0) add_crossings(bends[i - 1], bends[i]);
    }
    std::ranges::sort(candidates_);
    int64_t best = 0, last = 0;
    double least = std::numeric_limits<double>::infinity();
    for (const int64_t bytes : candidates_) {
      if (bytes == std::exchange(last, bytes)) continue;
      const double seconds = paths_.seconds(first_seconds(bytes), second_seconds(bytes));
      if (seconds < least * (1 - 1e-12)) best = bytes, least = seconds;
    }
    return best;
  }

 private:
  double first_seconds(int64_t bytes) const { return pricer_.gradient_seconds(bytes); }
  double second_seconds(int64_t bytes) const { return pricer_.gradient_seconds(all_ - bytes); }

  std::vector<double> bends_of_either_slice() const {
    const double all = static_cast<double>(all_), grain = static_cast<double>(grain_);
    std::vector<double> bends{grain, all - grain};
    for (const double bend : pricer_.gradient_bends())
      for (const double bytes : {bend, all - bend})
        if (bytes > grain && bytes < all - grain) bends.push_back(bytes);
    std::ranges::sort(bends);
    return bends;
  }

  // Adds the element there and its neighbours: bends and crossings lie inside elements.
  void add(double bytes) {
    const int64_t floor = static_cast<int64_t>(bytes) / grain_ * grain_;
    for (const int64_t x : {floor - grain_, floor, floor + grain_})
      if (x > 0 && x < all_) candidates_.push_back(x);
  }

  // Adds the bytes, between two bends, at which two of the paths with slices are equally long.
  void add_crossings(double begin, double end) {
    const int64_t first = static_cast<int64_t>(begin + (end - begin) / 4);
    const int64_t second = static_cast<int64_t>(end - (end - begin) / 4);
    if (second - first < grain_) return;  // its ends' neighbours are all that lies between
    const auto lengths = [&](int64_t x) {
      const double first_s = first_seconds(x), second_s = second_seconds(x);
      return std::array{paths_.first + first_s, paths_.second + second_s, paths_.both + first_s + second_s};
    };
    const auto at_first = lengths(first), at_second = lengths(second);
    for (const auto& [p, q] : {std::pair<size_t, size_t>{0, 1}, {0, 2}, {1, 2}}) {
      const double before = at_first[p] - at_first[q], after = at_second[p] - at_second[q];
      if (before == after) continue;
      const double crossing =
          static_cast<double>(first) + before / (before - after) * static_cast<double>(second - first);
      if (crossing > begin && crossing < end) add(crossing);  // the bends are there already
    }
  }

  const SplitPaths& paths_;
  const LayerPricer& pricer_;
  int64_t all_, grain_;
  std::vector<int64_t> candidates_;
};

// Follows a backward's seconds over the bytes in its first place, piece by straight piece.
class ContendedSplit {
 public:
  ContendedSplit(const FluidReplay& replay, const Structure& backward, const LayerPricer& pricer,
                 std::vector<double> seconds)
      : replay_(replay),
        pricer_(pricer),
        all_(pricer.gradient_bytes()),
        grain_(bytes_of(pricer.shape().layer.dtype)),
        seconds_(std::move(seconds)),
        slopes_(seconds_.size()) {
    for (size_t i = 0; i < seconds_.size(); ++i)
      if (const int slice = backward.classes[i].slice; slice >= 0) (slice == 0 ? first_ : second_) = i;
  }

  int64_t best() {
    if (all_ < 2 * grain_) return 0;
    std::set<int64_t> joints{grain_, all_ - grain_};  // prices are straight between neighbours
    for (const double bend : pricer_.gradient_bends())
      for (const double bytes : {bend, static_cast<double>(all_) - bend})
        for (const int64_t step : {-1, 0, 1})
          if (const int64_t x = (static_cast<int64_t>(bytes) / grain_ + step) * grain_; x > 0 && x < all_)
            joints.insert(x);
    int64_t begin = grain_;
    for (const int64_t end : joints) trace(std::exchange(begin, end), end);
    trace(begin, begin);
    return best_;
  }

 private:
  void trace(int64_t begin, int64_t end) {
    const double a_byte = end > begin ? 1 / static_cast<double>(end - begin) : 0;
    slopes_[first_] = (pricer_.gradient_seconds(end) - pricer_.gradient_seconds(begin)) * a_byte;
    slopes_[second_] = (pricer_.gradient_seconds(all_ - end) - pricer_.gradient_seconds(all_ - begin)) * a_byte;
    for (int64_t x = begin; x <= end;) {
      seconds_[first_] = pricer_.gradient_seconds(x);
      seconds_[second_] = pricer_.gradient_seconds(all_ - x);
      const LineSpan span = replay_.along(seconds_, slopes_);
      offer(x, span.seconds);
      const double reach = std::min(span.reach, static_cast<double>(end - x));
      const int64_t last = x + static_cast<int64_t>(reach) / grain_ * grain_;
      offer(last, span.seconds + span.slope * static_cast<double>(last - x));
      x = last + grain_;
    }
  }

  void offer(int64_t bytes, double seconds) {
    if (seconds < least_ * (1 - 1e-12)) best_ = bytes, least_ = seconds;
  }

  const FluidReplay& replay_;
  const LayerPricer& pricer_;
  int64_t all_, grain_, best_ = 0;
  double least_ = std::numeric_limits<double>::infinity();
  std::vector<double> seconds_, slopes_;
  size_t first_ = 0, second_ = 0;
};

}  // namespace

// Under contention a path with a slice may be longer than the longest without, however short the slice is: what is not
// there is on none.
double SplitPaths::seconds(double first_s, double second_s) const {
  double longest = neither;
  if (first_s > 0) longest = std::max(longest, first + first_s);
  if (second_s > 0) longest = std::max(longest, second + second_s);
  if (first_s > 0 && second_s > 0) longest = std::max(longest, both + first_s + second_s);
  return longest;
}

int64_t best_split(const SplitPaths& paths, const LayerPricer& pricer, int64_t all) {
  return SplitSearch(paths, pricer, all).best();
}

int64_t best_contended_split(const FluidReplay& replay, const Structure& backward, const LayerPricer& pricer,
                             std::vector<double> seconds) {
  return ContendedSplit(replay, backward, pricer, std::move(seconds)).best();
}

double least_free_split(const Replay& replay, const Structure& backward, const LayerPricer& pricer,
                        std::vector<double> seconds) {
  std::vector<double> ends;
  const auto with = [&](double first_s, double second_s) {
    for (size_t i = 0; i < seconds.size(); ++i)
      if (const int slice = backward.classes[i].slice; slice >= 0) seconds[i] = slice == 0 ? first_s : second_s;
    return replay.makespan(seconds, ends);
  };
  const double neither = with(0, 0), heavy = 2 * neither + 1e-9;
  const SplitPaths paths{neither, with(heavy, 0) - heavy, with(0, heavy) - heavy, with(heavy, heavy) - 2 * heavy};
  const int64_t all = pricer.gradient_bytes();
  double least = neither + pricer.gradient_seconds(all);
  for (const int64_t first : {int64_t{0}, best_split(paths, pricer, all), all})
    least = std::min(least, paths.seconds(pricer.slice_seconds(first), pricer.slice_seconds(all - first)));
  return least;
}

}  // namespace moe::search
