#include "tests/simulator/rank_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "moe/base/enum_array.h"

namespace moe::ranks {
namespace {

int stage_of(const Draw& d, const Task& task) { return d.structure.lanes[task.lane].stage; }

// The ranks that run a task together with this one, itself among them.
std::vector<int> together(const Draw& d, const Task& task, int rank) {
  if (task.group == GroupKind::none || task.group == GroupKind::pp) return {rank};
  return members(d.parallel, task.group, rank);
}

// Loads are given for the ranks of the stages that have tasks, for all layers alike or for each.
double load_of(const Draw& d, int layer, int rank) {
  int stages = 1;
  for (const Lane& lane : d.structure.lanes) stages = std::max(stages, lane.stage + 1);
  const int given = stages * d.parallel.ranks() / d.parallel.pp;
  if (d.noise.load.empty() || rank >= given) return 1;
  const bool by_layer = d.noise.load.size() > static_cast<size_t>(given);
  return d.noise.load[(by_layer ? layer * given : 0) + rank];
}

using Table = std::vector<std::vector<double>>;  // by rank and task

// A rank's own seconds.
Table own_seconds(const Draw& d, int sample) {
  const int ranks = d.parallel.ranks();
  const JitterDraws draws(d.noise);
  Table table(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    for (const Task& task : d.structure.tasks) {
      double seconds = d.seconds[task.id];
      if (d.noise.jitter != Jitter::none) seconds *= draws.factor(task.id, sample, rank);
      for (const Straggler& s : d.noise.stragglers)
        if (s.rank == rank) seconds *= s.factor;
      if (std::ranges::count(d.noise.loaded, task.kind) > 0) seconds *= load_of(d, task.layer, rank);
      table[rank].push_back(seconds);
    }
  return table;
}

Table slowest_of_group(const Draw& d, const Table& own) {
  Table table = own;
  for (size_t rank = 0; rank < own.size(); ++rank)
    for (const Task& task : d.structure.tasks)
      for (const int peer : together(d, task, static_cast<int>(rank))) {
        double& seconds = table[rank][task.id];
        seconds = std::max(seconds, own[peer][task.id]);
      }
  return table;
}

// The product of what slows a task of a rank on which so many run, by resource.
double slowdown_of(const Contention& c, Resource resource, const EnumArray<Resource, int, kResources>& running) {
  const bool network = resource == Resource::inter || resource == Resource::intra;
  double slowdown = network ? running[resource] : 1;
  for (const ContentionPair& pair : contention_pairs())
    if (pair.slowed == resource) slowdown *= std::pow(c.*pair.factor, running[pair.by]);
  return slowdown;
}

double stall_of(const Contention& c, Resource slowed, Resource by) {
  for (const ContentionPair& pair : contention_pairs())
    if (pair.slowed == slowed && pair.by == by) return pair.stall_s(c);
  return 0;
}

// Ranks that go through their queues. Between two ends every rate is looked up anew, and all work goes on at it.
class Clockwork {
 public:
  Clockwork(const Draw& d, const Table& seconds, bool wait_for_others)
      : d_(d), left_(seconds), wait_(wait_for_others), ranks_(d.parallel.ranks()) {
    state_.assign(ranks_, std::vector<State>(d.structure.tasks.size(), State::queued));
    starts_.assign(ranks_, std::vector<double>(d.structure.tasks.size()));
    ends_ = lost_ = starts_;
  }

  void run() {
    for (double now = 0;;) {
      begin_all(now);
      const double step = least_left();
      if (step == kNever) return;
      advance(step, now += step);
    }
  }

  std::vector<double> last_ends() const {
    std::vector<double> last;
    for (const auto& of_rank : ends_) last.push_back(*std::ranges::max_element(of_rank));
    return last;
  }
  // How long each task ran on each rank.
  Table lengths() const {
    Table table = ends_;
    for (size_t rank = 0; rank < table.size(); ++rank)
      for (size_t task = 0; task < table[rank].size(); ++task) table[rank][task] -= starts_[rank][task];
    return table;
  }

 private:
  enum class State : uint8_t { queued, arrived, runs, ended };
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  State& state(int rank, const Task& task) { return state_[rank][task.id]; }
  double& left(int rank, const Task& task) { return left_[rank][task.id]; }

  // Calls body(rank, task) for all that run.
  template <class Body>
  void each_running(Body body) {
    for (int rank = 0; rank < ranks_; ++rank)
      for (const Task& task : d_.structure.tasks)
        if (state(rank, task) == State::runs) body(rank, task);
  }

  void begin_all(double now) {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < ranks_; ++rank)
        for (const Lane& lane : d_.structure.lanes) moved = arrive(rank, lane) || moved;
      for (const Task& task : d_.structure.tasks)
        for (int rank = 0; rank < ranks_; ++rank) moved = start(rank, task, now) || moved;
    }
  }

  // The first task of a lane that has not ended comes to its head, with all it waits for ended on this rank, or on the
  // rank at the same place of another stage.
  bool arrive(int rank, const Lane& lane) {
    const int stage_ranks = ranks_ / d_.parallel.pp;
    for (const int id : lane.queue) {
      const Task& task = d_.structure.tasks[id];
      if (rank / stage_ranks != stage_of(d_, task)) return false;
      if (state(rank, task) == State::ended) continue;
      if (state(rank, task) != State::queued) return false;
      for (const int p : task.after) {
        const Task& before = d_.structure.tasks[p];
        if (state(rank % stage_ranks + stage_of(d_, before) * stage_ranks, before) != State::ended) return false;
      }
      state(rank, task) = State::arrived;
      return true;
    }
    return false;
  }

  bool start(int rank, const Task& task, double now) {
    if (state(rank, task) != State::arrived) return false;
    const std::vector<int> group = peers(rank, task);
    for (const int peer : group)
      if (state(peer, task) != State::arrived) return false;
    for (const int peer : group) {
      starts_[peer][task.id] = now;
      ends_[peer][task.id] = now;
      state(peer, task) = left(peer, task) > 0 ? State::runs : State::ended;
    }
    if (wait_ && left(rank, task) > 0) stall(task, group, now);
    return true;
  }

  // Both lose time on every rank where they meet, and a collective as much as on the rank where that is most.
  void stall(const Task& task, const std::vector<int>& group, double now) {
    std::set<std::pair<int, int>> met;  // a rank of the group, task
    Table& lost = lost_;
    for (const int peer : group) lost[peer][task.id] = 0;
    Table before = lost;
    for (const int peer : group)
      for (const Task& other : d_.structure.tasks) {
        if (other.id == task.id || state(peer, other) != State::runs) continue;
        if (left(peer, other) * slowdown(peer, other) <= 1e-12 * now) continue;  // but for rounding it has ended
        auto& of_peer = lost[peer];
        of_peer[task.id] += stall_of(d_.contention, resource(task), resource(other));
        of_peer[other.id] += stall_of(d_.contention, resource(other), resource(task));
        met.emplace(peers(peer, other).front(), other.id);
      }
    met.emplace(group.front(), task.id);
    for (const auto& [first, id] : met) {
      const Task& each = d_.structure.tasks[id];
      const double more = most_lost(lost, first, each) - most_lost(before, first, each);
      for (const int peer : peers(first, each)) left(peer, each) += more;
    }
  }

  double most_lost(const Table& lost, int rank, const Task& task) const {
    double most = 0;
    for (const int peer : peers(rank, task)) most = std::max(most, lost[peer][task.id]);
    return most;
  }

  Resource resource(const Task& of) const { return resource_of(of, d_.structure.lanes[of.lane], d_.networks); }

  std::vector<int> peers(int rank, const Task& task) const {
    return wait_ ? together(d_, task, rank) : std::vector<int>{rank};
  }

  // Of a collective that of its slowest rank.
  double slowdown(int rank, const Task& task) {
    if (!wait_) return 1;
    double most = 1;
    for (const int peer : peers(rank, task)) {
      EnumArray<Resource, int, kResources> running{};
      for (const Task& other : d_.structure.tasks)
        if (state(peer, other) == State::runs) ++running[resource(other)];
      most = std::max(most, slowdown_of(d_.contention, resource(task), running));
    }
    return most;
  }

  double least_left() {
    double least = kNever;
    each_running([&](int rank, const Task& task) { least = std::min(least, left(rank, task) * slowdown(rank, task)); });
    return least;
  }

  void advance(double step, double now) {
    std::vector<std::pair<int, const Task*>> ended;
    each_running([&](int rank, const Task& task) {
      const double slowed = slowdown(rank, task), whole = left(rank, task) * slowed;
      if (whole <= step * (1 + 1e-14))
        ended.emplace_back(rank, &task);
      else
        left(rank, task) -= step / slowed;
    });
    for (const auto& [rank, task] : ended) {
      state(rank, *task) = State::ended;
      ends_[rank][task->id] = now;
    }
  }

  const Draw& d_;
  Table left_;  // seconds alone
  bool wait_;
  int ranks_;
  Table lost_;  // seconds, to what ran beside
  std::vector<std::vector<State>> state_;
  Table starts_, ends_;
};

}  // namespace

Result replay(const Draw& d, int sample) {
  const Table seconds = slowest_of_group(d, own_seconds(d, sample));
  Clockwork real(d, seconds, true);
  real.run();
  Clockwork alone(d, real.lengths(), false);
  alone.run();
  Result result;
  result.end_s = real.last_ends();
  const std::vector<double> alone_s = alone.last_ends();
  for (size_t rank = 0; rank < alone_s.size(); ++rank) {
    result.waiting_s.push_back(result.end_s[rank] - alone_s[rank]);
    result.makespan_s = std::max(result.makespan_s, result.end_s[rank]);
  }
  return result;
}

}  // namespace moe::ranks
