#include "tests/simulator/fluid_reference.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>

#include "moe/base/random.h"

namespace moe::fluid {
namespace {

class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  int below(int n) { return static_cast<int>(random_bits(seed_, 7, index_++) % static_cast<uint64_t>(n)); }
  double uniform() { return random_uniform(seed_, 8, index_++); }
  double factor() { return below(3) == 0 ? 1 : 1 + 2 * uniform(); }

 private:
  uint64_t seed_, index_ = 0;
};

GroupKind group_on(LaneKind lane, Draws& draws) {
  switch (lane) {
    case LaneKind::inter:
      return GroupKind::ep;
    case LaneKind::intra:
      return draws.below(2) == 0 ? GroupKind::esp : GroupKind::mp;
    case LaneKind::comm:
      return draws.below(2) == 0 ? GroupKind::ep : GroupKind::esp;
    case LaneKind::gradient:
      return GroupKind::dp;
    default:
      return GroupKind::none;
  }
}

double least_left(const std::vector<double>& left, const std::vector<int>& running, const std::vector<double>& rates) {
  double least = 1e300;
  for (size_t i = 0; i < running.size(); ++i) least = std::min(least, left[running[i]] / rates[i]);
  return least;
}

// What a task uses: compute, memory, the network between nodes or inside them, or nothing.
char uses(const Draw& d, const Task& task) {
  if (task.group == GroupKind::none) return d.structure.lanes[task.lane].kind == LaneKind::compute ? 'c' : 'm';
  const Network network = d.networks[task.group];
  return network == Network::inter ? 'e' : network == Network::intra ? 'a' : '-';
}

double slowdown_by(const Contention& c, char slowed, char by) {
  if (slowed == 'a' && by == 'e') return c.intra_by_inter;
  if (slowed == 'e' && by == 'a') return c.inter_by_intra;
  if (slowed == 'c' && by == 'e') return c.compute_by_inter;
  if (slowed == 'c' && by == 'a') return c.compute_by_intra;
  if (slowed == 'e' && by == 'c') return c.inter_by_compute;
  if (slowed == 'a' && by == 'c') return c.intra_by_compute;
  if (slowed == 'm' && by == 'e') return c.copy_by_inter;
  if (slowed == 'm' && by == 'a') return c.copy_by_intra;
  if (slowed == 'm' && by == 'c') return c.copy_by_compute;
  if (slowed == 'e' && by == 'm') return c.inter_by_copy;
  if (slowed == 'a' && by == 'm') return c.intra_by_copy;
  if (slowed == 'c' && by == 'm') return c.compute_by_copy;
  return 1;
}

double stall_by(const Contention& c, char slowed, char by) {
  const std::string_view kinds = "ceam";
  const size_t of = kinds.find(slowed), other = kinds.find(by);
  return of < kinds.size() && other < kinds.size() ? c.stall_s[of][other] : 0;
}

bool of_one_stage(const Draw& d, const Task& a, const Task& b) {
  return d.structure.lanes[a.lane].stage == d.structure.lanes[b.lane].stage;
}

double rate(const Draw& d, int id, const std::vector<int>& running) {
  const auto& tasks = d.structure.tasks;
  const Task& task = tasks[id];
  const char mine = uses(d, task);
  double slowdown = 1, sharing = 1;
  for (const int other : running) {
    const Task& o = tasks[other];
    if (other == id || !of_one_stage(d, task, o)) continue;
    slowdown *= slowdown_by(d.contention, mine, uses(d, o));
    if ((mine == 'e' || mine == 'a') && uses(d, o) == mine) sharing += 1;
  }
  return 1 / (slowdown * sharing);
}

// Each pair of running tasks that did not run side by side before costs either its stall, once.
void stall_new_pairs(const Draw& d, const std::vector<int>& running, std::set<std::pair<int, int>>& met,
                     std::vector<double>& left) {
  for (const int a : running)
    for (const int b : running) {
      const Task &one = d.structure.tasks[a], &other = d.structure.tasks[b];
      if (a == b || !of_one_stage(d, one, other) || !met.insert({a, b}).second) continue;
      left[a] += stall_by(d.contention, uses(d, one), uses(d, other));
    }
}

}  // namespace

Draw random_draw(uint64_t seed) {
  Draws draws(seed);
  Draw d;
  for (const GroupKind kind : {GroupKind::ep, GroupKind::dp})
    d.networks[kind] = draws.below(6) == 0 ? Network::intra : Network::inter;
  for (const GroupKind kind : {GroupKind::esp, GroupKind::mp})
    d.networks[kind] = draws.below(6) == 0 ? Network::inter : Network::intra;
  Contention& c = d.contention;
  for (double* factor : {&c.intra_by_inter, &c.inter_by_intra, &c.compute_by_inter, &c.compute_by_intra,
                         &c.inter_by_compute, &c.intra_by_compute, &c.copy_by_inter, &c.copy_by_intra,
                         &c.copy_by_compute, &c.inter_by_copy, &c.intra_by_copy, &c.compute_by_copy})
    *factor = draws.factor();
  if (draws.below(2) == 0)
    for (size_t of = 0; of < kContendedResources; ++of)
      for (size_t by = 0; by < kContendedResources; ++by)
        if (of != by && draws.below(3) == 0) c.stall_s[of][by] = 0.3 * draws.uniform();
  constexpr std::array kKinds{LaneKind::compute, LaneKind::inter, LaneKind::intra,
                              LaneKind::comm,    LaneKind::copy,  LaneKind::gradient};
  for (int stage = 0, stages = 1 + draws.below(3); stage < stages; ++stage)
    for (int lanes = 1 + draws.below(5); lanes > 0; --lanes)
      d.structure.lanes.push_back({kKinds[draws.below(6)], stage, false, false, {}});
  const int density = 2 + draws.below(12);
  for (int id = 0, tasks = 1 + draws.below(40); id < tasks; ++id) {
    Task task;
    task.id = id;
    task.lane = draws.below(static_cast<int>(d.structure.lanes.size()));
    Lane& lane = d.structure.lanes[task.lane];
    task.group = group_on(lane.kind, draws);
    for (int p = 0; p < id; ++p)
      if (draws.below(density) == 0) task.after.push_back(p);
    lane.queue.push_back(id);
    d.seconds.push_back(draws.below(4) == 0 ? 0 : 0.01 + draws.uniform());
    d.structure.tasks.push_back(std::move(task));
  }
  return d;
}

bool shares_network(const Draw& d, const Timeline& t) {
  for (const Task& a : d.structure.tasks)
    for (const Task& b : d.structure.tasks) {
      const char used = uses(d, a);
      const auto i = static_cast<size_t>(a.id), j = static_cast<size_t>(b.id);
      if (a.id < b.id && (used == 'e' || used == 'a') && used == uses(d, b) &&
          d.structure.lanes[a.lane].stage == d.structure.lanes[b.lane].stage &&
          std::max(t.start_s[i], t.start_s[j]) < std::min(t.end_s[i], t.end_s[j]))
        return true;
    }
  return false;
}

Timeline step_through(const Draw& d, double step_s, Cut cut) {
  constexpr double kRunOut = 1e-13;
  const auto& tasks = d.structure.tasks;
  Timeline t;
  t.start_s.assign(tasks.size(), -1);
  t.end_s.assign(tasks.size(), -1);
  std::vector<double> left;
  for (const Task& task : tasks) left.push_back(d.seconds[task.id]);
  std::set<std::pair<int, int>> met;
  const auto ended = [&](int id) { return t.end_s[id] >= 0; };
  for (double now = 0; !std::ranges::all_of(t.end_s, [](double end) { return end >= 0; });) {
    std::vector<int> running;
    for (bool moved = true; moved;) {  // what takes no time any more ends, and others may start
      moved = false;
      running.clear();
      for (const Lane& lane : d.structure.lanes) {
        const auto head = std::ranges::find_if_not(lane.queue, ended);
        if (head == lane.queue.end() || !std::ranges::all_of(tasks[*head].after, ended)) continue;
        const auto i = static_cast<size_t>(*head);
        if (t.start_s[i] < 0) t.start_s[i] = now;
        if (left[i] > kRunOut) {
          running.push_back(*head);
        } else {
          t.end_s[i] = now;
          moved = true;
        }
      }
    }
    stall_new_pairs(d, running, met, left);
    std::vector<double> rates;
    for (const int id : running) rates.push_back(rate(d, id, running));
    const double passed = cut == Cut::never ? step_s : std::min(step_s, least_left(left, running, rates));
    for (size_t i = 0; i < running.size(); ++i) left[running[i]] -= passed * rates[i];
    if (!running.empty()) now += passed;
  }
  for (const double end : t.end_s) t.makespan_s = std::max(t.makespan_s, end);
  return t;
}

}  // namespace moe::fluid
