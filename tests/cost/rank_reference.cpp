#include "tests/cost/rank_reference.h"

#include <algorithm>
#include <limits>

#include "moe/base/random.h"

namespace moe::ranks {
namespace {

class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  int below(int n) { return static_cast<int>(random_bits(seed_, 17, index_++) % static_cast<uint64_t>(n)); }
  double uniform() { return random_uniform(seed_, 18, index_++); }
  int divisor(int n) {
    std::vector<int> all;
    for (int d = 1; d <= n; ++d)
      if (n % d == 0) all.push_back(d);
    return all[static_cast<size_t>(below(static_cast<int>(all.size())))];
  }

 private:
  uint64_t seed_, index_ = 0;
};

ParallelShape random_shape(Draws& draws) {
  ParallelShape p;
  p.nodes = 1 + draws.below(6);
  p.ranks_per_node = 1 + draws.below(8);
  p.pp = draws.below(3) == 0 ? draws.divisor(p.ranks()) : 1;
  const int stage = p.ranks() / p.pp;
  p.mp = draws.divisor(stage);
  p.dp = stage / p.mp;
  p.ep = draws.divisor(stage);
  p.esp = draws.divisor(stage / p.ep);
  p.edp = stage / p.ep / p.esp;
  return p;
}

RankNoise random_noise(Draws& draws, int ranks) {
  RankNoise noise;
  noise.jitter = static_cast<Jitter>(draws.below(3));
  noise.coefficient = 0.3 * draws.uniform();
  noise.seed = static_cast<uint64_t>(draws.below(1000));
  for (int rank = 0; rank < ranks; ++rank)
    if (draws.below(12) == 0) noise.stragglers.push_back({rank, 0.5 + 2 * draws.uniform()});
  if (draws.below(2) == 0)
    for (int rank = 0; rank < ranks; ++rank) noise.load.push_back(2 * draws.uniform());
  if (draws.below(3) == 0) noise.loaded.push_back(TaskKind::allgather);
  return noise;
}

int stage_of(const Draw& d, const Task& task) { return d.structure.lanes[static_cast<size_t>(task.lane)].stage; }

// The ranks that run a task together with this one, itself among them.
std::vector<int> together(const Draw& d, const Task& task, int rank) {
  if (task.group == GroupKind::none || task.group == GroupKind::pp) return {rank};
  return members(d.parallel, task.group, rank);
}

using Table = std::vector<std::vector<double>>;  // by rank and task

// A rank's own seconds.
Table own_seconds(const Draw& d, int sample) {
  const int ranks = d.parallel.ranks();
  const JitterDraws draws(d.noise);
  Table table(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    for (const Task& task : d.structure.tasks) {
      double seconds = d.seconds[static_cast<size_t>(task.work_class)];
      if (d.noise.jitter != Jitter::none) seconds *= draws.factor(task.id, sample, rank);
      for (const Straggler& s : d.noise.stragglers)
        if (s.rank == rank) seconds *= s.factor;
      if (!d.noise.load.empty() && std::ranges::count(d.noise.loaded, task.kind) > 0)
        seconds *= d.noise.load[static_cast<size_t>(rank)];
      table[static_cast<size_t>(rank)].push_back(seconds);
    }
  return table;
}

Table slowest_of_group(const Draw& d, const Table& own) {
  Table table = own;
  for (size_t rank = 0; rank < own.size(); ++rank)
    for (const Task& task : d.structure.tasks)
      for (const int peer : together(d, task, static_cast<int>(rank))) {
        double& seconds = table[rank][static_cast<size_t>(task.id)];
        seconds = std::max(seconds, own[static_cast<size_t>(peer)][static_cast<size_t>(task.id)]);
      }
  return table;
}

// Ranks that go through their queues; the clock jumps from end to end.
class Clockwork {
 public:
  Clockwork(const Draw& d, const Table& seconds, bool wait_for_others)
      : d_(d), seconds_(seconds), wait_(wait_for_others), ranks_(d.parallel.ranks()) {
    arrived_.assign(static_cast<size_t>(ranks_), std::vector<bool>(d.structure.tasks.size()));
    ends_.assign(static_cast<size_t>(ranks_), std::vector<double>(d.structure.tasks.size(), kNever));
  }

  std::vector<double> run() {
    for (double now = 0; now < kNever; now = next_end(now)) {
      for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < ranks_; ++rank)
          for (const Lane& lane : d_.structure.lanes) moved = arrive(rank, lane, now) || moved;
        for (const Task& task : d_.structure.tasks)
          for (int rank = 0; rank < ranks_; ++rank) moved = start(rank, task, now) || moved;
      }
    }
    std::vector<double> last(static_cast<size_t>(ranks_));
    for (int rank = 0; rank < ranks_; ++rank)
      for (const Task& task : d_.structure.tasks)
        if (runs(rank, task))
          last[static_cast<size_t>(rank)] = std::max(last[static_cast<size_t>(rank)], end(rank, task));
    return last;
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  bool runs(int rank, const Task& task) const { return rank / (ranks_ / d_.parallel.pp) == stage_of(d_, task); }
  double& end(int rank, const Task& task) { return ends_[static_cast<size_t>(rank)][static_cast<size_t>(task.id)]; }
  std::vector<bool>::reference arrived(int rank, const Task& task) {
    return arrived_[static_cast<size_t>(rank)][static_cast<size_t>(task.id)];
  }

  // The first task of a lane that has not ended comes to its head, with all it waits for ended on this rank, or on the
  // rank at the same place of another stage.
  bool arrive(int rank, const Lane& lane, double now) {
    const int stage_ranks = ranks_ / d_.parallel.pp;
    for (const int id : lane.queue) {
      const Task& task = d_.structure.tasks[static_cast<size_t>(id)];
      if (!runs(rank, task)) return false;
      if (end(rank, task) <= now) continue;
      if (arrived(rank, task)) return false;
      for (const int p : task.after) {
        const Task& before = d_.structure.tasks[static_cast<size_t>(p)];
        if (end(rank % stage_ranks + stage_of(d_, before) * stage_ranks, before) > now) return false;
      }
      arrived(rank, task) = true;
      return true;
    }
    return false;
  }

  bool start(int rank, const Task& task, double now) {
    if (!arrived(rank, task) || end(rank, task) < kNever) return false;
    const std::vector<int> group = wait_ ? together(d_, task, rank) : std::vector<int>{rank};
    for (const int peer : group)
      if (!arrived(peer, task)) return false;
    for (const int peer : group)
      end(peer, task) = now + seconds_[static_cast<size_t>(peer)][static_cast<size_t>(task.id)];
    return true;
  }

  double next_end(double now) const {
    double next = kNever;
    for (const auto& of_rank : ends_)
      for (const double end : of_rank)
        if (end > now) next = std::min(next, end);
    return next;
  }

  const Draw& d_;
  const Table& seconds_;
  bool wait_;
  int ranks_;
  std::vector<std::vector<bool>> arrived_;
  Table ends_;
};

}  // namespace

Draw random_draw(uint64_t seed) {
  constexpr std::array kGroups{GroupKind::none, GroupKind::ep,  GroupKind::esp,    GroupKind::mp,
                               GroupKind::dp,   GroupKind::edp, GroupKind::ep_esp, GroupKind::pp};
  constexpr std::array kKinds{TaskKind::dispatch, TaskKind::expert, TaskKind::combine, TaskKind::allgather,
                              TaskKind::attention};
  Draws draws(seed);
  Draw d;
  d.parallel = random_shape(draws);
  const int stages = 1 + draws.below(std::min(3, d.parallel.pp));
  for (int lanes = stages + draws.below(4), lane = 0; lane < lanes; ++lane)
    d.structure.lanes.push_back({LaneKind::compute, lane < stages ? lane : draws.below(stages), false, false, {}});
  const int density = 2 + draws.below(12);
  for (int id = 0, tasks = 1 + draws.below(30); id < tasks; ++id) {
    Task task;
    task.id = task.work_class = id;
    task.lane = draws.below(static_cast<int>(d.structure.lanes.size()));
    task.kind = kKinds[static_cast<size_t>(draws.below(static_cast<int>(kKinds.size())))];
    if (draws.below(3) > 0) task.group = kGroups[static_cast<size_t>(draws.below(static_cast<int>(kGroups.size())))];
    for (int p = 0; p < id; ++p)
      if (draws.below(density) == 0) task.after.push_back(p);
    d.structure.lanes[static_cast<size_t>(task.lane)].queue.push_back(id);
    d.seconds.push_back(draws.below(5) == 0 ? 0 : 0.1 + draws.uniform());
    d.structure.tasks.push_back(std::move(task));
  }
  d.structure.classes.resize(d.structure.tasks.size());
  d.noise = random_noise(draws, stages * d.parallel.ranks() / d.parallel.pp);
  return d;
}

Result replay(const Draw& given, int sample) {
  Draw d = given;  // on the ranks of all stages, whether they have tasks or not
  if (!d.noise.load.empty()) d.noise.load.resize(static_cast<size_t>(d.parallel.ranks()), 1.0);
  const Table seconds = slowest_of_group(d, own_seconds(d, sample));
  Result result;
  result.end_s = Clockwork(d, seconds, true).run();
  const std::vector<double> alone = Clockwork(d, seconds, false).run();
  for (size_t rank = 0; rank < alone.size(); ++rank) {
    result.waiting_s.push_back(result.end_s[rank] - alone[rank]);
    result.makespan_s = std::max(result.makespan_s, result.end_s[rank]);
  }
  return result;
}

}  // namespace moe::ranks
