#include "moe/search/detail/micro_ops.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace moe::search {
namespace {

constexpr double kNothingHeld = std::numeric_limits<double>::max();

class Freezer {
 public:
  Freezer(const Structure& structure, std::span<const double> seconds, std::span<const MicroOp> pieces, bool hold,
          int last)
      : structure_(structure), seconds_(seconds), pieces_(pieces), last_(last), ends_(structure.tasks.size()) {
    lanes_.resize(structure.lanes.size());
    frozen_.places.resize(pieces.size());
    for (size_t i = 0; i < pieces.size(); ++i) lanes_[pieces[i].lane].pieces.push_back(i);
    if (!hold) return;
    for (const Task& task : structure.tasks)
      if (first_alltoall(task)) lanes_[task.lane].carries_alltoall = true;
  }

  MicroOps run() {
    for (const Task& task : structure_.tasks) {
      if (sends_gradients(task.kind)) continue;
      double ready = 0;
      for (const int id : task.after) ready = std::max(ready, ends_[id]);
      LaneState& lane = lanes_[task.lane];
      if (is_last_backward(task)) fill_idle_lane(task, ready, lane);
      lane.end = ends_[task.id] = std::max(ready, lane.end) + seconds_[task.id];
    }
    for (LaneState& lane : lanes_) {
      while (lane.next < lane.pieces.size()) send(lane, -1);
      frozen_.seconds = std::max(frozen_.seconds, lane.end);
    }
    return std::move(frozen_);
  }

 private:
  struct LaneState {
    std::vector<size_t> pieces;
    size_t next = 0;
    double end = 0;
    int layer = -1, passed = 0;
    bool carries_alltoall = false;
    double held_from = kNothingHeld;  // no piece starts from here until the next AlltoAll
  };

  bool is_last_backward(const Task& task) const { return task.phase == Phase::backward && task.micro_batch == last_; }
  bool first_alltoall(const Task& task) const {
    return task.kind == TaskKind::dispatch && is_last_backward(task) && task.chunk == 0;
  }
  double start_of(const MicroOp& piece, const LaneState& lane) const {
    return piece.made_by < 0 ? lane.end : std::max(lane.end, ends_[piece.made_by]);
  }
  void send(LaneState& lane, int layer) {
    const size_t i = lane.pieces[lane.next++];
    lane.end = start_of(pieces_[i], lane) + pieces_[i].seconds;
    frozen_.places[i] = {layer, lane.passed};
  }

  // Starts pieces while the lane is idle before `task` is ready.
  void fill_idle_lane(const Task& task, double ready, LaneState& lane) {
    if (task.kind == TaskKind::i_order)
      for (LaneState& other : lanes_)
        if (other.carries_alltoall && stage_of(other) == stage_of(lane)) other.held_from = ready;
    if (task.kind == TaskKind::send || task.kind == TaskKind::recv) return;
    if (lane.layer != task.layer) lane.layer = task.layer, lane.passed = 0;
    while (lane.next < lane.pieces.size()) {
      const MicroOp& piece = pieces_[lane.pieces[lane.next]];
      if (piece.made_by >= task.id) break;  // the maker has not been replayed yet
      const double start = start_of(piece, lane);
      if (start >= std::min(ready, lane.held_from)) break;
      send(lane, task.layer);
    }
    if (first_alltoall(task)) lane.held_from = kNothingHeld;
    ++lane.passed;
  }
  int stage_of(const LaneState& lane) const { return structure_.lanes[&lane - lanes_.data()].stage; }

  const Structure& structure_;
  std::span<const double> seconds_;
  std::span<const MicroOp> pieces_;
  int last_;
  std::vector<double> ends_;  // by task
  std::vector<LaneState> lanes_;
  MicroOps frozen_;
};

}  // namespace

MicroOps freeze_micro_ops(const Structure& structure, std::span<const double> seconds, std::span<const MicroOp> pieces,
                          bool hold, int last) {
  return Freezer(structure, seconds, pieces, hold, last).run();
}

}  // namespace moe::search
