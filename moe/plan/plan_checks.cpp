#include "moe/plan/plan_checks.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace moe {
namespace {

// Returns tasks in an order that respects `edges`; those on or behind a cycle are missing.
std::vector<int> topological(const Edges& edges) {
  const size_t n = edges.size();
  std::vector<int> waiting(n), order;
  Edges next(n);
  for (size_t i = 0; i < n; ++i) {
    waiting[i] = static_cast<int>(edges[i].size());
    for (const int p : edges[i]) next[static_cast<size_t>(p)].push_back(static_cast<int>(i));
    if (waiting[i] == 0) order.push_back(static_cast<int>(i));
  }
  for (size_t head = 0; head < order.size(); ++head)
    for (const int s : next[static_cast<size_t>(order[head])])
      if (--waiting[static_cast<size_t>(s)] == 0) order.push_back(s);
  return order;
}

void require_all(const Plan& plan, const std::vector<int>& order, std::string_view complaint) {
  std::vector<bool> seen(plan.tasks().size());
  for (const int id : order) seen[static_cast<size_t>(id)] = true;
  for (const Task& task : plan.tasks())
    if (!seen[static_cast<size_t>(task.id)]) broken(task, "{}", complaint);
}

void check_chunk(const Task& task, int chunk, int chunks, std::string_view whose) {
  if (chunks < 1 || chunk < 0 || chunk >= chunks) broken(task, "{} chunk {} of {}", whose, chunk, chunks);
}

// Checks what a task says of itself: its chunk, its accesses' chunks, and the class and work that price it.
void check_description(const Plan& plan, const Task& task) {
  check_chunk(task, task.chunk, task.chunks, "is");
  for (const Access& a : task.reads) check_chunk(task, a.chunk, a.chunks, "reads");
  for (const Access& a : task.writes) check_chunk(task, a.chunk, a.chunks, "writes");
  const auto& classes = plan.structure->classes;
  require_equal(plan.works.size(), classes.size(), "plan: works by class");
  if (task.work_class < 0 || task.work_class >= static_cast<int>(classes.size()))
    broken(task, "is of work class {}, the plan has {}", task.work_class, classes.size());
  const WorkClass& wc = classes[static_cast<size_t>(task.work_class)];
  if (std::tuple(wc.kind, wc.phase, wc.layer, wc.chunk, wc.chunks, wc.slice) !=
      std::tuple(task.kind, task.phase, task.layer, task.chunk, task.chunks, task.slice))
    broken(task, "is of work class {}, which describes other work", task.work_class);
  const GroupKind group = plan.works[static_cast<size_t>(task.work_class)].group;
  if (group != task.group) broken(task, "runs over group {}, its work over {}", name_of(task.group), name_of(group));
}

Edges check_ids(const Plan& plan) {
  const auto& tasks = plan.tasks();
  const int n = static_cast<int>(tasks.size());
  std::vector<int> queued(tasks.size());
  for (const Lane& lane : plan.structure->lanes)
    for (const int id : lane.queue) {
      require<WrongResult>(id >= 0 && id < n, "plan: lane {} queues task {}, which does not exist", name_of(lane.kind),
                           id);
      ++queued[static_cast<size_t>(id)];
    }
  Edges edges(tasks.size());
  for (int i = 0; i < n; ++i) {
    const Task& task = tasks[static_cast<size_t>(i)];
    if (task.id != i) broken(task, "stands at place {}", i);
    if (task.lane < 0 || task.lane >= static_cast<int>(plan.structure->lanes.size()))
      broken(task, "lane {} does not exist", task.lane);
    if (queued[static_cast<size_t>(i)] != 1)
      broken(task, "is queued {} times, expected once", queued[static_cast<size_t>(i)]);
    for (const int p : task.after)
      if (p < 0 || p >= n) broken(task, "waits for task {}, which does not exist", p);
    check_description(plan, task);
    edges[static_cast<size_t>(i)] = task.after;
  }
  return edges;
}

// Says whether each task has a larger id than those that it waits for.
bool is_issued_in_order(const Edges& edges) {
  for (size_t id = 0; id < edges.size(); ++id)
    for (const int before : edges[id])
      if (before >= static_cast<int>(id)) return false;
  return true;
}

// Checks dependencies and lane orders together: what the executor will enforce.
void check_order(const Plan& plan) {
  Edges edges = check_ids(plan);
  for (const Lane& lane : plan.structure->lanes)
    for (size_t i = 1; i < lane.queue.size(); ++i) {
      edges[static_cast<size_t>(lane.queue[i])].push_back(lane.queue[i - 1]);
    }
  if (is_issued_in_order(edges)) return;  // which no cycle is; else the rule that is broken has a name
  require_all(plan, topological(check_ids(plan)), "waits for itself: its dependencies form a cycle");
  require_all(plan, topological(edges), "can never start: the lanes' orders deadlock");
  for (const Task& task : plan.tasks())
    for (const int p : edges[static_cast<size_t>(task.id)])
      if (p >= task.id)
        broken(task, "is issued before {}, which it waits for", plan.tasks()[static_cast<size_t>(p)].name());
}

void check_owners(const Plan& plan) {
  std::map<std::pair<int, Network>, const Lane*> owners;
  for (const Lane& lane : plan.structure->lanes)
    for (const Network network : {Network::inter, Network::intra}) {
      if (!lane.owns(network) || lane.kind == LaneKind::gradient) continue;
      const auto [owner, first] = owners.emplace(std::pair{lane.stage, network}, &lane);
      require<WrongResult>(first, "plan: lanes {} and {} of stage {} both own the {} network{}",
                           name_of(owner->second->kind), name_of(lane.kind), lane.stage, name_of(network),
                           lane.queue.empty() ? "" : ": " + plan.tasks()[static_cast<size_t>(lane.queue[0])].name());
    }
}

void check_lanes(const Plan& plan) {
  check_owners(plan);
  std::vector<const Lane*> queued(plan.tasks().size());
  for (const Lane& lane : plan.structure->lanes)
    for (const int id : lane.queue) queued[static_cast<size_t>(id)] = &lane;
  for (const Task& task : plan.tasks()) {
    const Lane& lane = plan.structure->lanes[static_cast<size_t>(task.lane)];
    if (queued[static_cast<size_t>(task.id)] != &lane)
      broken(task, "is not in the queue of its lane {}", name_of(lane.kind));
    if (task.group == GroupKind::none) {
      const bool copies = task.kind == TaskKind::copy || task.kind == TaskKind::home_copy;
      if (lane.kind != LaneKind::compute && !copies) broken(task, "computes on the {} lane", name_of(lane.kind));
      continue;
    }
    const Group& group = plan.groups[static_cast<size_t>(task.group)];
    if (group.size < 2) broken(task, "is a collective over one rank");
    const bool receives = lane.kind == LaneKind::receive;
    if (receives != (task.kind == TaskKind::recv)) broken(task, "runs on the {} lane", name_of(lane.kind));
    if (receives) continue;
    if (!lane.owns(group.network))
      broken(task, "its {} group uses the {} network, which lane {} does not own", name_of(group.kind),
             name_of(group.network), name_of(lane.kind));
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
    place_[own] = last[lane] < 0 ? 0 : place_[static_cast<size_t>(last[lane])] + 1;
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
  check_accesses(plan, ancestors);
  check_gradients(plan, ancestors);
  check_step(plan, ancestors);
}

}  // namespace moe
