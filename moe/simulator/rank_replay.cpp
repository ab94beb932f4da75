// Idea: tasks are processed in issue order, each as an operation on arrays with one element per rank. Ranks are divided
// into blocks of whole groups whose arrays fit into the cache. A segment is a run of tasks that are processed block by
// block; it ends at a task whose groups are wider than a block.
// Invariant: when a row is processed, the ends of all its sources are in their buffers for the whole block. A buffer is
// reused once no further task waits for the task that wrote it (`give_buffers`). Each task has two ends on a rank: the
// actual one, and the one that it would have if the rank had never waited for other ranks.
// Source: the longest paths of an acyclic graph in max-plus algebra, as of timed event graphs (Baccelli et al. 1992).
#include "moe/simulator/rank_replay.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "moe/base/check.h"
#include "moe/base/statistics.h"
#include "moe/simulator/detail/rank_loops.h"
#include "moe/simulator/simulator.h"

namespace moe {

using rank_loops::add;
using rank_loops::add_to;
using rank_loops::group_max;
using rank_loops::GroupStride;
using rank_loops::RankSlowdowns;
using rank_loops::spread;

int rank_loops::stages_of(const Structure& structure, const ParallelShape& parallel) {
  int stages = 1;
  for (const Lane& lane : structure.lanes) stages = std::max(stages, lane.stage + 1);
  require<WrongResult>(stages <= parallel.pp, "rank replay: {} stages, at most {} expected", stages, parallel.pp);
  return stages;
}

int rank_loops::layers_of(const Structure& structure) {
  int layers = 1;
  for (const Task& task : structure.tasks)
    if (is_of_layer(task.kind)) layers = std::max(layers, task.layer + 1);
  return layers;
}

GroupStride rank_loops::group_stride_of(const Task& task, const ParallelShape& parallel) {
  if (task.group == GroupKind::none || task.group == GroupKind::pp) return {};
  // The norm has one task per stage, and all of them wait for the same tasks, so each has only the stage's ranks here.
  const GroupKind kind = task.group == GroupKind::world ? GroupKind::stage : task.group;
  const std::vector<int> group = members(parallel, kind, 0);
  if (group.size() < 2) return {};
  return {group.size(), static_cast<size_t>(group[1] - group[0])};
}

double RankOutcome::mean_waiting_s() const { return mean(rank_waiting_s); }

double RankOutcome::quantile_s(double share) const { return nearest_rank(makespan_s, share); }

RankReplay::RankReplay(const Structure& structure, const ParallelShape& parallel, int ranks_at_once) {
  const Replay checked(structure);
  stage_ranks_ = parallel.ranks() / parallel.pp;
  stages_ = rank_loops::stages_of(structure, parallel);
  layers_ = rank_loops::layers_of(structure);
  add_rows(structure, parallel);
  give_buffers(structure);
  cut_segments(ranks_at_once);
}

void RankReplay::add_rows(const Structure& structure, const ParallelShape& parallel) {
  for (const Task& task : structure.tasks) {
    Row& row = rows_.emplace_back();
    row.task = static_cast<uint32_t>(task.id);
    row.stage = structure.lanes[task.lane].stage;
    row.layer = task.layer;
    row.kind = task.kind;
    const GroupStride group = rank_loops::group_stride_of(task, parallel);
    row.group_size = static_cast<uint32_t>(group.size);
    row.group_step = static_cast<uint32_t>(group.step);
  }
}

std::vector<std::vector<int>> sources_of(const Structure& structure) {
  std::vector<std::vector<int>> sources;
  std::vector<int> on_lane(structure.lanes.size(), -1);
  for (const Task& task : structure.tasks) {
    std::vector<int>& own = sources.emplace_back(cross_lane_dependencies(structure, task));
    const int before = std::exchange(on_lane[task.lane], task.id);
    if (before >= 0) own.push_back(before);
  }
  return sources;
}

// Assigns each task a buffer for its ends, which another task may reuse once no task waits for them.
void RankReplay::give_buffers(const Structure& structure) {
  constexpr int kAlways = std::numeric_limits<int>::max();
  const size_t lanes = structure.lanes.size();
  const std::vector<std::vector<int>> sources = sources_of(structure);
  std::vector<int> last_use(rows_.size(), kAlways), on_lane(lanes, -1);
  for (const Task& task : structure.tasks) {
    on_lane[task.lane] = task.id;
    for (const int id : sources[task.id]) last_use[id] = task.id;
  }
  for (const int id : on_lane)
    if (id >= 0) last_use[id] = kAlways;
  std::vector<uint32_t> free;
  for (size_t i = 0; i < rows_.size(); ++i) {
    Row& row = rows_[i];
    row.first_source = static_cast<uint32_t>(sources_.size());
    for (const int id : sources[i]) {
      sources_.push_back(rows_[id].buffer);
      if (last_use[id] == static_cast<int>(i)) free.push_back(sources_.back());
    }
    row.end_source = static_cast<uint32_t>(sources_.size());
    if (free.empty()) free.push_back(static_cast<uint32_t>(buffers_++));
    row.buffer = free.back();
    free.pop_back();
  }
  for (size_t lane = 0; lane < lanes; ++lane)
    if (on_lane[lane] >= 0) lane_ends_.push_back({rows_[on_lane[lane]].buffer, structure.lanes[lane].stage});
}

void RankReplay::cut_segments(int ranks_at_once) {
  require<BadInput>(ranks_at_once >= 1, "rank replay: found {} ranks at once, expected >= 1", ranks_at_once);
  // Widest block of a segment with several tasks; a single task's groups may be wider.
  const int64_t limit = 4LL * ranks_at_once;
  int64_t block = 1;
  size_t first = 0;
  const auto close = [&](size_t end) {
    block *= std::max<int64_t>(1, ranks_at_once / block);
    segments_.push_back({first, end, static_cast<int>(std::min<int64_t>(block, stage_ranks_))});
    first = end;
    block = 1;
  };
  for (size_t i = 0; i < rows_.size(); ++i) {
    const int64_t span = int64_t{rows_[i].group_size} * rows_[i].group_step;
    if (i > first && (block > limit || std::lcm(block, span) > limit)) close(i);
    block = std::lcm(block, span);
  }
  if (!rows_.empty()) close(rows_.size());
}

class RankReplay::Run {
 public:
  Run(const RankReplay& replay, std::span<const double> seconds, const RankNoise& noise, bool differ = false,
      RankTimes* times = nullptr)
      : r_(replay),
        seconds_(seconds),
        differ_(differ),
        times_(times),
        jitter_(noise.jitters()),
        draws_(noise),
        stretch_(noise, replay.ranks()),
        stage_ranks_(static_cast<size_t>(replay.stage_ranks_)),
        ends_(replay.buffers_ * stage_ranks_),
        alone_ends_(replay.buffers_ * stage_ranks_) {
    size_t most = 0;
    for (const Segment& segment : replay.segments_) most = std::max(most, static_cast<size_t>(segment.block));
    for (std::vector<double>* scratch : {&ready_, &alone_, &own_, &group_ready_, &group_own_}) scratch->resize(most);
    bits_.resize(most);
    group_bits_.resize(most);
  }

  void sample(int number) {
    sample_ = number;
    for (const Segment& segment : r_.segments_) {
      const auto block = static_cast<size_t>(segment.block);
      for (size_t begin = 0; begin < stage_ranks_; begin += block)
        for (size_t row = segment.first; row < segment.end; ++row)
          step(r_.rows_[row], begin, std::min(block, stage_ranks_ - begin));
    }
  }

  // Adds the sample's results to each rank's sums.
  void collect(RankOutcome& outcome) {
    std::vector<double> ends(r_.ranks()), alone(ends.size());
    for (const LaneEnd& lane : r_.lane_ends_)
      for (size_t i = 0, rank = static_cast<size_t>(lane.stage) * stage_ranks_; i < stage_ranks_; ++i, ++rank) {
        ends[rank] = std::max(ends[rank], ends_[lane.buffer * stage_ranks_ + i]);
        alone[rank] = std::max(alone[rank], alone_ends_[lane.buffer * stage_ranks_ + i]);
      }
    outcome.makespan_s.push_back(*std::ranges::max_element(ends));
    for (size_t rank = 0; rank < ends.size(); ++rank) {
      outcome.rank_end_s[rank] += ends[rank];
      outcome.rank_waiting_s[rank] += ends[rank] - alone[rank];
    }
  }

 private:
  void step(const Row& row, size_t begin, size_t count) {
    gather(row, begin, count);
    double* const ends = ends_.data() + row.buffer * stage_ranks_ + begin;
    double* const alone_ends = alone_ends_.data() + row.buffer * stage_ranks_ + begin;
    if (row.group_size == 1) {
      own_seconds(row, begin, count);
      add(ready_.data(), own_.data(), count, ends);
      add(alone_.data(), own_.data(), count, alone_ends);
      keep_times(row, begin, count, ends);
      return;
    }
    const GroupStride group{row.group_size, row.group_step};
    const size_t groups = count / group.size;
    group_seconds(row, begin, count);
    spread(group_own_.data(), count, group, own_.data());
    add(alone_.data(), own_.data(), count, alone_ends);
    group_max(ready_.data(), count, group, group_ready_.data());
    add_to(group_own_.data(), group_ready_.data(), groups);
    spread(group_own_.data(), count, group, ends);
    keep_times(row, begin, count, ends);
  }

  void keep_times(const Row& row, size_t begin, size_t count, const double* ends) const {
    if (times_ == nullptr) return;
    const auto at = static_cast<std::ptrdiff_t>(row.task * static_cast<size_t>(r_.ranks()) + first_rank(row, begin));
    std::copy_n(ready_.data(), count, times_->ready_s.begin() + at);
    std::copy_n(ends, count, times_->end_s.begin() + at);
  }

  // Computes the time at which each rank's inputs are ready, and the time if the rank had never waited for other ranks.
  void gather(const Row& row, size_t begin, size_t count) {
    const auto latest = [&](const std::vector<double>& all, double* __restrict out) {
      if (row.first_source == row.end_source) std::fill_n(out, count, 0.0);
      for (uint32_t s = row.first_source; s < row.end_source; ++s) {
        const double* __restrict in = all.data() + r_.sources_[s] * stage_ranks_ + begin;
        if (s == row.first_source)
          std::copy_n(in, count, out);
        else
          for (size_t i = 0; i < count; ++i) out[i] = std::max(out[i], in[i]);
      }
    };
    latest(ends_, ready_.data());
    latest(alone_ends_, alone_.data());
  }

  size_t first_rank(const Row& row, size_t begin) const {
    return static_cast<size_t>(row.stage) * stage_ranks_ + begin;
  }

  const double* stretch(const Row& row, size_t begin, size_t count) const {
    const size_t rank = first_rank(row, begin);
    return stretch_.factors(row.kind, row.layer, rank, rank + count);
  }

  void draw(const Row& row, size_t begin, size_t count) {
    draws_.draw(static_cast<int>(row.task), sample_, static_cast<int>(first_rank(row, begin)), {bits_.data(), count});
  }

  // Writes the task's seconds on each rank into own_.
  void own_seconds(const Row& row, size_t begin, size_t count) {
    if (differ_) {
      const size_t at = row.task * static_cast<size_t>(r_.ranks()) + first_rank(row, begin);
      std::copy_n(seconds_.data() + at, count, own_.data());
      return;
    }
    const double seconds = seconds_[row.task];
    std::fill_n(own_.data(), count, seconds);
    if (seconds == 0) return;
    if (jitter_) {
      draw(row, begin, count);
      draws_.quantiles({bits_.data(), count}, own_.data());
      for (size_t i = 0; i < count; ++i) own_[i] *= seconds;
    }
    if (const double* factors = stretch(row, begin, count))
      for (size_t i = 0; i < count; ++i) own_[i] *= factors[i];
  }

  // Writes the seconds of each group's slowest rank into group_own_. If ranks differ only by jitter, the slowest rank
  // is the one with the largest bits.
  void group_seconds(const Row& row, size_t begin, size_t count) {
    const GroupStride group{row.group_size, row.group_step};
    const size_t groups = count / group.size;
    if (differ_) {
      own_seconds(row, begin, count);
      group_max(own_.data(), count, group, group_own_.data());
      return;
    }
    const double seconds = seconds_[row.task];
    if (seconds > 0 && stretch(row, begin, count) != nullptr) {
      own_seconds(row, begin, count);
      group_max(own_.data(), count, group, group_own_.data());
      return;
    }
    std::fill_n(group_own_.data(), groups, seconds);
    if (seconds == 0 || !jitter_) return;
    draw(row, begin, count);
    group_max(bits_.data(), count, group, group_bits_.data());
    draws_.quantiles({group_bits_.data(), groups}, group_own_.data());
    for (size_t i = 0; i < groups; ++i) group_own_[i] *= seconds;
  }

  const RankReplay& r_;
  std::span<const double> seconds_;  // by task id, or by task and rank if ranks differ
  bool differ_;
  RankTimes* times_;
  bool jitter_;
  JitterDraws draws_;
  RankSlowdowns stretch_;
  size_t stage_ranks_;
  int sample_ = 0;
  std::vector<double> ends_, alone_ends_;                              // by buffer and rank of the stage
  std::vector<double> ready_, alone_, own_, group_ready_, group_own_;  // scratch of a block
  std::vector<uint32_t> bits_, group_bits_;
};

RankOutcome RankReplay::replay(std::span<const double> seconds, const RankNoise& noise, int samples) const {
  require<BadInput>(samples >= 1, "samples: found {}, expected >= 1", samples);
  check_noise(noise, ranks(), layers_);
  return rank_loops::outcome_of(Run(*this, seconds, noise), ranks(), samples);
}

RankOutcome RankReplay::replay_rank_seconds(std::span<const double> seconds, RankTimes* times) const {
  require_equal(seconds.size(), rows_.size() * static_cast<size_t>(ranks()), "rank replay: seconds by task and rank");
  if (times != nullptr) {
    times->ranks = ranks();
    times->ready_s.assign(rows_.size() * static_cast<size_t>(ranks()), 0);
    times->end_s = times->ready_s;
  }
  return rank_loops::outcome_of(Run(*this, seconds, {}, true, times), ranks(), 1);
}

}  // namespace moe
