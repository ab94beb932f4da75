#pragma once
// Replays a structure on all ranks of a cluster, if they differ. A rank's lanes run their tasks in order, each as soon
// as its inputs are ready. Each rank runs computations on its own. A collective starts when the last rank of its group
// is ready and ends for all of them together, after the seconds of the slowest rank. Sender and receiver of a transfer
// between pipeline stages have a task each: `after` connects them, for ranks at the same position in their stages.
// Lanes do not slow each other here; FluidReplay has such lanes, with equal ranks.
#include <cstdint>
#include <span>
#include <vector>

#include "moe/simulator/rank_noise.h"

namespace moe {

/// The result of a replay on all ranks, in seconds. A sample is one replay; samples differ only in their jitter.
struct RankOutcome {
  std::vector<double> makespan_s;  // by sample
  std::vector<double> rank_end_s;  // by rank: end of its last task, mean over samples
  /// By rank: the seconds lost by waiting for other ranks, mean over samples, excluding waits that other lanes hide. It
  /// is the difference to the rank's end if every collective had started as soon as this rank was ready and had taken
  /// the same time.
  std::vector<double> rank_waiting_s;

  double median_s() const { return quantile_s(0.5); }
  double p95_s() const { return quantile_s(0.95); }
  double max_s() const { return quantile_s(1); }
  double mean_waiting_s() const;
  /// Returns the least makespan that a share `share` of the samples does not exceed.
  double quantile_s(double share) const;
};

/// The times at which each task was ready and ended on each rank, by task and rank: [task * ranks + rank].
struct RankTimes {
  int ranks = 0;
  std::vector<double> ready_s, end_s;  // ready: all inputs were ready; a collective may start later

  double ready(int task, int rank) const { return ready_s[task * ranks + rank]; }
  double end(int task, int rank) const { return end_s[task * ranks + rank]; }
};

/// A structure compiled for replay on all ranks of its stages. Tasks are operations on arrays of ranks, in issue order.
/// Ranks are processed in blocks of whole groups that fit into the cache, up to a collective that spans more ranks.
class RankReplay {
 public:
  /// Compiles a structure. Ranks are laid out as in ParallelShape; a lane's tasks run on the ranks of its stage.
  /// `ranks_at_once`: approximate ranks of a block, without effect on results. Throws WrongResult for a structure that
  /// Replay refuses, or for a stage that the shape does not have.
  RankReplay(const Structure& structure, const ParallelShape& parallel, int ranks_at_once = 1024);

  /// Replays the structure. `seconds`: by task id. Throws BadInput for a noise that does not fit (check_noise).
  RankOutcome replay(std::span<const double> seconds, const RankNoise& noise, int samples = 1) const;
  /// Replays the structure once, with seconds of each task on each rank: [task * ranks + rank]. Fills `times` unless it
  /// is null.
  RankOutcome replay_each(std::span<const double> seconds, RankTimes* times = nullptr) const;

  int ranks() const { return stages_ * stage_ranks_; }
  size_t tasks() const { return rows_.size(); }

 private:
  class Run;
  struct Row {
    uint32_t task, first_source, end_source;
    uint32_t buffer;                          // buffer for its ends
    uint32_t group_size = 1, group_step = 1;  // 1: each rank on its own
    int stage = 0, layer = 0;
    TaskKind kind{};
  };
  struct Segment {  // tasks that are processed together, block by block
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
  std::vector<uint32_t> sources_;  // buffers with the ends of the tasks that a task waits for
  std::vector<Segment> segments_;
  std::vector<LaneEnd> lane_ends_;
  size_t buffers_ = 0;
};

/// Returns, by task, the tasks that it waits for: those of other lanes (awaited) and the one before it on its lane.
std::vector<std::vector<int>> sources_of(const Structure& structure);

}  // namespace moe
