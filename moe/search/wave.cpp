#include "moe/search/wave.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <set>
#include <span>
#include <utility>

#include "moe/base/check.h"
#include "moe/base/enum_array.h"
#include "moe/base/random.h"
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/schedules.h"
#include "moe/search/degrees.h"
#include "moe/simulator/bounds.h"
#include "moe/simulator/fluid_replay.h"

namespace moe {
namespace {

using Lists = std::vector<std::vector<int>>;  // for each task, a list of tasks

Lists reversed(const Lists& lists) {
  Lists result(lists.size());
  for (size_t i = 0; i < lists.size(); ++i)
    for (const int other : lists[i]) result[other].push_back(static_cast<int>(i));
  return result;
}

// For each task, those of its list's tasks that are `ordered`. All lists share one array.
class OrderedLists {
 public:
  OrderedLists() = default;
  OrderedLists(const Lists& lists, const std::vector<bool>& ordered) {
    for (const std::vector<int>& list : lists) {
      std::ranges::copy_if(list, std::back_inserter(tasks_), [&](int task) { return ordered[task]; });
      ends_.push_back(tasks_.size());
    }
  }

  std::span<const int> operator[](size_t task) const {
    const size_t begin = task == 0 ? 0 : ends_[task - 1];
    return std::span(tasks_).subspan(begin, ends_[task] - begin);
  }
  std::vector<int> sizes() const {
    std::vector<int> result(ends_.size());
    for (size_t i = 0; i < result.size(); ++i) result[i] = static_cast<int>((*this)[i].size());
    return result;
  }

 private:
  std::vector<size_t> ends_;  // by task
  std::vector<int> tasks_;
};

bool is_weight_half(const Task& task) { return operation_of(task.kind) == TaskOperation::compute_dw; }

// Returns whether a task may add to gradients of weights. A norm is part of the task next to it; a norm after the MoE
// part is part of i_order.
bool adds_gradients(const Task& task, Norm norm) {
  const bool moves_rows = task.kind == TaskKind::order || (task.kind == TaskKind::i_order && !is_post_norm(norm));
  return task.phase == Phase::backward && task.group == GroupKind::none && !moves_rows &&
         task.kind != TaskKind::expert_dx && task.kind != TaskKind::optimizer;
}

// The gradients of one slice of the base plan.
struct Unit {
  int task = -1;
  GradientSlice slice;
  std::vector<int> makers;
  int64_t bytes() const { return slice.bytes(); }
};

// Returns a lower bound on the seconds of summing `bytes` bytes of experts' gradients over EDP, for all ways to cut
// them.
double min_expert_sums_s(const LayerPricer& pricer, int64_t bytes) {
  const auto all = static_cast<double>(bytes);
  const auto curve = pricer.collective(Op::allreduce, GroupKind::edp, all);
  return curve ? curve->seconds_in_parts(all, all, pricer.profile().task_overhead_s).all : 0;
}

// The gradients that are summed over the same ranks, in the order of sending: those of the dense parts over DP, or of
// experts over EDP.
struct Stream {
  TaskKind kind = TaskKind::gradient;
  int lane = -1;
  std::vector<Unit> units = {};

  double seconds(const LayerPricer& pricer, int64_t bytes) const {
    if (kind == TaskKind::gradient) return pricer.gradient_seconds(bytes);
    return step_seconds(pricer, kind, {Op::allreduce, GroupKind::edp, static_cast<double>(bytes), 0, 0});
  }
  // Returns a lower bound on the seconds of `bytes` bytes, for all ways to cut them.
  double min_seconds(const LayerPricer& pricer, int64_t bytes) const {
    return kind == TaskKind::gradient ? pricer.gradient_seconds_in_parts(bytes) : min_expert_sums_s(pricer, bytes);
  }
};

// Returns whether a task that waits for `before` in the base plan must do so in every order. A pass need not wait for
// the weight gradients of the previous layer, and a receive need not wait for the stage's previous pass.
bool waits_in_any_order(const Task& task, const Task& before) {
  if (is_of_layer(task.kind)) return before.kind != TaskKind::attention_dw;
  return task.kind != TaskKind::recv || part_of(before.kind) == TaskPart::stages;
}

struct Pass {
  Phase phase;
  int micro_batch, layer;
};

// The first tasks, the last tasks and the halves for weight gradients of a layer's pass over a micro-batch.
struct PassTasks {
  std::vector<int> begins, ends, weights;
};

// The passes of a stage in the base plan's order, as cells: a cell is a pair of layer and micro-batch.
struct StagePasses {
  std::vector<size_t> forwards, backwards;
};

// The passes of an iteration, by cell and by stage.
struct Passes {
  explicit Passes(const Plan& plan)
      : layers(plan.layers),
        forwards(static_cast<size_t>(plan.layers) * static_cast<size_t>(plan.micro_batches)),
        backwards(forwards),
        stages(plan.split().stages) {}

  size_t cell(int micro_batch, int layer) const { return static_cast<size_t>(micro_batch * layers + layer); }
  const PassTasks& pass_tasks(const Pass& pass) const {
    return (pass.phase == Phase::forward ? forwards : backwards)[cell(pass.micro_batch, pass.layer)];
  }
  PassTasks& pass_tasks(const Task& task) {
    return (task.execution_phase() == Phase::forward ? forwards : backwards)[cell(task.micro_batch, task.layer)];
  }
  void append(int stage, const Task& task) {
    std::vector<size_t>& in_order =
        task.execution_phase() == Phase::forward ? stages[stage].forwards : stages[stage].backwards;
    const size_t own = cell(task.micro_batch, task.layer);
    if (in_order.empty() || in_order.back() != own) in_order.push_back(own);
  }

  int layers;
  std::vector<PassTasks> forwards, backwards;  // by cell
  std::vector<StagePasses> stages;
};

bool in_same_pass(const Task& a, const Task& b) {
  return is_of_layer(a.kind) && is_of_layer(b.kind) && a.execution_phase() == b.execution_phase() &&
         a.layer == b.layer && a.micro_batch == b.micro_batch;
}

// The tasks of an iteration, with the dependencies that hold in every order. In `base`, passes follow each other, and
// each layer's gradients have their own slices.
struct Iteration {
  Iteration(const Plan& plan, const LayerPricer& pricer, int keep, IterationOrder order);

  const std::vector<Task>& tasks() const { return base.tasks(); }
  const Task& task(int id) const { return base.tasks()[id]; }
  double seconds_of(int id) const { return seconds[id]; }

  const Plan& base;
  std::vector<double> seconds;                 // by task
  std::vector<int> lanes;                      // by task
  Lists after, before;                         // for each task: the tasks that it waits for; those that wait for it
  OrderedLists ordered_after, ordered_before;  // the ordered tasks in these lists
  std::vector<Stream> streams;                 // gradients, which Filler places between the ordered tasks
  std::vector<bool> ordered;                   // false for a task that sends a unit or waits for one
  std::vector<double> behind_s;                // for each task, lower bound on the seconds of units after it

 private:
  void add_unit(const Task& sends);
  Passes passes() const;
  void limit_memory(const Passes& all, int keep);
  void order_turns(const Passes& all, IterationOrder order);
  void add_sums();
  void add_edges(const std::vector<int>& first, const std::vector<int>& then) {
    for (const int id : then) after[id].insert(after[id].end(), first.begin(), first.end());
  }
};

using Turn = std::vector<Pass>;

// Returns the passes of one phase of one micro-batch, in order.
Turn passes_of(Phase phase, int micro_batch, int layers) {
  Turn passes;
  for (int i = 0; i < layers; ++i) passes.push_back({phase, micro_batch, phase == Phase::forward ? i : layers - 1 - i});
  return passes;
}

// Returns the turns of an order; empty if it has no turns.
std::vector<Turn> turns_of(IterationOrder order, int layers, int micro_batches) {
  const int at_once = order == IterationOrder::two_forwards ? 2 : 1;
  std::vector<Turn> turns;
  if (order == IterationOrder::any) return turns;
  const auto add_each = [&](const Turn& passes) {
    for (const Pass& pass : passes) turns.push_back({pass});
  };
  if (order == IterationOrder::pairs) {
    add_each(passes_of(Phase::forward, 0, layers));
    for (int m = 0; m + 1 < micro_batches; ++m)
      for (int i = 0; i < layers; ++i)
        turns.push_back({{Phase::forward, m + 1, i}, {Phase::backward, m, layers - 1 - i}});
    add_each(passes_of(Phase::backward, micro_batches - 1, layers));
    return turns;
  }
  for (int m = 0; m < micro_batches; m += at_once)
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      Turn together;
      for (int i = m; i < std::min(m + at_once, micro_batches); ++i)
        std::ranges::copy(passes_of(phase, i, layers), std::back_inserter(together));
      if (order == IterationOrder::in_turn)
        add_each(together);
      else
        turns.push_back(std::move(together));
    }
  return turns;
}

// Returns whether a pass waits for no other pass of its turn.
bool leads(const Pass& pass, const Turn& turn) {
  return std::ranges::none_of(turn, [&](const Pass& other) {
    return other.phase == pass.phase && other.micro_batch == pass.micro_batch &&
           (pass.phase == Phase::forward ? other.layer < pass.layer : other.layer > pass.layer);
  });
}

Iteration::Iteration(const Plan& plan, const LayerPricer& pricer, int keep, IterationOrder order)
    : base(plan), after(plan.tasks().size()), ordered(plan.tasks().size(), true), behind_s(plan.tasks().size()) {
  seconds = price(pricer, plan);
  for (const Task& task : tasks()) {
    lanes.push_back(task.lane);
    std::ranges::copy_if(task.after, std::back_inserter(after[task.id]),
                         [&](int other) { return waits_in_any_order(task, this->task(other)); });
    const bool is_unit = task.kind == TaskKind::gradient || task.kind == TaskKind::expert_gradient;
    const auto waits_for_unit = [&](int other) { return !ordered[other]; };
    ordered[task.id] = !is_unit && std::ranges::none_of(task.after, waits_for_unit);
    if (is_unit) add_unit(task);
  }
  for (Stream& stream : streams) {
    std::ranges::sort(stream.units, {}, [&](const Unit& unit) { return task(unit.task).slice; });
    int64_t bytes = 0;
    for (size_t u = stream.units.size(); u-- > 0;) {
      bytes += stream.units[u].bytes();
      for (const int maker : stream.units[u].makers) {
        double& seconds_behind = behind_s[maker];
        seconds_behind = std::max(seconds_behind, stream.min_seconds(pricer, bytes));
      }
    }
  }
  const Passes all = passes();
  limit_memory(all, keep);
  order_turns(all, order);
  add_sums();
  for (std::vector<int>& list : after) {
    std::ranges::sort(list);
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  before = reversed(after);
  ordered_after = OrderedLists(after, ordered);
  ordered_before = OrderedLists(before, ordered);
}

// Adds a unit with all of its makers: in the base plan it waits for some of them, but all micro-batches contribute.
void Iteration::add_unit(const Task& sends) {
  Unit unit{sends.id, base.slices[sends.slice], sends.after};
  int64_t left = unit.slice.end;  // counted from the start of the loop's current gradient
  for (auto g = static_cast<size_t>(unit.slice.gradient); left > 0; left -= base.gradients[g++].bytes) {
    if (base.gradients[g].made_by < 0) continue;
    const Task& maker = task(base.gradients[g].made_by);
    for (const Task& other : tasks())
      if (other.kind == maker.kind && other.phase == maker.phase && other.layer == maker.layer)
        unit.makers.push_back(other.id);
  }
  std::ranges::sort(unit.makers);
  unit.makers.erase(std::unique(unit.makers.begin(), unit.makers.end()), unit.makers.end());
  auto stream =
      std::ranges::find_if(streams, [&](const Stream& s) { return s.kind == sends.kind && s.lane == sends.lane; });
  if (stream == streams.end()) stream = streams.insert(stream, Stream{sends.kind, sends.lane});
  stream->units.push_back(std::move(unit));
}

Passes Iteration::passes() const {
  Passes all(base);
  std::vector<bool> leads_on(tasks().size());
  for (const Task& task : tasks()) {
    // A receive needs memory, like the first task of a pass.
    if (task.kind == TaskKind::recv) all.pass_tasks(task).begins.push_back(task.id);
    if (!is_of_layer(task.kind)) continue;
    bool begins = true;
    for (const int other : after[task.id])
      if (in_same_pass(this->task(other), task)) {
        begins = false;
        leads_on[other] = true;
      }
    if (begins) all.pass_tasks(task).begins.push_back(task.id);
    if (is_weight_half(task)) all.pass_tasks(task).weights.push_back(task.id);
    all.append(base.structure->lanes[task.lane].stage, task);
  }
  for (const Task& task : tasks())
    if (is_of_layer(task.kind) && !leads_on[task.id]) all.pass_tasks(task).ends.push_back(task.id);
  return all;
}

// Adds dependencies so that a stage keeps the activations of at most `keep` passes, and few inputs of weight halves.
void Iteration::limit_memory(const Passes& all, int keep) {
  const StageSplit split = base.split();
  for (int s = 0; s < split.stages; ++s) {
    const StagePasses& stage = all.stages[s];
    for (size_t n = static_cast<size_t>(keep); n < stage.forwards.size(); ++n)
      add_edges(all.backwards[stage.backwards[n - keep]].ends, all.forwards[stage.forwards[n]].begins);
    const auto late = static_cast<size_t>(std::max(2, s * layers_in(split, s) / split.virtual_stages));
    for (size_t n = late; n < stage.backwards.size(); ++n) {
      const size_t earlier = stage.backwards[n - late], later = stage.backwards[n];
      const auto layers = static_cast<size_t>(base.layers);
      const bool same_batch = earlier / layers == later / layers;
      if (split.stages > 1 || same_batch) add_edges(all.backwards[earlier].weights, all.backwards[later].begins);
    }
  }
}

void Iteration::order_turns(const Passes& all, IterationOrder order) {
  std::vector<int> last_ends;  // last tasks of the previous turn
  for (const Turn& turn : turns_of(order, base.layers, base.micro_batches)) {
    std::vector<int> ends;
    for (const Pass& member : turn) {
      const PassTasks& own = all.pass_tasks(member);
      if (leads(member, turn)) add_edges(last_ends, own.begins);
      ends.insert(ends.end(), own.ends.begin(), own.ends.end());
    }
    last_ends = std::move(ends);
  }
}

void Iteration::add_sums() {
  std::map<std::pair<TaskKind, int>, int> last;
  for (const Task& task : tasks()) {
    if (!adds_gradients(task, base.shape.layer.norm)) continue;
    const auto [previous, first] = last.try_emplace({task.kind, task.layer}, task.id);
    if (!first) after[task.id].push_back(std::exchange(previous->second, task.id));
  }
}

struct Order {
  std::vector<int> tasks;     // in the order of their starts
  std::vector<double> end_s;  // by task
  double seconds = 0;         // includes units sent after their makers

  void add(const Iteration& iteration, int task, double end, bool backwards) {
    tasks.push_back(task);
    end_s[task] = end;
    seconds = std::max(seconds, end + (backwards ? 0 : iteration.behind_s[task]));
  }
};

// A task that waits for no other task, ordered by urgency, then by id: the smaller id is more urgent.
struct Ready {
  double urgency;
  int task;
  bool operator<(const Ready& other) const {
    return urgency != other.urgency ? urgency < other.urgency : task > other.task;
  }
};

// List scheduling: whenever a lane is free, it runs the ready task with the largest urgency.
class ListSchedule {
 public:
  ListSchedule(const Iteration& iteration, const std::vector<double>& urgency)
      : it_(iteration),
        urgency_(urgency),
        waiting_(iteration.ordered_after.sizes()),
        ready_(iteration.base.structure->lanes.size()),
        busy_(ready_.size()) {
    order_.end_s.resize(waiting_.size());
  }

  Order run() {
    for (size_t id = 0; id < waiting_.size(); ++id)
      if (it_.ordered[id] && waiting_[id] == 0) add_ready(static_cast<int>(id));
    for (begin_tasks(0); !running_.empty();) {
      const double now_s = running_.top().first;
      for (; !running_.empty() && running_.top().first <= now_s; running_.pop()) end(running_.top().second);
      begin_tasks(now_s);
    }
    return std::move(order_);
  }

 private:
  void add_ready(int id) { ready_[it_.lanes[id]].push({urgency_[id], id}); }

  void begin_tasks(double now_s) {
    for (size_t lane = 0; lane < ready_.size(); ++lane) {
      if (busy_[lane] || ready_[lane].empty()) continue;
      const int id = ready_[lane].top().task;
      ready_[lane].pop();
      busy_[lane] = true;
      order_.add(it_, id, now_s + it_.seconds_of(id), false);
      running_.emplace(order_.end_s[id], id);
    }
  }

  void end(int id) {
    busy_[it_.lanes[id]] = false;
    for (const int other : it_.ordered_before[id])
      if (--waiting_[other] == 0) add_ready(other);
  }

  using End = std::pair<double, int>;  // end and task

  const Iteration& it_;
  const std::vector<double>& urgency_;
  std::vector<int> waiting_;                       // by task: number of tasks that it waits for
  std::vector<std::priority_queue<Ready>> ready_;  // by lane
  std::vector<bool> busy_;
  std::priority_queue<End, std::vector<End>, std::greater<>> running_;
  Order order_;
};

// Serial scheduling: places tasks in the order of urgency, each as early as its inputs and its lane allow, even before
// tasks that are already placed. A lane may then be idle although a task is ready, which helps if tasks have very
// different lengths. If `backwards`, time is reversed: a task waits for all tasks that wait for it, and for the units
// that it makes.
class SerialSchedule {
 public:
  SerialSchedule(const Iteration& iteration, const std::vector<double>& urgency, bool backwards)
      : it_(iteration),
        backwards_(backwards),
        waiting_((backwards ? iteration.ordered_before : iteration.ordered_after).sizes()),
        begin_s_(waiting_.size()),
        taken_(iteration.base.structure->lanes.size()) {
    order_.end_s.resize(waiting_.size());
    const OrderedLists& leads_to = backwards ? it_.ordered_after : it_.ordered_before;
    for (size_t id = 0; id < waiting_.size(); ++id)
      if (it_.ordered[id] && waiting_[id] == 0) ready_.push({urgency[id], static_cast<int>(id)});
    while (!ready_.empty()) {
      const int id = ready_.top().task;
      ready_.pop();
      place(id);
      for (const int other : leads_to[id]) {
        begin_s_[other] = std::max(begin_s_[other], order_.end_s[id]);
        if (--waiting_[other] == 0) ready_.push({urgency[other], other});
      }
    }
  }

  const std::vector<double>& end_s() const { return order_.end_s; }
  double seconds() const { return order_.seconds; }
  Order order() && {
    std::ranges::stable_sort(order_.tasks, {}, [&](int id) { return std::pair(begin_s_[id], order_.end_s[id]); });
    return std::move(order_);
  }

 private:
  using Span = std::pair<double, double>;

  void place(int task) {
    double begin_s = backwards_ ? std::max(begin_s_[task], it_.behind_s[task]) : begin_s_[task];
    std::vector<Span>& taken = taken_[it_.lanes[task]];
    auto next = taken.end();  // the first that ends later; most tasks are among the last of their lanes
    while (next != taken.begin() && std::prev(next)->second > begin_s) --next;
    for (; next != taken.end() && next->first < begin_s + it_.seconds[task]; ++next) begin_s = next->second;
    const double end_s = begin_s + it_.seconds[task];
    taken.insert(next, {begin_s, end_s});
    begin_s_[task] = begin_s;
    order_.add(it_, task, end_s, backwards_);
  }

  const Iteration& it_;
  bool backwards_;
  std::vector<int> waiting_;     // by task: number of tasks that it waits for
  std::vector<double> begin_s_;  // by task: earliest start
  std::priority_queue<Ready> ready_;
  std::vector<std::vector<Span>> taken_;  // by lane, in the order of time
  Order order_;
};

// Returns, for each task, its seconds plus those of the longest chain of tasks after it.
std::vector<double> tails(const Iteration& iteration) {
  const size_t n = iteration.tasks().size();
  std::vector<double> tail_s(iteration.behind_s);
  std::vector<int> waiting(n), done;  // because forwards may wait for backwards, ids are not a topological order
  for (size_t id = 0; id < n; ++id) {
    waiting[id] = static_cast<int>(iteration.before[id].size());
    if (waiting[id] == 0) done.push_back(static_cast<int>(id));
  }
  for (size_t head = 0; head < done.size(); ++head) {
    const auto id = static_cast<size_t>(done[head]);
    for (const int other : iteration.ordered_before[id]) tail_s[id] = std::max(tail_s[id], tail_s[other]);
    tail_s[id] += iteration.seconds[id];
    for (const int other : iteration.after[id])
      if (--waiting[other] == 0) done.push_back(other);
  }
  require<WrongResult>(done.size() == n, "wave: the tasks' dependencies form a cycle");
  return tail_s;
}

// Repeats forward-backward improvement while the order gets shorter: all tasks are moved as late as possible, then as
// early as possible.
Order justified(const Iteration& iteration, Order order) {
  while (true) {
    const SerialSchedule right(iteration, order.end_s, true);
    SerialSchedule left(iteration, right.end_s(), false);
    if (!search::is_better(left.seconds(), order.seconds)) return order;
    order = std::move(left).order();
  }
}

// Returns urgencies that give the order of the base plan; the largest is `most_s`.
std::vector<double> place_urgencies(const Iteration& iteration, double max_s) {
  std::vector<double> urgency(iteration.tasks().size());
  for (size_t id = 0; id < urgency.size(); ++id)
    urgency[id] = max_s * (1 - static_cast<double>(id) / static_cast<double>(urgency.size()));
  return urgency;
}

// Returns the best of several orders: by the longest tail with weight gradients last, and `draws` orders with randomly
// lengthened tails, every fourth without the rule for weight gradients. With several stages, the longest tail would run
// too far ahead on the first stages, so the base plan's order and random variations of it are tried too.
Order best_order(const Iteration& iteration, int draws) {
  const std::vector<double> tail_s = tails(iteration);
  const double longest_s = *std::ranges::max_element(tail_s);
  std::vector<std::vector<double>> urgencies{tail_s};
  if (iteration.base.shape.parallel.pp > 1) urgencies.push_back(place_urgencies(iteration, longest_s));
  const uint64_t stream = random_stream_id("wave");
  Order best;
  for (int draw = 0; draw <= draws; ++draw) {
    const double most = draw == 0 ? 0 : 0.3 * (1 + draw % 3);
    for (std::vector<double> urgency : urgencies) {
      for (size_t id = 0; id < urgency.size(); ++id) {
        if (most > 0) urgency[id] *= 1 + most * random_uniform(static_cast<uint64_t>(draw), stream, id);
        if (draw % 4 != 3 && !is_weight_half(iteration.tasks()[id])) urgency[id] += 2 * longest_s;
      }
      Order order = justified(iteration, draw % 2 == 0 ? ListSchedule(iteration, urgency).run()
                                                       : SerialSchedule(iteration, urgency, false).order());
      if (best.tasks.empty() || search::is_better(order.seconds, best.seconds)) best = std::move(order);
    }
  }
  return best;
}

// One element of the new issue order: a task, or a slice of a stream (task -1).
struct Step {
  int task = -1;
  size_t stream = 0;
  int64_t begin = 0, end = 0;  // range of bytes in the stream
};
struct Filled {
  std::vector<Step> steps;
  double seconds = 0;
};

// Places gradient bytes between the tasks of their lanes, where a lane is idle or its next task can wait.
class Filler {
 public:
  Filler(const Iteration& iteration, const Order& order, const LayerPricer& pricer)
      : it_(iteration), order_(order), pricer_(pricer), element_(bytes_of(pricer.shape().layer.dtype)) {
    for (size_t s = 0; s < it_.streams.size(); ++s)
      for (size_t u = 0; u < it_.streams[s].units.size(); ++u)
        for (const int maker : it_.streams[s].units[u].makers) makes_[maker].emplace_back(s, u);
  }

  // First sends bytes only while a lane is idle. Then also delays tasks as far as a target time for the end allows; the
  // target is bisected between the order's end without gradients and the best end so far.
  Filled best() const {
    Filled best = fill(std::nullopt);
    double low_s = order_.seconds, high_s = best.seconds;
    for (int i = 0; i < kHalvings && high_s > low_s * (1 + 1e-6); ++i) {
      const double target_s = i == 0 ? low_s : (low_s + high_s) / 2;
      Filled filled = fill(target_s);
      (filled.seconds <= target_s * (1 + 1e-12) ? high_s : low_s) = target_s;
      if (filled.seconds < best.seconds) best = std::move(filled);
    }
    return best;
  }

 private:
  static constexpr int kHalvings = 12;
  // A slice that is cut from a unit must take this many times the seconds of one element.
  static constexpr double kMin = 2;

  // The progress of sending a stream.
  struct Sent {
    std::vector<size_t> to_come;  // for each unit: makers that have not run yet
    std::vector<double> made_s;   // for each unit: the end of its last maker
    size_t unit = 0;              // the first unit that is not completely sent
    int64_t unit_begin = 0, bytes = 0;
    bool is_ready() const { return unit < to_come.size() && to_come[unit] == 0; }
  };
  struct State {
    std::vector<double> lane_end_s;
    std::vector<Sent> sent;  // for each stream
    Filled filled;
  };

  State initial_state() const {
    State state;
    state.lane_end_s.resize(it_.base.structure->lanes.size());
    for (const Stream& stream : it_.streams) {
      Sent& sent = state.sent.emplace_back();
      for (const Unit& unit : stream.units) sent.to_come.push_back(unit.makers.size());
      sent.made_s.resize(stream.units.size());
    }
    return state;
  }

  // Returns the latest start of each task with which everything ends by `target_s`.
  std::vector<double> latest_begins(double target_s) const {
    std::vector<double> latest(it_.tasks().size());
    std::vector<double> of_lane(it_.base.structure->lanes.size(), target_s);
    for (size_t i = order_.tasks.size(); i-- > 0;) {
      const auto id = static_cast<size_t>(order_.tasks[i]);
      double& lane = of_lane[it_.lanes[id]];
      lane = std::min(lane, target_s - it_.behind_s[id]);
      for (const int other : it_.ordered_before[id]) lane = std::min(lane, latest[other]);
      latest[id] = lane -= it_.seconds[id];
    }
    return latest;
  }

  // Runs the order and sends gradients. `target_s`: the time by which all tasks must end, which says how long they may
  // be delayed; empty: tasks are not delayed.
  Filled fill(std::optional<double> target_s) const {
    const std::vector<double> latest = target_s ? latest_begins(*target_s) : std::vector<double>(it_.tasks().size());
    State state = initial_state();
    std::vector<double> end_s(it_.tasks().size());
    for (const int task : order_.tasks) {
      const int lane = it_.lanes[task];
      double& lane_end_s = state.lane_end_s[lane];
      double ready_s = lane_end_s;
      for (const int other : it_.after[task]) ready_s = std::max(ready_s, end_s[other]);
      send(lane, std::max(ready_s, latest[task]), state);
      end_s[task] = lane_end_s = std::max(lane_end_s, ready_s) + it_.seconds[task];
      state.filled.steps.push_back({task});
      if (const auto made = makes_.find(task); made != makes_.end())
        for (const auto& [s, u] : made->second) {
          --state.sent[s].to_come[u];
          state.sent[s].made_s[u] = std::max(state.sent[s].made_s[u], lane_end_s);
        }
    }
    for (int lane = 0; lane < std::ssize(state.lane_end_s); ++lane)
      send(lane, std::numeric_limits<double>::infinity(), state);
    state.filled.seconds = *std::ranges::max_element(state.lane_end_s);
    return std::move(state.filled);
  }

  // Sends gradients that exist on a lane, as long as they end by `limit_s`; of several streams, the one that can begin
  // first comes first.
  void send(int lane, double limit_s, State& state) const {
    const double& lane_end_s = state.lane_end_s[lane];
    while (true) {
      size_t first = it_.streams.size();
      double first_s = limit_s;
      for (size_t s = 0; s < it_.streams.size(); ++s) {
        const Sent& sent = state.sent[s];
        if (it_.streams[s].lane != lane || !sent.is_ready()) continue;
        const double begin_s = std::max(lane_end_s, sent.made_s[sent.unit]);
        if (begin_s < first_s) first = s, first_s = begin_s;
      }
      if (first == it_.streams.size() || !send_of(first, first_s, limit_s, state)) return;
    }
  }

  // Sends as much of a stream as fits: a part of a unit, or the rest of a unit and the units after it. Returns false if
  // nothing fits.
  bool send_of(size_t s, double begin_s, double limit_s, State& state) const {
    const Stream& stream = it_.streams[s];
    Sent& sent = state.sent[s];
    int64_t made = sent.unit_begin;
    for (size_t u = sent.unit; u < stream.units.size() && sent.to_come[u] == 0 && sent.made_s[u] <= begin_s; ++u)
      made += stream.units[u].bytes();
    const int64_t bytes = fitting(stream, made - sent.bytes, limit_s - begin_s);
    if (bytes == 0) return false;
    state.filled.steps.push_back({-1, s, sent.bytes, sent.bytes + bytes});
    sent.bytes += bytes;
    state.lane_end_s[stream.lane] = begin_s + stream.seconds(pricer_, bytes);
    while (sent.unit < stream.units.size() && sent.unit_begin + stream.units[sent.unit].bytes() <= sent.bytes)
      sent.unit_begin += stream.units[sent.unit++].bytes();
    return true;
  }

  // Returns the largest number of bytes, in whole elements, that take at most `seconds`; 0 if too few for a slice.
  int64_t fitting(const Stream& stream, int64_t bytes, double seconds) const {
    if (stream.seconds(pricer_, bytes) <= seconds) return bytes;
    if (kMin * stream.seconds(pricer_, element_) > seconds) return 0;
    int64_t fits = 0, too_many = bytes / element_;
    while (too_many - fits > 1) {
      const int64_t middle = fits + (too_many - fits) / 2;
      (stream.seconds(pricer_, middle * element_) <= seconds ? fits : too_many) = middle;
    }
    return fits * element_;
  }

  const Iteration& it_;
  const Order& order_;
  const LayerPricer& pricer_;
  int64_t element_;
  std::map<int, std::vector<std::pair<size_t, size_t>>> makes_;  // for each task: the streams and units that it makes
};

// Writes a plan with the base plan's tasks in another order and with other slices of its gradients.
class Rewriter {
 public:
  explicit Rewriter(const Iteration& iteration) : it_(iteration), new_ids_(iteration.tasks().size()) {
    *structure_ = {it_.base.structure->flow, it_.base.structure->lanes, {}, 0};
    for (Lane& lane : structure_->lanes) lane.queue.clear();
  }

  Plan write(const Filled& filled) {
    Plan plan = it_.base;
    plan.slices.clear();
    for (const Step& step : filled.steps) {
      if (step.task < 0)
        push_slice(step, plan);
      else
        push(it_.task(step.task), it_.after[step.task], plan);
    }
    for (const Task& task : it_.tasks())
      if (const auto id = static_cast<size_t>(task.id); !it_.ordered[id] && new_ids_[id].empty())
        push(task, it_.after[id], plan);
    structure_->slices = static_cast<int>(plan.slices.size());
    for (Gradient& gradient : plan.gradients)
      if (gradient.made_by >= 0) gradient.made_by = new_ids_[gradient.made_by].front();
    plan.structure = std::move(structure_);
    set_works(plan);
    return plan;
  }

 private:
  Task& push(const Task& old, const std::vector<int>& after, Plan& plan) {
    Task task = old;
    task.id = static_cast<int>(structure_->tasks.size());
    if (task.slice >= 0) {
      plan.slices.push_back(it_.base.slices[task.slice]);
      task.slice = static_cast<int>(plan.slices.size()) - 1;
    }
    std::set<int> ids;
    for (const int other : after) ids.insert(new_ids_[other].begin(), new_ids_[other].end());
    task.after.assign(ids.begin(), ids.end());
    new_ids_[old.id].push_back(task.id);
    structure_->lanes[task.lane].queue.push_back(task.id);
    return structure_->tasks.emplace_back(std::move(task));
  }

  // Adds a slice. It waits for the makers of all units from which it has bytes; tasks that waited for one of these
  // units wait for it.
  void push_slice(const Step& step, Plan& plan) {
    std::vector<const Unit*> units;
    std::vector<int> makers;
    GradientSlice slice;
    int64_t begin = 0;
    for (const Unit& unit : it_.streams[step.stream].units) {
      const int64_t end = begin + unit.bytes();
      if (begin < step.end && end > step.begin) {
        if (units.empty()) slice = {unit.slice.gradient, unit.slice.begin + step.begin - begin, 0};
        makers.insert(makers.end(), unit.makers.begin(), unit.makers.end());
        units.push_back(&unit);
      }
      begin = end;
    }
    for (; slice.begin >= it_.base.gradients[slice.gradient].bytes; ++slice.gradient)
      slice.begin -= it_.base.gradients[slice.gradient].bytes;
    slice.end = slice.begin + step.end - step.begin;
    const Task& task = push(it_.task(units.front()->task), makers, plan);
    plan.slices.back() = slice;
    for (size_t i = 1; i < units.size(); ++i) new_ids_[units[i]->task].push_back(task.id);
  }

  const Iteration& it_;
  std::shared_ptr<Structure> structure_ = std::make_shared<Structure>();
  Lists new_ids_;  // for each id of the base plan, the new ids
};

// Returns the base plan: passes follow each other (with several stages, in the order of 1F1B), and each layer's
// gradients have their own slices.
Plan base_plan(const ModelShape& model, const WaveDegrees& degrees) {
  ModelShape decided = model;
  decided.order = model.shape.parallel.pp > 1 ? PipelineOrder::one_f_one_b : PipelineOrder::gpipe;
  if (model.shape.rounding == Rounding::lcm && model.shape.row_multiple == 1)
    decided.shape.row_multiple =
        std::lcm(std::lcm(degrees.first_forward, degrees.forward), std::lcm(degrees.backward, degrees.last_backward));
  return timed_model_plan(kWave, decided, wave_decision(model, degrees));
}

/// The range of degrees to try in a phase.
struct DegreeRange {
  int first = 1, max = 1;
};
using DegreeRanges = EnumArray<Phase, DegreeRange, kPhases>;

DegreeRanges degree_ranges(const WaveChoice& choice, const LayerPricer& pricer) {
  const int most = largest_degree(pricer);
  const auto tried = [&](int fixed) {
    return fixed > 0 ? DegreeRange{std::min(fixed, most), std::min(fixed, most)}
                     : DegreeRange{1, std::min(kMaxWaveDegree, most)};
  };
  return {tried(choice.forward), tried(choice.backward)};
}

/// Lower bounds on the seconds of passes: the work of each lane, and the chain of dependent tasks.
struct Load {
  std::vector<double> busy_s;  // by lane
  double chain_s = 0;
  double halves_s = 0;  // work on the compute lane that no other pass waits for

  void add(const Load& other, double times = 1) {
    for (size_t lane = 0; lane < busy_s.size(); ++lane) busy_s[lane] += times * other.busy_s[lane];
    chain_s += times * other.chain_s;
    halves_s += times * other.halves_s;
  }
  void lower(const Load& other) {
    for (size_t lane = 0; lane < busy_s.size(); ++lane) busy_s[lane] = std::min(busy_s[lane], other.busy_s[lane]);
    chain_s = std::min(chain_s, other.chain_s);
    halves_s = std::max(halves_s, other.halves_s);
  }
};

/// The seconds of an iteration's step, after its passes. Tasks that wait for sums of gradients follow all passes on
/// their lane.
struct StepLoad {
  StepLoad(const LayerPricer& pricer, const LayerPricer* dense, const ModelShape& model, int stage, size_t lanes);

  std::vector<double> sums_s, gathers_s;  // by lane
  std::vector<double> head_sums_s;        // sums of the head's gradients, which may be sent at any time
  double optimizers_s = 0, first_s = 0;   // all optimizer tasks; the shortest one
  bool waits = false;                     // optimizer tasks wait for sums, or for all passes
  /// Returns the least seconds of the step after the passes' last computation.
  double behind_s() const {
    return waits ? std::max(optimizers_s, first_s + *std::ranges::max_element(gathers_s)) : optimizers_s;
  }
};

StepLoad::StepLoad(const LayerPricer& pricer, const LayerPricer* dense, const ModelShape& model, int stage,
                   size_t lanes)
    : sums_s(lanes), gathers_s(lanes), head_sums_s(lanes), waits(!model.step.planned || pricer.has(GroupKind::dp)) {
  const ParallelShape& p = model.shape.parallel;
  const int dense_layers = model.dense_in(stage), moe_layers = model.moe_in(stage);
  const int64_t embedding_bytes = stage == 0 ? model.embedding_gradient_bytes : 0;
  const int64_t head_bytes = stage + 1 == p.pp ? model.head_gradient_bytes : 0;
  const schedule::StageLanes of(kWave.lanes, networks_of(pricer.groups()), 1);
  const auto on = [&](GroupKind group, std::vector<double>& seconds) -> double& { return seconds[of.lane(group, 0)]; };
  const auto each_layer = [&](const auto& value_of) {
    auto sum = moe_layers * std::invoke(value_of, pricer);
    if (dense_layers > 0) sum += dense_layers * std::invoke(value_of, *dense);
    return sum;
  };
  if (pricer.has(GroupKind::dp)) {
    const int64_t bytes = embedding_bytes + each_layer(&LayerPricer::gradient_bytes);
    const double seconds = pricer.gradient_seconds_in_parts(bytes);
    on(GroupKind::dp, sums_s) += seconds;
    on(GroupKind::dp, head_sums_s) = pricer.gradient_seconds_in_parts(bytes + head_bytes) - seconds;
    if (p.zero > 0)
      on(GroupKind::dp, gathers_s) +=
          each_layer([](const LayerPricer& l) { return l.dense_seconds(TaskKind::weights, Phase::backward); });
  }
  if (pricer.has(GroupKind::edp) && p.zero > 0)
    on(GroupKind::edp, gathers_s) += moe_layers * pricer.dense_seconds(TaskKind::expert_weights, Phase::backward);
  if (!model.step.planned) {
    optimizers_s = first_s = pricer.dense_seconds(TaskKind::optimizer, Phase::backward);
    return;
  }
  if (pricer.has(GroupKind::edp))
    on(GroupKind::edp, sums_s) += min_expert_sums_s(pricer, moe_layers * expert_gradient_bytes(model.shape));
  if (!model.step.optimizer) return;
  first_s = std::numeric_limits<double>::infinity();
  const auto add = [&](const LayerCase& c, const StepWeights& weights, int times) {
    if (times == 0) return;
    const double bytes = optimizer_bytes(c, weights, *model.step.optimizer);
    const double seconds = step_seconds(pricer, TaskKind::optimizer, {Op::copy, GroupKind::none, bytes, 0, 0});
    optimizers_s += times * seconds;
    first_s = std::min(first_s, seconds);
  };
  add(model.shape, step_weights(model.shape), moe_layers);
  if (dense_layers > 0) add(dense->shape(), step_weights(dense->shape()), dense_layers);
  if (!model.ends.none()) {
    if (stage + 1 == p.pp) add(model.shape, model.ends.head, 1);
    if (stage == 0) add(model.shape, model.ends.embedding, 1);
  } else if (head_bytes + embedding_bytes > 0) {
    first_s = 0;
  }
}

/// The loads of a model's layers, which all stages share.
class LayerLoads {
 public:
  LayerLoads(const LayerPricer& pricer, const ModelShape& model, const DegreeRanges& ranges)
      : dense(model.dense.has_none(model.layers) ? nullptr : &pricer.dense(model.dense.hidden)),
        lanes(BoundShapes().get(kWave, pricer.outline(), Phase::forward).lanes.size()) {
    const KindPricers pricers = kind_pricers(pricer, model.dense, model.whole, model.layers);
    for (const LayerKind kind : kAllLayerKinds)
      if (pricers[kind] != nullptr)
        set_loads(*pricers[kind], is_dense(kind) ? DegreeRanges{{{{1, 1}, {1, 1}}}} : ranges, kinds[kind]);
  }

  // loads: for each phase and degree; degree 0 is the minimum over all degrees. outside_s: for each lane, the least
  // seconds before its tasks in a forward, and after them in a backward.
  struct Layer {
    EnumArray<Phase, std::map<int, Load>, kPhases> loads;
    EnumArray<Phase, std::vector<double>, kPhases> outside_s;
  };

  const LayerPricer* const dense;  // null: no layer is dense
  const size_t lanes;
  EnumArray<LayerKind, Layer, kLayerKinds> kinds;

 private:
  void set_loads(const LayerPricer& pricer, const DegreeRanges& ranges, Layer& layer) {
    BoundShapes shapes;
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      const BoundShape& shape = shapes.get(kWave, pricer.outline(), phase);
      BoundShape chain = shape;
      chain.weights.clear();  // the chain does not wait for the weight halves
      chain.beside_sum.clear();
      chain.shared.clear();  // its bound assumes the schedule's own order of lanes
      const PhaseBound all(kWave, shape, pricer), chained(kWave, chain, pricer);
      layer.outside_s[phase].assign(lanes, std::numeric_limits<double>::infinity());
      for (int r = ranges[phase].first; r <= ranges[phase].max; ++r) {
        Load load{{}, chained.crossings({.exact = r}).back().back()};
        load.halves_s = all.busy(0, {.exact = r}) - chained.busy(0, {.exact = r});
        for (size_t lane = 0; lane < lanes; ++lane) {
          load.busy_s.push_back(all.busy(static_cast<int>(lane), {.exact = r}));
          double& outside_s = layer.outside_s[phase][lane];
          outside_s = std::min(outside_s, all.outside(static_cast<int>(lane), {.exact = r}));
        }
        if (phase == Phase::backward && pricer.outline().recomputes) load.add(layer.loads[0].at(0));
        layer.loads[phase].try_emplace(0, load).first->second.lower(load);
        layer.loads[phase].emplace(r, std::move(load));
      }
    }
  }
};

/// Lower bounds on a stage's part of an iteration: each lane's work, with the least seconds before its first task and
/// after its last one; and chains of dependent tasks within a micro-batch, across micro-batches if memory or turns
/// order them, and in the step.
class StageBound {
 public:
  /// `loads` must outlive the object.
  StageBound(const LayerPricer& pricer, const LayerLoads& loads, const ModelShape& model, const WaveChoice& choice,
             int stage)
      : model_(model),
        layers_(layers_of_stage(model.split(), stage)),
        loads_(loads),
        keep_(choice.keep),
        ranges_(degree_ranges(choice, pricer)),
        order_(choice.order),
        lanes_(loads.lanes),
        step_(pricer, loads.dense, model, stage, lanes_) {
    lead_s_ = outside_s(Phase::forward);
    tail_s_ = outside_s(Phase::backward);
  }

  /// Returns the bound over all degrees.
  double seconds() const {
    if (model_.micro_batches == 1) return seconds({0, 0, 0, 0});
    double min_s = std::numeric_limits<double>::infinity();
    for (int f = ranges_[0].first; f <= ranges_[0].max; ++f)
      for (int b = ranges_[1].first; b <= ranges_[1].max; ++b) min_s = std::min(min_s, seconds({0, f, b, 0}));
    return min_s;
  }
  /// Returns the bound for these degrees; 0: all degrees.
  double seconds(const WaveDegrees& degrees) const;
  /// Returns the least seconds of passes through the layers of earlier stages, which precede the stage's first task in
  /// a forward and follow its last task in a backward.
  double before_s(Phase phase, int degree) const {
    double seconds = 0;
    for (int layer = 0; layer < layers_.front(); ++layer) seconds += load(layer, phase, degree).chain_s;
    return seconds;
  }

 private:
  const Load& load(int layer, Phase phase, int degree) const {
    const LayerKind kind = model_.kind(layer);
    return loads_.kinds[kind].loads[phase].at(is_dense(kind) ? 0 : degree);
  }

  // Returns the load of all layers of the stage in one phase of one micro-batch.
  Load all_layers(Phase phase, int degree) const {
    Load sum{std::vector<double>(lanes_)};
    for (const int layer : layers_) sum.add(load(layer, phase, degree));
    return sum;
  }

  // Returns, for each lane, the least seconds before its first task or after its last one, by the first layer that uses
  // it.
  std::vector<double> outside_s(Phase phase) const {
    std::vector<double> outside_s(lanes_);
    for (size_t lane = 0; lane < lanes_; ++lane)
      for (const int layer : layers_) {
        const LayerLoads::Layer& kind = loads_.kinds[model_.kind(layer)];
        if (const double own_s = kind.outside_s[phase][lane]; std::isfinite(own_s)) {
          outside_s[lane] += own_s;
          break;
        }
        outside_s[lane] += load(layer, phase, 0).chain_s;
      }
    return outside_s;
  }

  // Returns a lower bound on the seconds from one micro-batch's last forward to the next one's, if memory makes
  // forwards wait for backwards: the largest sum of the backwards up to the i-th, and of the forwards from the one that
  // waits for it.
  double micro_batch_s(const WaveDegrees& degrees) const {
    const auto layers = static_cast<int>(std::ssize(layers_));
    const int ahead = keep_ - layers;  // number of the next micro-batch's forwards that need not wait
    std::vector<double> forwards_s(static_cast<size_t>(layers) + 1);
    for (int i = layers; i-- > 0;)
      forwards_s[i] = forwards_s[i + 1] + load(nth_layer(i), Phase::forward, degrees.forward).chain_s;
    double max_s = 0, backwards_s = 0;
    for (int i = 0; i + ahead < layers; ++i) {
      backwards_s += load(nth_layer(layers - 1 - i), Phase::backward, degrees.backward).chain_s;
      max_s = std::max(max_s, backwards_s + forwards_s[i + ahead]);
    }
    return max_s;
  }

  // Returns a lower bound on the time at which the first gradient can be sent: after all forwards and the backwards
  // that they wait for.
  double sums_begin(const WaveDegrees& degrees, const Load& all) const {
    double before_s = lead_s_[0] + all.busy_s[0];
    const auto layers = static_cast<int>(std::ssize(layers_));
    const int cells = layers * model_.micro_batches;
    for (int n = std::max(0, cells - keep_); n < cells; ++n) {
      const int degree = n >= cells - layers ? degrees.last_backward : degrees.backward;
      before_s -= load(nth_layer(layers - 1 - n % layers), Phase::backward, degree).busy_s[0];
    }
    return before_s;
  }

  // Returns a lower bound on the seconds of all turns. Except for the first and last micro-batches, the turns are
  // equal, so a few are computed and the result is extrapolated. `before_sums`: only turns before the first backward of
  // the last micro-batch.
  double turns_s(const WaveDegrees& degrees, bool before_sums) const {
    const int at_once = order_ == IterationOrder::two_forwards ? 2 : 1;
    const int several = 2 * at_once + model_.micro_batches % at_once;
    const int more = (model_.micro_batches - several) / at_once;
    if (more < 2) return turns_s(degrees, before_sums, model_.micro_batches);
    const double few_s = turns_s(degrees, before_sums, several);
    return few_s + more * (turns_s(degrees, before_sums, several + at_once) - few_s);
  }

  // The same without extrapolation. A turn takes at least the work of its busiest lane, and at least each micro-batch's
  // chain of passes.
  double turns_s(const WaveDegrees& degrees, bool before_sums, int micro_batches) const {
    const auto is_last = [&](const Pass& pass) {
      return pass.phase == Phase::backward && pass.micro_batch + 1 == micro_batches;
    };
    const auto load_of = [&](const Pass& pass) -> const Load& {
      if (pass.phase == Phase::forward)
        return load(pass.layer, pass.phase, pass.micro_batch == 0 ? degrees.first_forward : degrees.forward);
      return load(pass.layer, pass.phase, is_last(pass) ? degrees.last_backward : degrees.backward);
    };
    double seconds = 0;
    for (const Turn& turn : turns_of(order_, model_.layers, micro_batches)) {
      if (before_sums && std::ranges::any_of(turn, is_last)) break;
      Load all{std::vector<double>(lanes_)};
      std::map<std::pair<Phase, int>, double> chains_s;
      for (const Pass& pass : turn) {
        all.add(load_of(pass));
        chains_s[{pass.phase, pass.micro_batch}] += load_of(pass).chain_s;
      }
      double turn_s = *std::ranges::max_element(all.busy_s);
      for (const auto& [passes, chain_s] : chains_s) turn_s = std::max(turn_s, chain_s);
      seconds += turn_s;
    }
    return seconds;
  }

  int nth_layer(int i) const { return layers_[i]; }

  const ModelShape& model_;
  std::vector<int> layers_;  // layers of the stage
  const LayerLoads& loads_;
  int keep_;  // layers whose activations are kept
  DegreeRanges ranges_;
  IterationOrder order_;
  size_t lanes_;
  StepLoad step_;
  std::vector<double> lead_s_, tail_s_;
};

double StageBound::seconds(const WaveDegrees& degrees) const {
  const int between = model_.micro_batches - 1;
  Load all = all_layers(Phase::forward, degrees.first_forward);
  all.add(all_layers(Phase::backward, degrees.last_backward));
  const double ends_chain_s = all.chain_s;
  if (between > 0) {
    all.add(all_layers(Phase::forward, degrees.forward), between);
    all.add(all_layers(Phase::backward, degrees.backward), between);
  }
  const bool any = order_ == IterationOrder::any;
  const double chain_s = any ? ends_chain_s + between * micro_batch_s(degrees) : turns_s(degrees, false);
  const double sums_begin_s = any ? sums_begin(degrees, all) : turns_s(degrees, true);
  const double behind_s = step_.behind_s();
  // Attention is the chain's last computation, so the seconds after it do not depend on the degree.
  const double tail_s = before_s(Phase::backward, degrees.last_backward);  // backwards on earlier stages
  double end_s = std::max({chain_s + tail_s, chain_s - tail_s_[0] + (step_.waits ? behind_s : step_.first_s),
                           lead_s_[0] + all.busy_s[0] + behind_s, lead_s_[0] + all.busy_s[0] - all.halves_s + tail_s});
  for (size_t lane = 1; lane < lanes_; ++lane) {
    const double passes_s = all.busy_s[lane] > 0 ? lead_s_[lane] + all.busy_s[lane] : 0;
    const double sums_s = step_.sums_s[lane] + step_.gathers_s[lane];
    end_s = std::max(end_s, passes_s + step_.head_sums_s[lane] + sums_s);
    if (step_.sums_s[lane] > 0) end_s = std::max(end_s, sums_begin_s + sums_s);
    if (all.busy_s[lane] == 0) continue;
    end_s = std::max(end_s, passes_s + tail_s_[lane] + tail_s);
    if (step_.waits && tail_s_[lane] > tail_s_[0])  // a computation follows the lane's last task
      end_s = std::max(end_s, passes_s + tail_s_[lane] - tail_s_[0] + behind_s);
  }
  return before_s(Phase::forward, degrees.first_forward) + end_s;
}

/// The bound of an iteration: the largest bound of its stages.
class IterationBound {
 public:
  IterationBound(const LayerPricer& pricer, const ModelShape& model, const WaveChoice& choice)
      : loads_(pricer, model, degree_ranges(choice, pricer)) {
    for (int stage = 0; stage < model.shape.parallel.pp; ++stage)
      stages_.emplace_back(pricer, loads_, model, choice, stage);
  }
  IterationBound(const IterationBound&) = delete;  // stages have references to loads_
  IterationBound& operator=(const IterationBound&) = delete;
  /// Returns the bound over all degrees, or for the given degrees (0: all).
  double seconds(const auto&... degrees) const {
    double max_s = 0;
    for (const StageBound& stage : stages_) max_s = std::max(max_s, stage.seconds(degrees...));
    return max_s;
  }

 private:
  const LayerLoads loads_;
  std::vector<StageBound> stages_;
};

// A plan in a new order, and a lower bound on its seconds. There is no plan if the bound is not below a limit.
struct Ordered {
  std::optional<Plan> plan;
  double min_s = 0;
};

Ordered ordered(const LayerPricer& pricer, const ModelShape& model, int keep, const WaveDegrees& degrees,
                const WaveSearch& search, double limit_s) {
  const Plan base = base_plan(model, degrees);
  const Iteration iteration(base, pricer, keep, search.order);
  const Order order = best_order(iteration, search.draws);
  if (!search::is_better(order.seconds, limit_s)) return {{}, order.seconds};
  return {Rewriter(iteration).write(Filler(iteration, order, pricer).best()), order.seconds};
}

// Limits of the effort for random orders after the degrees are found: number of orders, and tasks of all orders.
constexpr int kMaxDraws = 100, kDrawnTasks = 100'000;
// For models with more than kMaxTriedCells cells, all degrees are tried on a part with kTriedLayers layers and
// kTriedMicroBatches micro-batches, then the best ones on the whole model, up to kWholeTasks tasks in total.
constexpr int kMaxTriedCells = 96, kTriedLayers = 8, kTriedMicroBatches = 4, kWholeTasks = 300'000;

// The best plan of a model over the degrees that are tried.
class DegreeTrials {
 public:
  // `prunes`: whether to skip degrees whose bound is not below the best plan's seconds.
  DegreeTrials(const LayerPricer& pricer, const ModelShape& model, const WaveChoice& choice, bool prunes)
      : pricer_(pricer),
        model_(model),
        choice_(choice),
        ranges_(degree_ranges(choice, pricer)),
        bound_(pricer, model, choice),
        prunes_(prunes) {
    best_.seconds = std::numeric_limits<double>::infinity();
  }

  // First tries the same degrees for all micro-batches, then other degrees for the first forward and the last backward,
  // then other degrees for the passes between them.
  void attempt_all() {
    attempt_each([](int forward, int backward) { return WaveDegrees{forward, forward, backward, backward}; });
    if (model_.micro_batches == 1) return;
    const WaveDegrees alike = *best_.degrees;
    attempt_each([&](int first, int last) { return WaveDegrees{first, alike.forward, alike.backward, last}; });
    const WaveDegrees ends = *best_.degrees;
    attempt_each([&](int forward, int backward) {
      return WaveDegrees{ends.first_forward, forward, backward, ends.last_backward};
    });
  }

  void attempt(const WaveDegrees& degrees, int draws = 0) {
    if (prunes_ && best_.degrees && bound_.seconds(degrees) >= best_.seconds) return;
    auto [plan, seconds] = ordered(pricer_, model_, choice_.keep, degrees, {draws, choice_.order}, best_.seconds);
    if (plan) seconds = timeline_of(*plan, price(pricer_, *plan), pricer_.profile().contention).makespan_s;
    tried_.emplace_back(seconds, degrees);
    if (plan && search::is_better(seconds, best_.seconds)) best_ = {*std::move(plan), seconds, degrees};
  }

  WaveResult& best() { return best_; }

  std::ptrdiff_t attempts() const { return std::ssize(tried_); }
  // Returns the tried degrees, the best first. Of those that differ only in the first forward and last backward, it has
  // only the best.
  std::vector<WaveDegrees> best_first() {
    std::ranges::stable_sort(tried_, {}, &std::pair<double, WaveDegrees>::first);
    std::vector<WaveDegrees> degrees;
    std::set<std::pair<int, int>> known;
    for (const auto& [seconds, tried] : tried_)
      if (known.emplace(tried.forward, tried.backward).second) degrees.push_back(tried);
    return degrees;
  }

 private:
  void attempt_each(auto degrees_of) {
    for (int f = ranges_[0].first; f <= ranges_[0].max; ++f)
      for (int b = ranges_[1].first; b <= ranges_[1].max; ++b)
        if (const WaveDegrees degrees = degrees_of(f, b); !is_tried(degrees)) attempt(degrees);
  }

  bool is_tried(const WaveDegrees& degrees) const {
    return std::ranges::find(tried_, degrees, &std::pair<double, WaveDegrees>::second) != tried_.end();
  }

  const LayerPricer& pricer_;
  const ModelShape& model_;
  const WaveChoice& choice_;
  const DegreeRanges ranges_;
  const IterationBound bound_;
  const bool prunes_;
  WaveResult best_;
  std::vector<std::pair<double, WaveDegrees>> tried_;
};

// Returns the model, or its first layers and micro-batches if it has too many passes to try all degrees.
ModelShape tried_part(const ModelShape& model) {
  if (model.layers * model.micro_batches <= kMaxTriedCells) return model;
  const int chunks = model.split().chunks(), stages = model.split().stages;
  int layers = std::min(model.layers, std::max(kTriedLayers / chunks, 1) * chunks);
  while (model.dense.count(0, layers) == layers) layers += chunks;
  ModelShape part = first_layers(model, std::min(layers, model.layers));
  const int parts = model.split().parts;
  const int tried = stages == 1 ? std::max(kTriedMicroBatches / parts, 1) * parts
                                : std::max(2 * kTriedMicroBatches / stages, 1) * stages * parts;
  part.micro_batches = std::min(model.micro_batches, tried);
  return part;
}

// Replaces `best` by a faster plan, if one is found.
void improve(const LayerPricer& pricer, const ModelShape& model, const WaveChoice& choice, WaveResult& best) {
  const ModelShape part = tried_part(model);
  // The choice for the part, with the same number of micro-batches and additional layers in flight.
  WaveChoice of_part = choice;
  const int layers = max_layers(model.split()), layers_of_part = max_layers(part.split());
  of_part.keep = std::max(min_kept_layers(part, choice.order),
                          choice.keep / layers * layers_of_part + std::min(choice.keep % layers, layers_of_part));
  const bool is_whole = part.layers == model.layers && part.micro_batches == model.micro_batches;
  DegreeTrials trials(pricer, part, of_part, is_whole);
  trials.attempt_all();
  DegreeTrials whole(pricer, model, choice, true);
  if (is_whole)
    whole.best() = std::move(trials.best());
  else
    for (const WaveDegrees& degrees : trials.best_first()) {
      whole.attempt(degrees);
      if (whole.attempts() * std::ssize(whole.best().plan.tasks()) * model.split().stages > kWholeTasks) break;
    }
  const auto tasks = static_cast<int>(std::ssize(whole.best().plan.tasks()));
  if (const int draws = std::min(kMaxDraws, kDrawnTasks / tasks); draws > 0)
    whole.attempt(*whole.best().degrees, draws);
  if (search::is_better(whole.best().seconds, best.seconds)) best = std::move(whole.best());
}

// Returns the model with each micro-batch cut into `parts` micro-batches: of fewer samples or, if `of_samples`, of
// parts.
ModelShape cut_into(const ModelShape& model, int parts, bool of_samples) {
  ModelShape cut = model;
  (of_samples ? cut.shape.layer.parts : cut.shape.layer.batch) = of_samples ? parts : cut.shape.layer.batch / parts;
  cut.micro_batches *= parts;
  return cut;
}

// Returns the model and its variants with cut micro-batches.
std::vector<ModelShape> chunk_counts_of(const ModelShape& model, const WaveChoice& choice) {
  std::vector<ModelShape> all{model};
  const int most = kMaxCutMicroBatches / model.micro_batches;
  if (choice.cuts_batches)
    for (int parts = 2; parts <= std::min<int64_t>(most, model.shape.layer.batch); ++parts)
      if (model.shape.layer.batch % parts == 0) all.push_back(cut_into(model, parts, false));
  if (choice.sample_parts > 1) all.push_back(cut_into(model, choice.sample_parts, true));
  return all;
}

}  // namespace

ModelDecision wave_decision(const ModelShape& model, const WaveDegrees& degrees) {
  ModelDecision decision;
  decision.degree_forward = degrees.forward;
  decision.degree_first_forward = degrees.first_forward;
  decision.degree_backward = degrees.backward;
  const LayerCases cases(model.shape, model.dense, model.whole);
  const bool sums = model.shape.parallel.replicas() > 1;
  const StageSplit split = model.split();
  for (int stage = 0; stage < (stages_decide_separately(model) ? split.stages : 1); ++stage) {
    int64_t waiting = sums && stage + 1 == split.stages ? model.head_gradient_bytes : 0;
    for (int n = 0; n < layers_in(split, stage); ++n) {
      const int layer = nth_backward(split, stage, n);
      decision.backwards.push_back({cases.is_dense(layer) ? 1 : degrees.last_backward, 0, waiting, {}, {}});
      waiting = sums ? gradient_bytes(cases.at(layer)) : 0;
    }
  }
  return decision;
}

int min_kept_layers(const ModelShape& model, IterationOrder order) {
  const StageSplit split = model.split();
  const auto kept = [&](int stage) {
    const int chunk = layers_in(split, stage) / split.virtual_stages;
    return chunk * passes_in_flight(PipelineOrder::one_f_one_b, model.micro_batches, split, stage);
  };
  if (split.stages > 1 || split.parts > 1) {
    int most = 0;
    for (int stage = 0; stage < split.stages; ++stage) most = std::max(most, kept(stage));
    return most;
  }
  return model.layers * (order == IterationOrder::two_forwards ? std::min(2, model.micro_batches) : 1);
}

int raised_kept_layers(const ModelShape& model, int passes) {
  const StageSplit split = model.split();
  const int layers = max_layers(split), least = min_kept_layers(model, IterationOrder::any);
  return std::max(least + 1,
                  std::min(layers * model.micro_batches, least + passes * split.parts * layers / split.virtual_stages));
}

int default_kept_layers(const ModelShape& model, IterationOrder order) {
  if (order != IterationOrder::any) return std::max(raised_kept_layers(model, 0), min_kept_layers(model, order));
  return raised_kept_layers(model, model.order == PipelineOrder::gpipe ? model.micro_batches : 1);
}

Plan wave_plan(const LayerPricer& pricer, const ModelShape& model, int keep, const WaveDegrees& degrees,
               const WaveSearch& search) {
  require<Unsupported>(search.order == IterationOrder::any || model.split().stages * model.split().parts == 1,
                       "an order in turns: found {} pipeline stages and samples in {} parts, expected 1 and 1",
                       model.split().stages, model.split().parts);
  const int least = min_kept_layers(model, search.order);
  require<BadInput>(keep >= least, "wave: found the activations of {} layers to keep, expected at least {}", keep,
                    least);
  return *ordered(pricer, model, keep, degrees, search, std::numeric_limits<double>::infinity()).plan;
}

WaveResult search_wave(const LayerPricer& pricer, const ModelShape& model, const WaveChoice& choice,
                       const WaveResult& known) {
  WaveResult best = known;
  for (const ModelShape& cut : chunk_counts_of(model, choice)) {
    WaveChoice own = choice;
    own.keep *= cut.micro_batches / model.micro_batches;
    improve(LayerPricer(pricer.profile(), cut.shape, pricer.options()), cut, own, best);
  }
  if (best.degrees) check_plan(best.plan);
  return best;
}

double wave_bound(const LayerPricer& pricer, const ModelShape& model, const WaveChoice& choice) {
  double min_s = std::numeric_limits<double>::infinity();
  for (const ModelShape& cut : chunk_counts_of(model, choice)) {
    const LayerPricer own(pricer.profile(), cut.shape, pricer.options());
    WaveChoice cut_choice = choice;
    cut_choice.keep *= cut.micro_batches / model.micro_batches;
    min_s = std::min(min_s, IterationBound(own, cut, cut_choice).seconds());
  }
  return min_s;
}

}  // namespace moe
