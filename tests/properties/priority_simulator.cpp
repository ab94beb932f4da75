#include "tests/properties/priority_simulator.h"

#include <algorithm>
#include <limits>
#include <set>

namespace moe::conformance {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

bool is_gradient(const Task& task) { return sends_gradients(task.kind); }

class Simulator {
 public:
  Simulator(const Structure& structure, std::span<const double> seconds, std::span<const WaitingPiece> pieces,
            bool hold)
      : structure_(structure), seconds_(seconds), pieces_(pieces), hold_(hold), ended_(structure.tasks.size()) {
    run_.starts.assign(structure.tasks.size(), kNever);
    run_.piece_starts.assign(pieces.size(), kNever);
    for (const Lane& lane : structure.lanes) {
      lanes_.emplace_back();
      for (const int id : lane.queue)
        if (!is_gradient(structure.tasks[size_t(id)])) lanes_.back().queue.push_back(id);
    }
    for (const Task& combine : structure.tasks) {
      if (combine.kind != TaskKind::i_order || combine.phase != Phase::backward) continue;
      for (const Task& alltoall : structure.tasks)
        if (alltoall.kind == TaskKind::dispatch && alltoall.phase == Phase::backward && alltoall.chunk == 0 &&
            alltoall.layer == combine.layer && alltoall.micro_batch == combine.micro_batch)
          pairs_.emplace_back(&combine, &alltoall);
    }
    for (const Task& task : structure.tasks)
      if (is_gradient(task)) ended_[size_t(task.id)] = true;  // nobody waits for them but the optimizer
  }

  PriorityRun run() {
    while (true) {
      while (start_tasks()) {
      }
      for (size_t lane = 0; lane < lanes_.size(); ++lane) start_piece(lane);
      if (!advance()) break;
    }
    run_.held = static_cast<int>(held_.size());
    return run_;
  }

 private:
  struct LaneState {
    std::vector<int> queue;
    size_t next = 0;
    bool busy = false;
    int task = -1;  // that runs; -1: a piece
    double until = 0;
  };
  bool ready(const Task& task) const {
    return std::ranges::all_of(task.after, [&](int id) { return ended_[size_t(id)]; });
  }
  // True where one was started: a task that takes no time may let others start at once.
  bool start_tasks() {
    bool started = false;
    for (LaneState& lane : lanes_) {
      if (lane.busy || lane.next == lane.queue.size()) continue;
      const Task& task = structure_.tasks[size_t(lane.queue[lane.next])];
      if (!ready(task)) continue;
      started = true;
      ++lane.next;
      run_.starts[size_t(task.id)] = now_;
      occupy(lane, task.id, seconds_[size_t(task.id)]);
    }
    return started;
  }
  void occupy(LaneState& lane, int task, double seconds) {
    lane.busy = true;
    lane.task = task;
    lane.until = now_ + seconds;
    if (task >= 0 && seconds == 0) finish(lane);
  }
  // A layer's combine computes its backward, or could, and its first AlltoAll on this lane has not started.
  bool imminent(size_t lane) const {
    return std::ranges::any_of(pairs_, [&](const auto& pair) {
      const auto& [combine, alltoall] = pair;
      return size_t(alltoall->lane) == lane && run_.starts[size_t(alltoall->id)] == kNever && ready(*combine);
    });
  }
  void start_piece(size_t at) {
    LaneState& lane = lanes_[at];
    if (lane.busy) return;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const WaitingPiece& piece = pieces_[i];
      if (size_t(piece.lane) != at || run_.piece_starts[i] != kNever) continue;
      if (piece.made_by >= 0 && !ended_[size_t(piece.made_by)]) return;  // first made, first sent
      if (hold_ && imminent(at)) {
        held_.insert(i);
        return;
      }
      run_.piece_starts[i] = now_;
      return occupy(lane, -1, piece.seconds);
    }
  }
  void finish(LaneState& lane) {
    if (lane.task >= 0) ended_[size_t(lane.task)] = true;
    lane.busy = false;
  }
  bool advance() {
    double next = kNever;
    for (const LaneState& lane : lanes_)
      if (lane.busy) next = std::min(next, lane.until);
    if (next == kNever) return false;
    run_.end = now_ = next;
    for (LaneState& lane : lanes_)
      if (lane.busy && lane.until == now_) finish(lane);
    return true;
  }

  const Structure& structure_;
  std::span<const double> seconds_;
  std::span<const WaitingPiece> pieces_;
  bool hold_;
  std::vector<std::pair<const Task*, const Task*>> pairs_;  // a backward's combine and its first AlltoAll
  std::vector<bool> ended_;
  std::vector<LaneState> lanes_;
  std::set<size_t> held_;
  PriorityRun run_;
  double now_ = 0;
};

}  // namespace

PriorityRun simulate_priority(const Structure& structure, std::span<const double> seconds,
                              std::span<const WaitingPiece> pieces, bool hold) {
  return Simulator(structure, seconds, pieces, hold).run();
}

}  // namespace moe::conformance
