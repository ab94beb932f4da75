#pragma once
// Replays a structure on all ranks of a cluster, where they differ. A rank's lanes run their tasks in order, each as
// soon as its inputs are there. A computation is each rank's own. A collective starts when the last rank of its group
// is ready and ends for all of them together, after the seconds of the slowest. A transfer between pipeline stages is
// its sender's and its receiver's own: `after` says who waits for whom, rank by rank at the same place of its stage.
// Lanes do not slow each other down here: that is FluidReplay, in which ranks are alike.
#include <cstdint>
#include <span>
#include <vector>

#include "moe/simulator/rank_noise.h"

namespace moe {

/// What a replay on all ranks took, in seconds. A sample is one replay; samples differ by their jitter alone.
struct RankOutcome {
  std::vector<double> makespan_s;  // by sample
  std::vector<double> rank_end_s;  // by rank: when its last task ends, mean over samples
  /// The seconds, by rank, that it loses by waiting for others, mean over samples, without the waiting that other lanes
  /// hide: how much later it ends than if every collective had started as soon as this rank was ready, and taken as
  /// long as it did.
  std::vector<double> rank_waiting_s;

  double median_s() const { return quantile_s(0.5); }
  double p95_s() const { return quantile_s(0.95); }
  double max_s() const { return quantile_s(1); }
  double mean_waiting_s() const;
  /// Returns the least makespan that so large a share of the samples does not exceed.
  double quantile_s(double share) const;
};

/// When each task was ready and ended on each rank, by task and rank: [task * ranks + rank].
struct RankTimes {
  int ranks = 0;
  std::vector<double> ready_s, end_s;  // ready: all its inputs were there; a collective may start later

  double ready(int task, int rank) const { return ready_s[task * ranks + rank]; }
  double end(int task, int rank) const { return end_s[task * ranks + rank]; }
};

/// A structure compiled for replay on all ranks of its stages. Tasks go over arrays of ranks, in issue order; the
/// ranks are taken in blocks that hold whole groups, small enough for the cache, up to a collective that spans more.
class RankReplay {
 public:
  /// Compiles a structure. Ranks are laid out as in ParallelShape; a lane's tasks run on the ranks of its stage.
  /// `ranks_at_once`: about how many ranks make a block; no result depends on it. Throws WrongResult for what Replay
  /// refuses, or a stage that the shape does not have.
  RankReplay(const Structure& structure, const ParallelShape& parallel, int ranks_at_once = 1024);

  /// Replays the structure. `seconds`: by task id. Throws BadInput for a noise that does not fit (check_noise).
  RankOutcome replay(std::span<const double> seconds, const RankNoise& noise, int samples = 1) const;
  /// Replays the structure once, with seconds of each task on each rank: [task * ranks + rank]. Fills `times`
  /// unless that is null.
  RankOutcome replay_each(std::span<const double> seconds, RankTimes* times = nullptr) const;

  int ranks() const { return stages_ * stage_ranks_; }
  size_t tasks() const { return rows_.size(); }

 private:
  class Run;
  struct Row {
    uint32_t task, first_source, end_source;
    uint32_t buffer;                          // where its ends go
    uint32_t group_size = 1, group_step = 1;  // 1: each rank on its own
    int stage = 0, layer = 0;
    TaskKind kind{};
  };
  struct Segment {  // tasks that go over the ranks block by block, together
    size_t first, end;
    int block;
  };
  struct LaneEnd {
    uint32_t buffer;
    int stage;
  };
  void add_rows(const Structure& structure, const ParallelShape& parallel);
  void give_buffers(const Structure& structure);
  void cut_segments(int ranks_at_once);

  int stages_ = 1, stage_ranks_ = 0, layers_ = 1;
  std::vector<Row> rows_;          // in issue order
  std::vector<uint32_t> sources_;  // buffers with the ends of what a task waits for
  std::vector<Segment> segments_;
  std::vector<LaneEnd> lane_ends_;
  size_t buffers_ = 0;
};

/// Returns by task the tasks that it waits for: those of other lanes (awaited) and the one before it on its own.
std::vector<std::vector<int>> sources_of(const Structure& structure);

}  // namespace moe
