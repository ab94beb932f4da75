#pragma once
// The replay of a structure on all ranks of a cluster, for ranks that differ. A rank's lanes run their tasks in order,
// each as soon as its inputs are ready. Computations of different ranks are independent. A collective starts when the
// last rank of its group is ready, and ends on all of them at once, after the seconds of the slowest rank. A transfer
// between pipeline stages is two tasks, send and receive; Task::after connects those of ranks at the same position in
// their stages. Lanes do not slow each other here; see RankFluidReplay.
#include <cstdint>
#include <span>
#include <vector>

#include "moe/simulator/rank_noise.h"

namespace moe {

/// The result of replays on all ranks, in seconds. Each sample is one replay; samples differ only in their jitter.
struct RankOutcome {
  std::vector<double> makespan_s;  // for each sample
  std::vector<double> rank_end_s;  // for each rank: end of its last task, mean over samples
  /// For each rank: seconds lost by waiting for other ranks, mean over samples; waits that other lanes hide do not
  /// count. It is the difference between the rank's end and the end that it would have if every collective started as
  /// soon as this rank is ready and took the same time.
  std::vector<double> rank_waiting_s;

  double median_s() const { return quantile_s(0.5); }
  double p95_s() const { return quantile_s(0.95); }
  double max_s() const { return quantile_s(1); }
  double mean_waiting_s() const;
  /// Returns the smallest makespan that at least the share `share` of the samples does not exceed.
  double quantile_s(double share) const;
};

/// The times of each task on each rank, at index task * ranks + rank.
struct RankTimes {
  int ranks = 0;
  std::vector<double> ready_s, end_s;  // ready_s: all inputs of the rank were ready; a collective may start later

  double ready(int task, int rank) const { return ready_s[task * ranks + rank]; }
  double end(int task, int rank) const { return end_s[task * ranks + rank]; }
};

/// A structure compiled for replays on all ranks of its stages.
class RankReplay {
 public:
  /// Compiles a structure. Ranks are numbered as in ParallelShape; a lane's tasks run on the ranks of its stage.
  /// `ranks_at_once`: approximate number of ranks that are processed together, without effect on results. Throws
  /// WrongResult as checked() does, and if the structure has more stages than `parallel`.
  RankReplay(const Structure& structure, const ParallelShape& parallel, int ranks_at_once = 1024);

  /// Replays the structure. `seconds`: for each task id. Throws BadInput as check_noise does.
  RankOutcome replay(std::span<const double> seconds, const RankNoise& noise, int samples = 1) const;
  /// Replays the structure once. `seconds`: of each task on each rank, at index task * ranks + rank. Fills `times`
  /// unless it is null.
  RankOutcome replay_rank_seconds(std::span<const double> seconds, RankTimes* times = nullptr) const;

  int ranks() const { return stages_ * stage_ranks_; }
  size_t tasks() const { return rows_.size(); }

 private:
  class Run;
  struct Row {
    uint32_t task, first_source, end_source;
    uint32_t buffer;                          // buffer of its ends
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

/// Returns, for each task, the tasks that it waits for: those of other lanes (cross_lane_dependencies()) and the one
/// before it on its own.
std::vector<std::vector<int>> sources_of(const Structure& structure);

}  // namespace moe
