#include "moe/search/gradient_split.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include "moe/simulator/fluid_replay.h"

namespace moe::search {
namespace {

// The splits of `all` bytes between the two places. Splits at bends of the price curve are priced once for all paths.
class SplitSearch {
 public:
  SplitSearch(const LayerPricer& pricer, int64_t all)
      : pricer_(pricer), all_(all), grain_(bytes_of(pricer.shape().layer.dtype)) {
    if (all_ < 2 * grain_) return;
    const std::vector<double> bends = bends_of_either_slice();
    std::vector<int64_t> sizes;
    for (const double bend : bends) add(bend, sizes);
    std::ranges::sort(sizes);
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    for (const int64_t bytes : sizes) at_bends_.push_back(split(bytes));
    for (size_t i = 1; i < bends.size(); ++i) add_piece(bends[i - 1], bends[i]);
    for (const Split& s : at_bends_) {
      min_first_s_ = std::min(min_first_s_, s.first_s);
      min_second_s_ = std::min(min_second_s_, s.second_s);
      min_both_s_ = std::min(min_both_s_, s.first_s + s.second_s);
    }
  }

  struct Best {
    int64_t bytes = 0;
    double seconds = std::numeric_limits<double>::infinity();
  };
  Best best(const SplitPaths& paths) const {
    std::vector<int64_t> crossings;
    for (const Piece& piece : pieces_) add_crossings(paths, piece, crossings);
    std::ranges::sort(crossings);
    Best best;
    const auto offer = [&](const Split& s) {
      const double seconds = paths.seconds(s.first_s, s.second_s);
      if (seconds < best.seconds * (1 - 1e-12)) best = {s.bytes, seconds};
    };
    auto bend = at_bends_.begin();
    for (const int64_t bytes : crossings) {
      for (; bend != at_bends_.end() && bend->bytes < bytes; ++bend) offer(*bend);
      offer(split(bytes));
    }
    for (; bend != at_bends_.end(); ++bend) offer(*bend);
    return best;
  }

  /// Returns a lower bound on the seconds of all splits: prices are linear between bends, so each slice, and the sum of
  /// both, is cheapest at a bend.
  double at_least(const SplitPaths& paths) const {
    return std::max(
        {paths.neither, paths.first + min_first_s_, paths.second + min_second_s_, paths.both + min_both_s_});
  }

 private:
  struct Split {
    int64_t bytes = 0;  // bytes in the first place
    double first_s = 0, second_s = 0;
  };
  struct Piece {  // the splits between two bends; every path is linear there
    double begin = 0, end = 0;
    Split first, second;
  };

  Split split(int64_t bytes) const {
    return {bytes, pricer_.gradient_seconds(bytes), pricer_.gradient_seconds(all_ - bytes)};
  }

  std::vector<double> bends_of_either_slice() const {
    const double all = static_cast<double>(all_), grain = static_cast<double>(grain_);
    std::vector<double> bends{grain, all - grain};
    for (const double bend : pricer_.gradient_breakpoints())
      for (const double bytes : {bend, all - bend})
        if (bytes > grain && bytes < all - grain) bends.push_back(bytes);
    std::ranges::sort(bends);
    return bends;
  }

  // Adds the whole elements around `bytes`, because bends and crossings need not be multiples of an element.
  void add(double bytes, std::vector<int64_t>& sizes) const {
    const int64_t floor = static_cast<int64_t>(bytes) / grain_ * grain_;
    for (const int64_t x : {floor - grain_, floor, floor + grain_})
      if (x > 0 && x < all_) sizes.push_back(x);
  }

  void add_piece(double begin, double end) {
    const int64_t first = static_cast<int64_t>(begin + (end - begin) / 4);
    const int64_t second = static_cast<int64_t>(end - (end - begin) / 4);
    if (second - first < grain_) return;  // the elements around its ends cover the piece
    pieces_.push_back({begin, end, split(first), split(second)});
  }

  // Adds the splits inside a piece at which two paths with slices are equally long.
  void add_crossings(const SplitPaths& paths, const Piece& piece, std::vector<int64_t>& sizes) const {
    const auto lengths = [&](const Split& s) {
      return std::array{paths.first + s.first_s, paths.second + s.second_s, paths.both + s.first_s + s.second_s};
    };
    const auto at_first = lengths(piece.first), at_second = lengths(piece.second);
    for (const auto& [p, q] : {std::pair<size_t, size_t>{0, 1}, {0, 2}, {1, 2}}) {
      const double before = at_first[p] - at_first[q], after = at_second[p] - at_second[q];
      if (before == after) continue;
      const double crossing = static_cast<double>(piece.first.bytes) +
                              before / (before - after) * static_cast<double>(piece.second.bytes - piece.first.bytes);
      if (crossing > piece.begin && crossing < piece.end) add(crossing, sizes);  // the bends have been added
    }
  }

  const LayerPricer& pricer_;
  int64_t all_, grain_;
  std::vector<Split> at_bends_;  // ascending
  double min_first_s_ = std::numeric_limits<double>::infinity(), min_second_s_ = min_first_s_,
         min_both_s_ = min_first_s_;  // minima over the splits at bends
  std::vector<Piece> pieces_;
};

// Follows a backward's seconds as a function of the bytes in its first place, one linear piece after the other.
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
      if (const int slice = backward.tasks[i].slice; slice >= 0) (slice == 0 ? first_ : second_) = i;
  }

  int64_t best() {
    if (all_ < 2 * grain_) return 0;
    std::set<int64_t> joints{grain_, all_ - grain_};  // prices are linear between neighbours
    for (const double bend : pricer_.gradient_breakpoints())
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
      const LinearSegment span = replay_.replay_along(seconds_, slopes_);
      offer(x, span.seconds);
      const double reach = std::min(span.reach, static_cast<double>(end - x));
      const int64_t last = x + static_cast<int64_t>(reach) / grain_ * grain_;
      offer(last, span.seconds + span.slope * static_cast<double>(last - x));
      x = last + grain_;
    }
  }

  void offer(int64_t bytes, double seconds) {
    if (is_better(seconds, min_)) best_ = bytes, min_ = seconds;
  }

  const FluidReplay& replay_;
  const LayerPricer& pricer_;
  int64_t all_, grain_, best_ = 0;
  double min_ = std::numeric_limits<double>::infinity();
  std::vector<double> seconds_, slopes_;
  size_t first_ = 0, second_ = 0;
};

}  // namespace

// A slice of 0 seconds has no task, so paths through it do not exist; under contention they may be the longest.
double SplitPaths::seconds(double first_s, double second_s) const {
  double longest = neither;
  if (first_s > 0) longest = std::max(longest, first + first_s);
  if (second_s > 0) longest = std::max(longest, second + second_s);
  if (first_s > 0 && second_s > 0) longest = std::max(longest, both + first_s + second_s);
  return longest;
}

SplitPaths replayed_paths(const Structure& backward, std::vector<double>& seconds,
                          const std::function<double()>& makespan, double to_beat) {
  const auto with = [&](double first_s, double second_s) {
    for (size_t i = 0; i < seconds.size(); ++i)
      if (const int slice = backward.tasks[i].slice; slice >= 0) seconds[i] = slice == 0 ? first_s : second_s;
    return makespan();
  };
  const double neither = with(0, 0), heavy = 2 * neither + 1e-9;
  if (!is_better(neither, to_beat)) return {neither};
  return {neither, with(heavy, 0) - heavy, with(0, heavy) - heavy, with(heavy, heavy) - 2 * heavy};
}

std::vector<int64_t> best_splits(std::span<const SplitPaths> paths, const LayerPricer& pricer, int64_t all) {
  const SplitSearch search(pricer, all);
  std::vector<std::pair<double, const SplitPaths*>> bounded;
  for (const SplitPaths& one : paths) bounded.emplace_back(search.at_least(one), &one);
  std::ranges::sort(bounded);
  std::vector<int64_t> splits;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [at_least, one] : bounded) {
    if (at_least >= least) break;
    const SplitSearch::Best best = search.best(*one);
    splits.push_back(best.bytes);
    least = std::min(least, best.seconds);
  }
  return splits;
}

int64_t best_split(const SplitPaths& paths, const LayerPricer& pricer, int64_t all) {
  return SplitSearch(pricer, all).best(paths).bytes;
}

int64_t best_contended_split(const FluidReplay& replay, const Structure& backward, const LayerPricer& pricer,
                             std::vector<double> seconds) {
  return ContendedSplit(replay, backward, pricer, std::move(seconds)).best();
}

double min_free_split(const Replay& replay, const Structure& backward, const LayerPricer& pricer,
                      std::vector<double> seconds) {
  std::vector<double> ends;
  const SplitPaths paths = replayed_paths(backward, seconds, [&] { return replay.makespan(seconds, ends); });
  const int64_t all = pricer.gradient_bytes();
  double least = paths.neither + pricer.gradient_seconds(all);
  for (const int64_t first : {int64_t{0}, best_split(paths, pricer, all), all})
    least = std::min(least, paths.seconds(pricer.slice_seconds(first), pricer.slice_seconds(all - first)));
  return least;
}

}  // namespace moe::search
