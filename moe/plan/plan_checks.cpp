#include "moe/plan/detail/plan_checks.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "moe/base/enum_array.h"
#include "moe/plan/pipeline.h"

namespace moe {
namespace {

// Returns the tasks in an order in which predecessors come first, without tasks on a cycle or after one.
std::vector<int> topological(const Edges& edges) {
  const size_t n = edges.size();
  std::vector<int> waiting(n), order;
  Edges next(n);
  for (size_t i = 0; i < n; ++i) {
    waiting[i] = static_cast<int>(edges[i].size());
    for (const int p : edges[i]) next[p].push_back(static_cast<int>(i));
    if (waiting[i] == 0) order.push_back(static_cast<int>(i));
  }
  for (size_t head = 0; head < order.size(); ++head)
    for (const int s : next[order[head]])
      if (--waiting[s] == 0) order.push_back(s);
  return order;
}

void require_all(const Plan& plan, const std::vector<int>& order, std::string_view complaint) {
  std::vector<bool> seen(plan.tasks().size());
  for (const int id : order) seen[id] = true;
  for (const Task& task : plan.tasks())
    if (!seen[task.id]) broken(task, "{}", complaint);
}

void check_chunk(const Task& task, int chunk, int chunks, std::string_view whose) {
  if (chunks < 1 || chunk < 0 || chunk >= chunks) broken(task, "{} chunk {} of {}", whose, chunk, chunks);
}

// Checks a task's own description: its chunk, the chunks of its accesses, and the group of its work.
void check_description(const Plan& plan, const Task& task) {
  check_chunk(task, task.chunk, task.chunks, "is");
  for (const Access& a : task.reads) check_chunk(task, a.chunk, a.chunks, "reads");
  for (const Access& a : task.writes) check_chunk(task, a.chunk, a.chunks, "writes");
  const GroupKind group = plan.works[task.id].group;
  if (group != task.group) broken(task, "runs over group {}, its work over {}", name_of(task.group), name_of(group));
}

Edges check_ids(const Plan& plan) {
  const auto& tasks = plan.tasks();
  const int n = static_cast<int>(tasks.size());
  require_equal(plan.works.size(), tasks.size(), "plan: works by task");
  std::vector<int> queued(tasks.size());
  for (const Lane& lane : plan.structure->lanes)
    for (const int id : lane.queue) {
      require<WrongResult>(id >= 0 && id < n, "plan: lane {} queues task {}, which does not exist", name_of(lane.kind),
                           id);
      ++queued[id];
    }
  Edges edges(tasks.size());
  for (int i = 0; i < n; ++i) {
    const Task& task = tasks[i];
    if (task.id != i) broken(task, "is at index {} of the tasks, expected its id", i);
    if (task.lane < 0 || task.lane >= static_cast<int>(plan.structure->lanes.size()))
      broken(task, "lane {} does not exist", task.lane);
    if (queued[i] != 1) broken(task, "is queued {} times, expected once", queued[i]);
    for (const int p : task.after)
      if (p < 0 || p >= n) broken(task, "waits for task {}, which does not exist", p);
    check_description(plan, task);
    edges[i] = task.after;
  }
  return edges;
}

// Returns whether each task has a larger id than all tasks that it waits for.
bool is_issued_in_order(const Edges& edges) {
  for (size_t id = 0; id < edges.size(); ++id)
    for (const int before : edges[id])
      if (before >= static_cast<int>(id)) return false;
  return true;
}

// Checks dependencies and lane orders together, as the executor will apply them.
void check_order(const Plan& plan) {
  Edges edges = check_ids(plan);
  for (const Lane& lane : plan.structure->lanes)
    for (size_t i = 1; i < lane.queue.size(); ++i) {
      edges[lane.queue[i]].push_back(lane.queue[i - 1]);
    }
  if (is_issued_in_order(edges)) return;  // no cycle is possible; otherwise find out which rule is broken
  require_all(plan, topological(check_ids(plan)), "waits for itself: its dependencies form a cycle");
  require_all(plan, topological(edges), "can never start: the lanes' orders deadlock");
  for (const Task& task : plan.tasks())
    for (const int p : edges[task.id])
      if (p >= task.id) broken(task, "is issued before {}, which it waits for", plan.tasks()[p].name());
}

void check_owners(const Plan& plan) {
  std::map<std::pair<int, Network>, const Lane*> owners;
  for (const Lane& lane : plan.structure->lanes)
    for (const Network network : {Network::inter, Network::intra}) {
      if (!lane.owns(network) || lane.kind == LaneKind::gradient) continue;
      const auto [owner, first] = owners.emplace(std::pair{lane.stage, network}, &lane);
      require<WrongResult>(first, "plan: lanes {} and {} of stage {} both own the {} network{}",
                           name_of(owner->second->kind), name_of(lane.kind), lane.stage, name_of(network),
                           lane.queue.empty() ? "" : ": " + plan.tasks()[lane.queue[0]].name());
    }
}

void check_lane_of_computation(const Task& task, const Lane& lane) {
  const bool on_host = runs_on_host(task.kind);
  if (on_host != (lane.kind == LaneKind::host) || (!on_host && lane.kind != LaneKind::compute && !copies(task.kind)))
    broken(task, "computes on the {} lane", name_of(lane.kind));
  if (transfers_offloaded_weights(task.kind) != (lane.kind == LaneKind::host_link))
    broken(task, "runs on the {} lane", name_of(lane.kind));
}

void check_lane_of_collective(const Plan& plan, const Task& task, const Lane& lane) {
  const Group& group = plan.groups[task.group];
  if (group.size < 2) broken(task, "is a collective over one rank");
  const bool receives = lane.kind == LaneKind::receive;
  if (receives != (task.kind == TaskKind::recv)) broken(task, "runs on the {} lane", name_of(lane.kind));
  if (!receives && !lane.owns(group.network))
    broken(task, "its {} group uses the {} network, which lane {} does not own", name_of(group.kind),
           name_of(group.network), name_of(lane.kind));
}

void check_lanes(const Plan& plan) {
  check_owners(plan);
  const StageSplit split = plan.split();
  std::vector<const Lane*> queued(plan.tasks().size());
  for (const Lane& lane : plan.structure->lanes)
    for (const int id : lane.queue) queued[id] = &lane;
  for (const Task& task : plan.tasks()) {
    const Lane& lane = plan.structure->lanes[task.lane];
    if (queued[task.id] != &lane) broken(task, "is not in the queue of its lane {}", name_of(lane.kind));
    if (const int stage = chunk_of_layer(split, task.layer) % split.stages; lane.stage != stage)
      broken(task, "runs on a lane of stage {}, its layer is on stage {}", lane.stage, stage);
    if (task.group == GroupKind::none)
      check_lane_of_computation(task, lane);
    else
      check_lane_of_collective(plan, task, lane);
  }
}

}  // namespace

Ancestors::Ancestors(const Plan& plan)
    : lanes_(plan.structure->lanes.size()),
      lane_(plan.tasks().size()),
      place_(plan.tasks().size()),
      known_(plan.tasks().size() * lanes_) {
  std::vector<int> last(lanes_, -1);
  for (const Task& task : plan.tasks()) {
    const size_t own = static_cast<size_t>(task.id), lane = static_cast<size_t>(task.lane);
    uint32_t* known = &known_[own * lanes_];
    const auto add = [&](int before) {
      const size_t p = static_cast<size_t>(before);
      for (size_t of = 0; of < lanes_; ++of) known[of] = std::max(known[of], known_[p * lanes_ + of]);
      known[lane_[p]] = std::max(known[lane_[p]], place_[p] + 1);
    };
    for (const int before : task.after) add(before);
    if (last[lane] >= 0) add(last[lane]);
    lane_[own] = static_cast<uint32_t>(task.lane);
    place_[own] = last[lane] < 0 ? 0 : place_[last[lane]] + 1;
    last[lane] = task.id;
  }
}

void check_plan(const Plan& plan) {
  check_order(plan);
  check_lanes(plan);
  const Ancestors ancestors(plan);
  check_rows(plan);
  check_shared(plan);
  check_dense(plan);
  check_attention(plan);
  check_ends(plan);
  check_transfers(plan);
  check_again(plan, ancestors);
  check_parts(plan, ancestors);
  check_accesses(plan, ancestors);
  check_gradients(plan, ancestors);
  check_step(plan, ancestors);
  check_offload(plan, ancestors);
}

// Checks the data of a plan: gradients, rows, and the buffers that tasks read and write.

namespace {

// Returns the offset of each gradient in the sequence of all gradient bytes, followed by the total.
std::vector<int64_t> offsets_of(const Plan& plan) {
  std::vector<int64_t> offsets{0};
  for (const Gradient& gradient : plan.gradients) offsets.push_back(offsets.back() + gradient.bytes);
  return offsets;
}

// Returns the last forward task of each lane, for the lanes that have one.
std::vector<int> last_forwards(const Plan& plan) {
  std::vector<int> last(plan.structure->lanes.size(), -1);
  for (const Task& task : plan.tasks())
    if (task.execution_phase() == Phase::forward) last[task.lane] = task.id;
  std::erase(last, -1);
  return last;
}

// Finds the tasks that contribute to the same gradients: those of every micro-batch and, for experts, every chunk.
class Makers {
 public:
  explicit Makers(const Plan& plan) {
    const bool experts = std::ranges::any_of(plan.gradients, &Gradient::experts);
    if (plan.micro_batches == 1 && !experts) return;
    std::set<Kind> kinds;
    for (const Gradient& gradient : plan.gradients)
      if (gradient.made_by >= 0) kinds.insert(kind_of(plan.tasks()[gradient.made_by]));
    by_task_.resize(plan.tasks().size(), nullptr);
    for (const Task& task : plan.tasks())
      if (kinds.contains(kind_of(task))) by_kind_[kind_of(task)].push_back(task.id);
    for (const auto& [kind, tasks] : by_kind_)
      for (const int task : tasks) by_task_[task] = &tasks;
  }
  std::span<const int> together_with(int maker) const {
    const std::vector<int>* all = by_task_.empty() ? nullptr : by_task_[maker];
    return all == nullptr ? std::span<const int>() : *all;
  }

 private:
  using Kind = std::tuple<TaskKind, Phase, bool, int>;  // the last element is the layer
  static Kind kind_of(const Task& task) { return {task.kind, task.phase, task.is_recompute, task.layer}; }
  std::map<Kind, std::vector<int>> by_kind_;
  std::vector<const std::vector<int>*> by_task_;
};

void check_made(const Plan& plan, const Ancestors& ancestors, const Task& task, int made_by, const Makers& makers) {
  if (!ancestors.before(made_by, task.id))
    broken(task, "sends gradients before {} made them", plan.tasks()[made_by].name());
  for (const int other : makers.together_with(made_by))
    if (!ancestors.before(other, task.id))
      broken(task, "sends gradients before {} added to them", plan.tasks()[other].name());
}

// A gradient that no task of this plan makes may be sent only after the forward.
void check_waiting(const Plan& plan, const Ancestors& ancestors, const Task& task, const std::vector<int>& forwards) {
  if (std::ranges::all_of(forwards, [&](int last) { return ancestors.before(last, task.id); })) return;
  for (const Task& maker : plan.tasks())
    if (maker.execution_phase() == Phase::forward && !ancestors.before(maker.id, task.id))
      broken(task, "sends gradients before {} ended the forward", maker.name());
}

std::vector<int> check_senders(const Plan& plan, const Ancestors& ancestors) {
  const int slices = static_cast<int>(plan.slices.size()), gradients = static_cast<int>(plan.gradients.size());
  const std::vector<int64_t> offsets = offsets_of(plan);
  const std::vector<int> forwards = last_forwards(plan);
  const Makers makers(plan);
  std::vector<int> sender(plan.slices.size(), -1);
  for (const Task& task : plan.tasks()) {
    if (!sends_gradients(task.kind)) continue;
    if (task.slice < 0 || task.slice >= slices) broken(task, "sends slice {}, the plan has {}", task.slice, slices);
    if (sender[task.slice] >= 0) broken(task, "sends slice {} a second time", task.slice);
    sender[task.slice] = task.id;
    const GradientSlice& slice = plan.slices[task.slice];
    if (slice.gradient < 0 || slice.gradient >= gradients)
      broken(task, "sends gradient {}, the plan has {}", slice.gradient, gradients);
    const size_t first = static_cast<size_t>(slice.gradient);
    for (size_t g = first; g < plan.gradients.size() && (g == first || offsets[g] < offsets[first] + slice.end); ++g) {
      if (const TaskKind sent_by = plan.gradients[g].sent_by(); sent_by != task.kind)
        broken(task, "sends gradients that {} sends", name_of(sent_by));
      if (const int made_by = plan.gradients[g].made_by; made_by >= 0)
        check_made(plan, ancestors, task, made_by, makers);
      else
        check_waiting(plan, ancestors, task, forwards);
    }
  }
  return sender;
}

using BufferKey = std::tuple<Buffer, PassKey>;
struct Write {
  BufferKey buffer;
  Rows rows;
  int task;
};

}  // namespace

void check_gradients(const Plan& plan, const Ancestors& ancestors) {
  for (const Gradient& gradient : plan.gradients)
    require<WrongResult>(gradient.made_by < static_cast<int>(plan.tasks().size()),
                         "plan: gradients of layer {} are made by task {}, which does not exist", gradient.layer,
                         gradient.made_by);
  const std::vector<int> sender = check_senders(plan, ancestors);
  const std::vector<int64_t> offsets = offsets_of(plan);
  std::vector<std::tuple<int64_t, int64_t, int>> sent;
  for (size_t s = 0; s < plan.slices.size(); ++s)
    if (sender[s] >= 0) {
      const int64_t offset = offsets[plan.slices[s].gradient];
      sent.emplace_back(offset + plan.slices[s].begin, offset + plan.slices[s].end, sender[s]);
    }
  std::sort(sent.begin(), sent.end());
  int64_t reached = 0;
  for (const auto& [begin, end, id] : sent) {
    if (begin != reached || end < begin)
      broken(plan.tasks()[id], "sends gradient bytes {} to {}, expected them from {} on", begin, end, reached);
    reached = end;
  }
  if (reached == offsets.back()) return;
  size_t g = 0;
  while (g + 1 < plan.gradients.size() && reached >= offsets[g + 1]) ++g;
  const int named = sent.empty() ? plan.gradients[g].made_by : std::get<2>(sent.back());  // -1: no task
  const std::string task = named < 0 ? "" : plan.tasks()[named].name() + ": ";
  throw WrongResult(fmt::format("plan: {}{} of {} gradient bytes of layer {} are sent", task, reached - offsets[g],
                                plan.gradients[g].bytes, plan.gradients[g].layer));
}

// If MP ranks have only the rows of their own tokens, they gather an end's input and reduce-scatter its sum. Otherwise
// every rank has all rows, and the sum is an AllReduce.
void check_ends(const Plan& plan) {
  const bool apart = traits_of(plan.structure->flow).holds == Tokens::own;
  for (const Task& task : plan.tasks()) {
    const bool shares_out = task.kind == TaskKind::end_allgather || task.kind == TaskKind::end_reducescatter;
    if (shares_out && !apart) broken(task, "gathers or scatters rows that every MP rank already has");
    if (task.kind == TaskKind::end_allreduce && apart)
      broken(task, "sums rows with an AllReduce, but each MP rank has only the rows of its own tokens");
  }
}

void check_transfers(const Plan& plan) {
  // The messages of a stage and a phase share one link, whichever chunks they connect. `sent` has the sends by phase
  // and receiving stage, in issue order; `received` counts those received so far.
  const StageSplit split = plan.split();
  std::map<std::pair<Phase, int>, std::vector<const Task*>> sent;
  std::map<std::pair<Phase, int>, size_t> received;
  const auto receiver = [](const Task& send) { return send.layer + (send.phase == Phase::forward ? 1 : -1); };
  const auto stage_of = [&](int layer) { return chunk_of_layer(split, layer) % split.stages; };
  for (const Task& task : plan.tasks())
    if (task.kind == TaskKind::send) sent[{task.phase, stage_of(receiver(task))}].push_back(&task);
  for (const Task& task : plan.tasks()) {
    if (task.kind != TaskKind::recv) continue;
    const std::vector<const Task*>& sends = sent[{task.phase, stage_of(task.layer)}];
    const size_t next = received[{task.phase, stage_of(task.layer)}]++;
    if (next >= sends.size()) broken(task, "receives a message that no task sends");
    if (sends[next]->micro_batch != task.micro_batch || receiver(*sends[next]) != task.layer)
      broken(task, "receives micro-batch {}, but {} is sent before it", task.micro_batch, sends[next]->name());
  }
}

namespace {

Rows rows_of(const Plan& plan, const Access& access) { return chunk_rows(plan.rows, access.chunks, access.chunk); }

// Checks that all rows that `read` reads are written by tasks ordered before `task`. `writes`: all writes of the plan,
// sorted by buffer and rows.
void check_read(const Plan& plan, const Ancestors& ancestors, const Task& task, const Access& read,
                const std::vector<Write>& writes) {
  const auto found = std::ranges::equal_range(writes, BufferKey{read.buffer, read.pass()}, {}, &Write::buffer);
  if (found.empty()) broken(task, "reads rows of {} that no task writes", name_of(read.buffer));
  const Rows rows = rows_of(plan, read);
  int64_t covered = rows.begin;
  // Writes do not overlap, so sorting them by their beginnings sorts them by their ends too.
  auto w = std::ranges::partition_point(found, [&](const Write& e) { return e.rows.end <= rows.begin; });
  for (; w != found.end() && w->rows.begin < rows.end; ++w) {
    if (!ancestors.before(w->task, task.id))
      broken(task, "reads {} before {} wrote it", name_of(read.buffer), plan.tasks()[w->task].name());
    if (w->rows.begin <= covered) covered = std::max(covered, w->rows.end);
  }
  if (covered < rows.end) broken(task, "reads rows of {} that no task writes", name_of(read.buffer));
}

}  // namespace

void check_accesses(const Plan& plan, const Ancestors& ancestors) {
  std::vector<Write> writes;  // sorted by buffer, then by rows
  std::set<PassKey> inside;   // passes of this plan; other data come from outside
  PassKey last{.layer = kEmbeddingLayer - 1};
  for (const Task& task : plan.tasks()) {
    if (task.pass() != last) inside.insert(last = task.pass());
    for (const Access& a : task.writes) writes.push_back({{a.buffer, a.pass()}, rows_of(plan, a), task.id});
  }
  std::sort(writes.begin(), writes.end(), [](const Write& a, const Write& b) {
    return std::tie(a.buffer, a.rows.begin, a.task) < std::tie(b.buffer, b.rows.begin, b.task);
  });
  for (size_t i = 1; i < writes.size(); ++i)
    if (writes[i].buffer == writes[i - 1].buffer && writes[i].rows.begin < writes[i - 1].rows.end)
      broken(plan.tasks()[writes[i].task], "writes rows of {} that {} wrote", name_of(std::get<0>(writes[i].buffer)),
             plan.tasks()[writes[i - 1].task].name());
  for (const Task& task : plan.tasks())
    for (const Access& a : task.reads) {
      if (!inside.contains(a.pass())) continue;
      const bool from_outside = plan.vocabulary == 0 || a.layer > 0;  // an embedding writes layer 0's input
      if (a.buffer == Buffer::input && a.phase == Phase::forward && from_outside) continue;
      check_read(plan, ancestors, task, a, writes);
    }
}

// Checks that a layer's pass is complete: rows through every stage, the shared expert, attention, a dense layer's
// feed-forward, and a repeated forward.

namespace {

// Returns whether all rows must pass tasks of this kind. Exchanges over a group of one rank have no tasks.
bool is_stage(const Plan& plan, TaskKind kind) {
  const GroupKind group = group_of(plan.structure->flow, kind);
  return group == GroupKind::none || plan.groups[group].size > 1;
}

using StagesOfLayer = EnumArray<TaskKind, std::vector<const Task*>, kTaskKinds>;

// A layer's backward has either whole expert tasks or both halves, each over all rows, because a whole task would
// overwrite what the dx half leaves for the dw half. A forward has no halves.
void check_halves(const Plan& plan, const StagesOfLayer& stages) {
  const auto& weights = stages[TaskKind::expert_dw];
  int64_t passed = 0;
  for (const Task* task : weights) passed += plan.rows_of(*task).count();
  for (const Task* task : stages[TaskKind::expert]) {
    const bool half = task->kind == TaskKind::expert_dx;
    if (half && task->phase == Phase::forward) broken(*task, "is half of a backward");
    if (half != !weights.empty())
      broken(*task, "is in a backward with {} tasks of kind expert_dw, expected either whole tasks or both halves",
             weights.size());
  }
  if (!weights.empty() && passed != plan.rows)
    broken(*weights.back(), "{} of {} rows pass this layer's {}", passed, plan.rows, name_of(TaskKind::expert_dw));
}

// Returns the tasks of every stage of each layer, in issue order.
std::map<PassKey, StagesOfLayer> stages_of_layers(const Plan& plan) {
  std::map<PassKey, StagesOfLayer> layers;
  for (const Task& task : plan.tasks()) {
    if (part_of(task.kind) != TaskPart::permute && !is_chunked(task.kind)) continue;
    TaskKind stage = task.kind == TaskKind::exchange ? TaskKind::combine : task.kind;
    if (is_expert_stage(stage)) stage = TaskKind::expert;
    layers[task.pass()][stage].push_back(&task);
  }
  return layers;
}

// Sorts the chunks of a stage by rows, and checks that each begins where the one before it ends.
void sort_and_check_chunks(const Plan& plan, std::vector<const Task*>& stage) {
  if (stage.empty() || !is_chunked(stage.front()->kind)) return;
  std::ranges::stable_sort(stage, {}, [&](const Task* task) { return plan.rows_of(*task).begin; });
  int64_t passed = 0;
  for (const Task* task : stage) {
    const Rows rows = plan.rows_of(*task);
    if (rows.begin != passed) broken(*task, "handles rows from {}, expected from {}", rows.begin, passed);
    passed = rows.end;
  }
}

// Checks that all rows pass a stage, whose chunks are sorted.
void check_stage(const Plan& plan, const StagesOfLayer& stages, TaskKind kind) {
  const std::vector<const Task*>& stage = stages[kind];
  const int64_t passed = stage.empty() ? 0 : plan.rows_of(*stage.back()).end;
  if (passed == plan.rows) return;
  const Task* named = stage.empty() ? nullptr : stage.back();
  for (const auto& other : stages) named = named != nullptr || other.empty() ? named : other.back();
  broken(*named, "{} of {} rows pass this layer's {}", passed, plan.rows, name_of(kind));
}

// Checks the reads of the shared expert's tensors: i_order must read its sum (with one MP rank, its output) in a
// forward, the gate in a backward, and its backward must read the input of its forward.
void check_reads_of_shared(const Plan& plan) {
  std::map<std::pair<int, int>, Buffer> inputs;  // by micro-batch and layer
  const auto reads = [](const Task& task, Buffer buffer, Phase phase) {
    return std::ranges::any_of(task.reads, [&](const Access& a) { return a.buffer == buffer && a.phase == phase; });
  };
  const bool sums = plan.groups[GroupKind::mp].size > 1;
  const Buffer sum = sums ? Buffer::shared_sum : Buffer::shared_partial;
  for (const Task& task : plan.tasks()) {
    const bool forward = task.phase == Phase::forward;
    if (task.kind == (forward ? TaskKind::i_order : TaskKind::gate) && !reads(task, sum, task.phase))
      broken(task, "does not read the sum of the shared expert");
    if (task.kind != TaskKind::shared) continue;
    if (task.reads.empty()) broken(task, "reads nothing");
    const std::pair layer{task.micro_batch, task.layer};
    if (forward)
      inputs[layer] = task.reads.front().buffer;
    else if (!reads(task, inputs[layer], Phase::forward))
      broken(task, "does not read the {} of its forward", name_of(inputs[layer]));
  }
}

}  // namespace

void check_rows(const Plan& plan) {
  std::map<PassKey, StagesOfLayer> layers = stages_of_layers(plan);
  for (auto& [layer, stages] : layers)
    for (std::vector<const Task*>& stage : stages) sort_and_check_chunks(plan, stage);
  for (const auto& [layer, stages] : layers)
    for (const TaskKind kind : stages_of(plan.structure->flow, layer.phase)) {
      if (kind == TaskKind::expert) check_halves(plan, stages);
      if (is_stage(plan, kind)) check_stage(plan, stages, kind);
    }
}

void check_shared(const Plan& plan) {
  const int expected = plan.shape.layer.shared_hidden > 0 ? 1 : 0;
  std::map<PassKey, int> found;
  for (const Task& task : plan.tasks())
    if (task.kind == TaskKind::shared) ++found[task.pass()];
  for (const Task& task : plan.tasks())
    if (task.kind == TaskKind::order)
      if (const int passes = found[task.pass()]; passes != expected)
        broken(task, "tokens pass {} shared experts beside it, expected {}", passes, expected);
  if (expected > 0) check_reads_of_shared(plan);
}

// A pass of a dense layer has attention and one feed-forward, whose backward reads the input of its forward, and no
// task of the MoE part. A pass of an MoE layer has no dense feed-forward.
void check_dense(const Plan& plan) {
  if (plan.dense.hidden == 0 && std::ranges::none_of(plan.tasks(), is_ffn, &Task::kind)) return;
  std::map<PassKey, int> found;
  std::map<std::pair<int, int>, Buffer> inputs;  // by micro-batch and layer
  for (const Task& task : plan.tasks()) {
    const bool dense = plan.dense.has(task.layer);
    if (dense && is_moe(task.kind)) broken(task, "belongs to an MoE part, but its layer is dense");
    if (!dense && is_ffn(task.kind)) broken(task, "belongs to a dense feed-forward, but its layer is an MoE layer");
    if (task.kind != TaskKind::ffn) continue;
    ++found[task.pass()];
    const std::pair layer{task.micro_batch, task.layer};
    if (task.phase == Phase::forward && !task.reads.empty()) inputs[layer] = task.reads.front().buffer;
    const auto reads_input = [&](const Access& a) { return a.phase == Phase::forward && a.buffer == inputs[layer]; };
    if (std::ranges::none_of(task.reads, reads_input)) broken(task, "does not read the input of its forward");
  }
  for (const Task& task : plan.tasks())
    if (makes_attention_gradients(task.kind) && plan.dense.has(task.layer))
      if (const int passes = found[task.pass()]; passes != 1)
        broken(task, "tokens pass {} feed-forwards of its dense layer, expected 1", passes);
}

// A part of samples reads the keys and values of earlier parts, and adds to their gradients before these are used.
void check_parts(const Plan& plan, const Ancestors& ancestors) {
  if (plan.parts() == 1) return;
  std::map<PassKey, int> attentions;
  for (const Task& task : plan.tasks())
    if (is_attention(task.kind) && task.kind != TaskKind::attention_dw) attentions[task.pass()] = task.id;
  for (const auto& [pass, id] : attentions) {
    const bool forward = pass.phase == Phase::forward;
    if (plan.part_of(pass.micro_batch) == (forward ? 0 : plan.parts() - 1)) continue;
    PassKey other = pass;
    other.micro_batch += forward ? -1 : 1;
    const auto before = attentions.find(other);
    if (before == attentions.end() || !ancestors.before(before->second, id))
      broken(plan.tasks()[id], "does not wait for the attention of the {} part", forward ? "previous" : "next");
  }
}

// In a ring, the heads of each pass with attention process every block once, and every block except the last is sent
// on; a backward also sends the gradients of every block.
void check_ring(const Plan& plan) {
  const int blocks = plan.shape.parallel.ring_blocks();
  std::map<PassKey, std::array<int, 3>> found;
  constexpr std::array kKinds{TaskKind::heads, TaskKind::cp_send, TaskKind::cp_gradient_send};
  for (const Task& task : plan.tasks()) {
    if (part_of(task.kind) != TaskPart::attention) continue;
    auto& counts = found[task.pass()];
    for (size_t k = 0; k < kKinds.size(); ++k) {
      if (task.kind != kKinds[k]) continue;
      const int expected = task.kind == TaskKind::cp_send ? blocks - 1 : blocks;
      if (task.chunks != expected || task.chunk != counts[k])
        broken(task, "is block {} of {}, expected block {} of {}", task.chunk, task.chunks, counts[k], expected);
      ++counts[k];
    }
  }
  for (const Task& task : plan.tasks()) {
    if (!is_attention(task.kind)) continue;
    const auto& counts = found[task.pass()];
    const int gradients = task.phase == Phase::backward ? blocks : 0;
    if (counts[0] != blocks || counts[1] != std::max(0, blocks - 1) || counts[2] != gradients)
      broken(task, "{} blocks pass its heads, {} blocks and {} gradients of blocks are sent, expected {}, {} and {}",
             counts[0], counts[1], counts[2], blocks, std::max(0, blocks - 1), gradients);
  }
}

// A layer's backward has either one attention task or both halves; a forward has no halves.
void check_attention(const Plan& plan) {
  std::map<PassKey, std::array<int, 3>> found;  // numbers of tasks: whole attention, dx half, dw half
  constexpr std::array kKinds{TaskKind::attention, TaskKind::attention_dx, TaskKind::attention_dw};
  for (const Task& task : plan.tasks())
    for (size_t k = 0; k < kKinds.size(); ++k) found[task.pass()][k] += task.kind == kKinds[k] ? 1 : 0;
  for (const Task& task : plan.tasks()) {
    if (!is_attention(task.kind)) continue;
    const auto& [whole, dx, dw] = found[task.pass()];
    if (dx + dw > 0 && task.phase == Phase::forward) broken(task, "is half of a backward");
    if (whole + dx != 1 || dx != dw)
      broken(task, "tokens pass {} attentions, {} attention_dx and {} attention_dw, expected 1, or 1 of each half",
             whole, dx, dw);
  }
  check_ring(plan);
}

// A backward must read the results of the repeated forward, because other passes have reused the first one's memory.
void check_again(const Plan& plan, const Ancestors& ancestors) {
  std::map<PassKey, std::multiset<std::tuple<TaskKind, int, int>>> tasks;
  std::map<PassKey, std::map<int, int>> last;  // by lane
  for (const Task& task : plan.tasks()) {
    if (!is_of_layer(task.kind) || task.phase == Phase::step) continue;
    tasks[task.pass()].emplace(task.kind, task.chunk, task.chunks);
    last[task.pass()][task.lane] = task.id;
  }
  for (const Task& task : plan.tasks()) {
    if (!is_of_layer(task.kind) || task.phase == Phase::step) continue;
    const PassKey first{Phase::forward, false, task.micro_batch, task.layer};
    PassKey again = first;
    again.is_recompute = true;
    const bool runs_again = tasks.contains(again);
    if (task.phase == Phase::backward)
      for (const Access& a : task.reads)
        if (a.phase == Phase::forward && a.layer == task.layer && runs_again && !a.is_recompute)
          broken(task, "reads {} of the first forward, expected that of the repeated one", name_of(a.buffer));
    if (!task.is_recompute) continue;
    if (task.phase != Phase::forward) broken(task, "is marked as repeated, expected only tasks of a forward");
    if (tasks[again] != tasks[first])
      broken(task, "is repeated, but the repeated forward does not have the same tasks as the first");
    for (const auto& [lane, id] : last[first])
      if (!ancestors.before(id, task.id)) broken(task, "is repeated before the end of {}", plan.tasks()[id].name());
  }
}

// Checks the sums, steps and gathers of a planned step: each exists once and comes after its inputs.

namespace {

using Sent = std::pair<TaskKind, int>;  // kind of the summing task, and layer

bool spans(const Plan& plan, GroupKind group) { return plan.groups[group].network != Network::none; }

// Returns the number of gradient bytes to which several ranks contribute, by kind of sum and layer.
std::map<Sent, int64_t> summed_bytes(const Plan& plan) {
  std::map<Sent, int64_t> bytes;
  const LayerCase& c = plan.shape;
  const LayerCases cases(c, plan.dense, plan.whole);
  const auto add = [&](TaskKind kind, int layer, int64_t count) {
    if (count > 0 && spans(plan, group_of(plan.structure->flow, kind))) bytes[{kind, layer}] = count;
  };
  for (int layer = 0; layer < plan.layers; ++layer) {
    const LayerCase& own = cases.at(layer);
    add(TaskKind::gradient, layer, gradient_bytes(own));
    add(TaskKind::expert_gradient, layer, expert_gradient_bytes(own));
    add(TaskKind::stage_gradient, layer, stage_gradient_bytes(own));
  }
  for (const auto& [layer, weights] :
       {std::pair{kEmbeddingLayer, plan.ends.embedding}, {plan.layers, plan.ends.head}}) {
    add(TaskKind::gradient, layer, end_gradient_bytes(c, weights));
    add(TaskKind::stage_gradient, layer, end_norm_bytes(c, weights));
  }
  return bytes;
}

// Checks that plan.gradients has as many bytes of each sum as the layers have; check_gradients checks that each of
// these bytes is sent once.
void check_sums(const Plan& plan) {
  std::map<Sent, int64_t> found;
  for (const Gradient& g : plan.gradients) found[{g.sent_by(), g.layer}] += g.bytes;
  for (const auto& [of, bytes] : summed_bytes(plan)) {
    const int64_t sent = found[of];
    require<WrongResult>(sent == bytes, "plan: layer {}: {} sums {} gradient bytes, expected {}", of.second,
                         name_of(of.first), sent, bytes);
  }
}

// Checks that every micro-batch passes every layer and end, forward and backward.
void check_passes(const Plan& plan) {
  std::set<PassKey> passes;
  for (const Task& task : plan.tasks())
    if (is_attention(task.kind)) passes.insert(task.pass());
  for (const Phase phase : {Phase::forward, Phase::backward})
    for (int micro_batch = 0; micro_batch < plan.micro_batches; ++micro_batch)
      for (int layer = 0; layer < plan.layers; ++layer)
        require<WrongResult>(passes.contains({phase, false, micro_batch, layer}),
                             "plan: layer {}: found no {} of micro-batch {}", layer, name_of(phase), micro_batch);
  if (plan.vocabulary == 0) return;
  std::map<std::tuple<TaskKind, Phase, int>, int> ends;
  for (const Task& task : plan.tasks())
    if (computes_end(task.kind) && ends[{task.kind, task.phase, task.micro_batch}]++ > 0)
      broken(task, "passes an end a second time");
  require_equal(std::ssize(ends), 4 * int64_t{plan.micro_batches}, "plan: passes of embedding and head");
}

// Returns, for each layer and end, the tasks that sum its gradients.
std::map<int, std::vector<int>> sums_of(const Plan& plan) {
  std::map<int, std::vector<int>> sums;
  std::vector<int> sender(plan.slices.size(), -1);
  for (const Task& task : plan.tasks())
    if (task.slice >= 0) sender[task.slice] = task.id;
  for (size_t s = 0; s < plan.slices.size(); ++s) {
    const GradientSlice& slice = plan.slices[s];
    int64_t begin = slice.begin, left = slice.bytes();
    for (size_t g = static_cast<size_t>(slice.gradient); g < plan.gradients.size() && left > 0; ++g, begin = 0) {
      const int64_t here = std::min(left, plan.gradients[g].bytes - begin);
      if (here > 0) sums[plan.gradients[g].layer].push_back(sender[s]);
      left -= here;
    }
  }
  return sums;
}

const Task* find(const Plan& plan, TaskKind kind, int stage) {
  for (const Task& task : plan.tasks())
    if (task.kind == kind && plan.structure->lanes[task.lane].stage == stage) return &task;
  return nullptr;
}

void check_after(const Plan& plan, const Ancestors& ancestors, const Task& task, const std::vector<int>& before,
                 std::string_view complaint) {
  for (const int id : before)
    if (!ancestors.before(id, task.id)) broken(task, "{} {}", complaint, plan.tasks()[id].name());
}

class StepCheck {
 public:
  StepCheck(const Plan& plan, const Ancestors& ancestors) : plan_(plan), ancestors_(ancestors), sums_(sums_of(plan)) {
    for (const Task& task : plan.tasks()) {
      if (task.phase != Phase::backward) continue;
      if (makes_attention_gradients(task.kind) || computes_end(task.kind)) makers_[task.layer].push_back(task.id);
      if (task.kind == TaskKind::expert || task.kind == TaskKind::expert_dw)
        expert_makers_[task.layer].push_back(task.id);
    }
  }

  void run() {
    check_passes(plan_);
    check_sums(plan_);
    for (const auto& [layer, sums] : sums_)
      for (const int id : sums) check_made_before(plan_.tasks()[id], layer);
    for (const Task& task : plan_.tasks()) {
      if (task.kind == TaskKind::optimizer) check_optimizer(task);
      if (task.kind == TaskKind::squares) check_squares(task);
      if (task.kind == TaskKind::tied_gradient) check_tied(task);
      if (task.kind == TaskKind::norm)
        check_after(plan_, ancestors_, task, tasks_of(TaskKind::squares), "begins before");
      if (gathers_weights(task.kind)) check_gather(task);
    }
    for (int stage = 0; plan_.step.clips && stage < plan_.shape.parallel.pp; ++stage)
      require<WrongResult>(find(plan_, TaskKind::squares, stage) != nullptr,
                           "plan: stage {}: no task adds up the squares of its gradients", stage);
    for (int layer = kEmbeddingLayer; layer <= plan_.layers; ++layer) {
      const bool end = plan_.is_end(layer), is_there = !plan_.ends.none() || sums_.contains(layer);
      require<WrongResult>(stepped_.contains(layer) || (end && !is_there),
                           "plan: layer {}: no optimizer task updates it", layer);
    }
  }

 private:
  int stage_of(const Task& task) const { return plan_.structure->lanes[task.lane].stage; }
  std::vector<int> tasks_of(TaskKind kind) const {
    std::vector<int> all;
    for (const Task& task : plan_.tasks())
      if (task.kind == kind) all.push_back(task.id);
    return all;
  }

  void check_made_before(const Task& sum, int layer) {
    check_after(plan_, ancestors_, sum, (sum.kind == TaskKind::expert_gradient ? expert_makers_ : makers_)[layer],
                "sums gradients before the end of");
  }

  void check_optimizer(const Task& task) {
    if (!stepped_.emplace(task.layer, task.id).second) broken(task, "steps a layer a second time");
    if (const auto sums = sums_.find(task.layer); sums != sums_.end())
      check_after(plan_, ancestors_, task, sums->second, "steps before the end of");
    check_after(plan_, ancestors_, task, makers_[task.layer], "steps before the end of");
    if (const bool end = plan_.is_end(task.layer); end && sums_tied()) {
      const Task* tied = find(plan_, TaskKind::tied_gradient, stage_of(task));
      if (tied == nullptr) broken(task, "steps a tied embedding without the sum over both end stages");
      check_after(plan_, ancestors_, task, {tied->id}, "steps before the end of");
    }
    if (!plan_.step.clips) return;
    const bool apart = spans(plan_, GroupKind::world);
    const Task* norm = find(plan_, apart ? TaskKind::norm : TaskKind::squares, stage_of(task));
    if (norm == nullptr) broken(task, "clips by a norm that no task computes");
    check_after(plan_, ancestors_, task, {norm->id}, "clips before the end of");
  }

  bool sums_tied() const { return plan_.step.tied && !plan_.ends.none() && plan_.shape.parallel.pp > 1; }

  // Checks that the sum of a tied embedding follows all gradients of both ends and their sums.
  void check_tied(const Task& task) {
    for (const int end : {kEmbeddingLayer, plan_.layers}) {
      check_after(plan_, ancestors_, task, sums_[end], "begins before");
      check_after(plan_, ancestors_, task, makers_[end], "begins before");
    }
  }

  void check_squares(const Task& task) {
    for (const Task& sum : plan_.tasks())
      if ((sends_gradients(sum.kind) || sum.kind == TaskKind::tied_gradient) && stage_of(sum) == stage_of(task))
        check_after(plan_, ancestors_, task, {sum.id}, "adds up squares before the end of");
  }

  // Checks a gather of a layer's weights or, for replicated weights of a stage, of all of its layers.
  void check_gather(const Task& task) {
    if (!gathered_.emplace(task.kind, task.layer).second) broken(task, "gathers weights a second time");
    for (const auto& [layer, id] : stepped_) {
      const Task& step = plan_.tasks()[id];
      const bool end = plan_.is_end(task.layer), of_all = task.kind == TaskKind::stage_weights && !end;
      const bool in_stage = layer >= 0 && layer < plan_.layers && stage_of(step) == stage_of(task);
      if (of_all ? in_stage : layer == task.layer) check_after(plan_, ancestors_, task, {id}, "gathers before");
    }
  }

  const Plan& plan_;
  const Ancestors& ancestors_;
  std::map<int, std::vector<int>> sums_;
  std::map<int, std::vector<int>> makers_,
      expert_makers_;           // by layer: last tasks of backwards; those of experts
  std::map<int, int> stepped_;  // for each layer, the optimizer's task
  std::set<std::pair<TaskKind, int>> gathered_;
};

}  // namespace

void check_step(const Plan& plan, const Ancestors& ancestors) {
  if (plan.step.planned) StepCheck(plan, ancestors).run();
}

// Checks offloaded experts: while a task computes experts, the window has their layer's weights; every layer's
// gradients go to the host once, after all contributions; and the host's optimizer updates its experts after that.

namespace {

// Replays the fetches of a stage. A task that computes experts must come after the fetch of its layer, and a later
// fetch to the same place must come after that task.
class WindowCheck {
 public:
  explicit WindowCheck(const Ancestors& ancestors) : ancestors_(ancestors) {}

  void fetch(const Task& task) {
    if (task.chunks != kWindowLayers) broken(task, "fetches to a window of {} layers", task.chunks);
    Place& place = places_[task.chunk];
    if (place.fetch != nullptr && !ancestors_.before(place.fetch->id, task.id))
      broken(task, "overwrites weights before the end of {}, which fetches them", place.fetch->name());
    for (const Task* reader : place.readers)
      if (!ancestors_.before(reader->id, task.id)) broken(task, "overwrites weights that {} reads", reader->name());
    place = {&task, {}};
  }
  void read(const Task& task) {
    for (Place& place : places_)
      if (place.fetch != nullptr && place.fetch->layer == task.layer) {
        if (!ancestors_.before(place.fetch->id, task.id)) broken(task, "begins before {}", place.fetch->name());
        return place.readers.push_back(&task);
      }
    broken(task, "reads weights that the window does not have");
  }

 private:
  struct Place {
    const Task* fetch = nullptr;
    std::vector<const Task*> readers;
  };
  const Ancestors& ancestors_;
  std::array<Place, kWindowLayers> places_;
};

// The tasks that move and step the experts of one layer.
struct OffloadTasks {
  std::vector<int> stored, stepped, makers, sums;
};

void check_offloaded_layer(const Plan& plan, const Ancestors& ancestors, int layer, const OffloadTasks& tasks) {
  const int64_t stores = std::ssize(tasks.stored), expected = plan.dense.has(layer) ? 0 : 1;
  require<WrongResult>(stores == expected, "plan: layer {}: its experts' gradients go to the host {} times", layer,
                       stores);
  const int64_t steps = std::ssize(tasks.stepped), planned = plan.step.planned ? expected : 0;
  require<WrongResult>(steps == planned, "plan: layer {}: the host steps its experts {} times, expected {}", layer,
                       steps, planned);
  if (stores == 0) return;
  const Task& store = plan.tasks()[tasks.stored.front()];
  check_after(plan, ancestors, store, tasks.makers, "stores gradients before the end of");
  for (const int sum : tasks.sums)
    if (plan.tasks()[sum].kind == TaskKind::expert_gradient)
      check_after(plan, ancestors, store, {sum}, "stores gradients before the end of");
  if (steps == 0) return;
  const Task& step = plan.tasks()[tasks.stepped.front()];
  check_after(plan, ancestors, step, {store.id}, "steps experts before the end of");
  if (!plan.step.clips) return;
  const int stage = plan.structure->lanes[step.lane].stage;
  const Task* norm = find(plan, spans(plan, GroupKind::world) ? TaskKind::norm : TaskKind::squares, stage);
  if (norm != nullptr) check_after(plan, ancestors, step, {norm->id}, "clips before the end of");
}

}  // namespace

void check_offload(const Plan& plan, const Ancestors& ancestors) {
  if (plan.shape.parallel.offload == Offload::none) {
    for (const Task& task : plan.tasks())
      if (part_of(task.kind) == TaskPart::offload) broken(task, "moves experts that are not offloaded");
    return;
  }
  std::map<int, WindowCheck> windows;  // by stage
  std::map<int, OffloadTasks> layers;
  for (const Task& task : plan.tasks()) {
    WindowCheck& window = windows.try_emplace(plan.structure->lanes[task.lane].stage, ancestors).first->second;
    if (task.kind == TaskKind::fetch) window.fetch(task);
    if (is_expert(task.kind)) window.read(task);
    if (is_expert(task.kind) && task.phase == Phase::backward) layers[task.layer].makers.push_back(task.id);
    if (task.kind == TaskKind::store) layers[task.layer].stored.push_back(task.id);
    if (task.kind == TaskKind::host_optimizer) layers[task.layer].stepped.push_back(task.id);
  }
  for (auto& [layer, sums] : sums_of(plan)) layers[layer].sums = sums;
  for (int layer = 0; layer < plan.layers; ++layer) check_offloaded_layer(plan, ancestors, layer, layers[layer]);
}

}  // namespace moe
