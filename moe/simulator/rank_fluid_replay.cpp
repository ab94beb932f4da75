// Idea: RankReplay's ranks with FluidReplay's rates. One task on one group of ranks is called a run. A queue holds the
// runs' ends; the replay goes from end to end, and updates the rates of runs on the ranks where a run began or ended.
// Invariant: between two events, a run's `end_s` is the time at which it ends if no rate changes. A rank's `busy` is
// the sum of the steps of its running tasks. The queue may contain outdated ends of a run: only the one set last
// (`rated`) counts. A run begins when the last rank of its group has arrived, and has the rate of its slowest rank.
// Source: the rates are those of slowdown.h; the fluid model is that of fluid_replay.cpp.
#include "moe/simulator/rank_fluid_replay.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <utility>

#include "moe/base/check.h"
#include "moe/simulator/detail/rank_loops.h"
#include "moe/simulator/simulator.h"

namespace moe {

RankFluidReplay::RankFluidReplay(const Structure& structure, const ParallelShape& parallel,
                                 const GroupNetworks& networks, const Contention& contention)
    : slowdowns_(contention, max_at_once(checked(structure), networks)) {
  places_ = parallel.ranks() / parallel.pp;
  stages_ = rank_loops::stages_of(structure, parallel);
  layers_ = rank_loops::layers_of(structure);
  for (const Task& task : structure.tasks) {
    const Lane& lane = structure.lanes[task.lane];
    add_row(task, parallel);
    rows_.back().stage = lane.stage;
    rows_.back().resource = resource_of(task, lane, networks);
  }
  const std::vector<std::vector<int>> sources = sources_of(structure);
  for (size_t task = 0; task < rows_.size(); ++task)
    for (const int id : sources[task]) {
      rows_[task].sources.push_back(static_cast<uint32_t>(id));
      rows_[id].followers.push_back(static_cast<uint32_t>(task));
    }
}

void RankFluidReplay::add_row(const Task& task, const ParallelShape& parallel) {
  Row& row = rows_.emplace_back();
  row.layer = task.layer;
  row.kind = task.kind;
  const auto [size, step] = rank_loops::group_stride_of(task, parallel);
  row.group_size = static_cast<uint32_t>(size);
  row.group_step = static_cast<uint32_t>(step);
  row.first_run = runs_;
  runs_ += static_cast<uint32_t>(places_) / row.group_size;
}

// The state of a replay. The task on one group of ranks is called a run.
class RankFluidReplay::Run {
 public:
  Run(const RankFluidReplay& replay, std::span<const double> seconds, const RankNoise& noise)
      : r_(replay),
        seconds_(seconds),
        jitter_(noise.jitters()),
        draws_(noise),
        stretch_(noise, replay.ranks()),
        places_(static_cast<uint32_t>(replay.places_)),
        own_(replay.rows_.size() * places_),
        bits_(places_),
        waits_(own_.size()),
        stalled_(own_.size()),
        runs_(replay.runs_),
        ranks_(static_cast<size_t>(replay.ranks())) {
    for (uint32_t task = 0; task < r_.rows_.size(); ++task)
      for (uint32_t i = 0; i < places_ / r_.rows_[task].group_size; ++i)
        runs_[r_.rows_[task].first_run + i].task = task;
  }

  void sample(int number) {
    sample_ = number;
    draw_seconds();
    for (Group& run : runs_) run = {.task = run.task};
    for (uint32_t task = 0; task < r_.rows_.size(); ++task)
      for (uint32_t place = 0; place < places_; ++place) {
        const size_t sources = r_.rows_[task].sources.size();
        waits_[at(task, place)] = static_cast<uint32_t>(sources);
        if (sources == 0) arriving_.push_back({task, place});
      }
    settle(0);
    while (!ends_.empty()) {
      const double now = ends_.top().end_s;
      for (; !ends_.empty() && ends_.top().end_s == now; ends_.pop()) {
        const Group& run = runs_[ends_.top().run];
        if (run.rated == ends_.top().rated) end(ends_.top().run, now);
      }
      settle(now);
    }
  }

  // Adds the sample's results to each rank's sums.
  void collect(RankOutcome& outcome) const {
    std::vector<double> ends(ranks_.size()), alone(ranks_.size()), alone_ends(waits_.size());
    for (uint32_t task = 0; task < r_.rows_.size(); ++task)
      for (uint32_t place = 0; place < places_; ++place) {
        double& end = alone_ends[at(task, place)];
        for (const uint32_t source : r_.rows_[task].sources) end = std::max(end, alone_ends[at(source, place)]);
        const Group& run = runs_[r_.rows_[task].run_of(place)];
        end += run.end_s - run.start_s;
        const size_t rank = rank_of(task, place);
        ends[rank] = std::max(ends[rank], run.end_s);
        alone[rank] = std::max(alone[rank], end);
      }
    outcome.makespan_s.push_back(*std::ranges::max_element(ends));
    for (size_t rank = 0; rank < ends.size(); ++rank) {
      outcome.rank_end_s[rank] += ends[rank];
      outcome.rank_waiting_s[rank] += ends[rank] - alone[rank];
    }
  }

 private:
  struct Group {
    uint32_t task = 0, arrived = 0;
    uint32_t rated = 0;    // number of times that its end was set
    uint32_t settled = 0;  // number of the settle() call that set its rate last
    double slowdown = 1, start_s = 0, end_s = 0, stalled_s = 0;
  };
  struct End {
    double end_s;
    uint32_t run, rated;
    bool operator>(const End& other) const { return end_s > other.end_s; }
  };
  struct Arrival {
    uint32_t task, place;
  };
  struct Rank {
    uint32_t busy = 0;           // sum of SlowdownTable::step over its running tasks
    std::vector<uint32_t> runs;  // runs on this rank
  };

  size_t at(uint32_t task, uint32_t place) const { return size_t{task} * places_ + place; }
  size_t rank_of(uint32_t task, uint32_t place) const {
    return static_cast<size_t>(r_.rows_[task].stage) * places_ + place;
  }
  template <class Body>
  void for_each_place(uint32_t run, Body body) const {
    r_.rows_[runs_[run].task].for_each_place(run, body);
  }

  // Draws the seconds of every task on each rank.
  void draw_seconds() {
    for (uint32_t task = 0; task < r_.rows_.size(); ++task) {
      const Row& row = r_.rows_[task];
      const std::span<double> own(own_.data() + at(task, 0), places_);
      std::ranges::fill(own, seconds_[task]);
      const size_t rank = rank_of(task, 0);
      if (jitter_ && seconds_[task] > 0) {
        draws_.draw(static_cast<int>(task), sample_, static_cast<int>(rank), bits_);
        draws_.quantiles(bits_, own.data());
        for (double& seconds : own) seconds *= seconds_[task];
      }
      if (const double* factors = stretch_.factors(row.kind, row.layer, rank, rank + places_))
        for (uint32_t place = 0; place < places_; ++place) own[place] *= factors[place];
    }
  }

  // Starts all runs that can start, then updates rates. Runs of 0 seconds end at once and may let others start.
  void settle(double now) {
    while (!arriving_.empty()) {
      const Arrival arrival = arriving_.back();
      arriving_.pop_back();
      const uint32_t run = r_.rows_[arrival.task].run_of(arrival.place);
      if (++runs_[run].arrived < r_.rows_[arrival.task].group_size) continue;
      start(run, now);
    }
    ++settled_;
    for (const size_t rank : changed_)
      for (const uint32_t run : ranks_[rank].runs)
        if (runs_[run].settled != settled_) rate(run, now);
    changed_.clear();
  }

  void start(uint32_t run, double now) {
    Group& group = runs_[run];
    double seconds = 0;  // seconds of the slowest rank
    for_each_place(run, [&](uint32_t place) { seconds = std::max(seconds, own_[at(group.task, place)]); });
    group.start_s = now;
    group.end_s = now + seconds;
    if (seconds == 0) return start_followers(run);
    if (r_.slowdowns_.stalls()) stall(run, now);
    for_each_place(run, [&](uint32_t place) {
      Rank& rank = ranks_[rank_of(group.task, place)];
      rank.busy += r_.slowdowns_.step(r_.rows_[group.task].resource);
      rank.runs.push_back(run);
      changed_.push_back(rank_of(group.task, place));
    });
  }

  // Adds the stalls between a run that begins and the runs on its ranks, except those that would have ended without
  // rounding errors.
  void stall(uint32_t begun, double now) {
    constexpr double kRounding = 1e-12;
    const uint32_t task = runs_[begun].task;
    met_.assign(1, begun);
    for_each_place(begun, [&](uint32_t place) {
      stalled_[at(task, place)] = 0;
      for (const uint32_t run : ranks_[rank_of(task, place)].runs) {
        if (runs_[run].end_s - now <= kRounding * now) continue;
        const Resource mine = r_.rows_[task].resource, its = r_.rows_[runs_[run].task].resource;
        stalled_[at(task, place)] += r_.slowdowns_.stall_s(mine, its);
        stalled_[at(runs_[run].task, place)] += r_.slowdowns_.stall_s(its, mine);
        met_.push_back(run);
      }
    });
    for (const uint32_t run : met_) lose_time(run);
  }

  // Extends a run by the largest time that any of its ranks lost.
  void lose_time(uint32_t run) {
    Group& group = runs_[run];
    double most = 0;
    for_each_place(run, [&](uint32_t place) { most = std::max(most, stalled_[at(group.task, place)]); });
    group.end_s += (most - group.stalled_s) * group.slowdown;
    if (most > group.stalled_s) ends_.push({group.end_s, run, ++group.rated});
    group.stalled_s = most;
  }

  void end(uint32_t run, double now) {
    Group& group = runs_[run];
    group.end_s = now;
    ++group.rated;
    for_each_place(run, [&](uint32_t place) {
      Rank& rank = ranks_[rank_of(group.task, place)];
      rank.busy -= r_.slowdowns_.step(r_.rows_[group.task].resource);
      std::erase(rank.runs, run);
      changed_.push_back(rank_of(group.task, place));
    });
    start_followers(run);
  }

  void start_followers(uint32_t run) {
    for_each_place(run, [&](uint32_t place) {
      for (const uint32_t task : r_.rows_[runs_[run].task].followers)
        if (--waits_[at(task, place)] == 0) arriving_.push_back({task, place});
    });
  }

  // If the rate does not change, the end is not recomputed, to avoid rounding errors.
  void rate(uint32_t run, double now) {
    Group& group = runs_[run];
    group.settled = settled_;
    double slowdown = 1;
    for_each_place(run, [&](uint32_t place) {
      const uint32_t busy = ranks_[rank_of(group.task, place)].busy;
      slowdown = std::max(slowdown, r_.slowdowns_(busy, r_.rows_[group.task].resource));
    });
    if (slowdown == group.slowdown && group.rated > 0) return;
    if (slowdown != group.slowdown) group.end_s = now + (group.end_s - now) / group.slowdown * slowdown;
    group.slowdown = slowdown;
    ends_.push({group.end_s, run, ++group.rated});
  }

  const RankFluidReplay& r_;
  std::span<const double> seconds_;
  bool jitter_;
  JitterDraws draws_;
  rank_loops::RankSlowdowns stretch_;
  uint32_t places_;
  int sample_ = 0;
  std::vector<double> own_;      // seconds by task and place
  std::vector<uint32_t> bits_;   // scratch
  std::vector<uint32_t> waits_;  // by task and place: number of tasks it waits for that have not ended
  std::vector<double> stalled_;  // by task and place: seconds lost to overlapping tasks
  std::vector<Group> runs_;
  std::vector<Rank> ranks_;
  std::vector<Arrival> arriving_;
  std::vector<uint32_t> met_;    // scratch
  std::vector<size_t> changed_;  // ranks on which a run began or ended
  uint32_t settled_ = 0;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
};

RankOutcome RankFluidReplay::replay(std::span<const double> seconds, const RankNoise& noise, int samples) const {
  require<BadInput>(samples >= 1, "samples: found {}, expected >= 1", samples);
  check_noise(noise, ranks(), layers_);
  return rank_loops::outcome_of(Run(*this, seconds, noise), ranks(), samples);
}

RankOutcome replay_ranks(const Plan& plan, std::span<const double> seconds, const Contention& contention,
                         const RankNoise& noise, int samples) {
  const ParallelShape& parallel = plan.shape.parallel;
  if (!slows_itself(plan, contention)) return RankReplay(*plan.structure, parallel).replay(seconds, noise, samples);
  return RankFluidReplay(*plan.structure, parallel, networks_of(plan.groups), contention)
      .replay(seconds, noise, samples);
}

}  // namespace moe
