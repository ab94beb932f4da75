#include <algorithm>
#include <map>
#include <tuple>

#include "moe/base/check.h"
#include "moe/plan/plan.h"

namespace moe {
namespace {

using Edges = std::vector<std::vector<int>>;  // predecessors by task

template <class... Args>
[[noreturn]] void broken(const Task& task, fmt::format_string<Args...> text, Args&&... args) {
  throw WrongResult(fmt::format("plan: {}: {}", task.name(), fmt::format(text, std::forward<Args>(args)...)));
}

// Tasks in an order that respects `edges`; those on or behind a cycle are missing.
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
    edges[static_cast<size_t>(i)] = task.after;
  }
  return edges;
}

// Dependencies and lane orders together: what the executor will enforce.
Edges check_order(const Plan& plan) {
  Edges edges = check_ids(plan);
  require_all(plan, topological(edges), "waits for itself: its dependencies form a cycle");
  for (const Lane& lane : plan.structure->lanes)
    for (size_t i = 1; i < lane.queue.size(); ++i) {
      edges[static_cast<size_t>(lane.queue[i])].push_back(lane.queue[i - 1]);
    }
  require_all(plan, topological(edges), "can never start: the lanes' orders deadlock");
  for (const Task& task : plan.tasks())
    for (const int p : edges[static_cast<size_t>(task.id)])
      if (p >= task.id) broken(task, "is issued before {}, which it waits for", plan.tasks()[static_cast<size_t>(p)].name());
  return edges;
}

void check_lanes(const Plan& plan) {
  std::map<std::pair<int, Network>, const Lane*> owner;
  for (const Lane& lane : plan.structure->lanes)
    for (const Network network : {Network::inter, Network::intra})
      if (lane.owns(network) && !owner.emplace(std::pair{lane.stage, network}, &lane).second)
        throw WrongResult(fmt::format("plan: two lanes of stage {} own the {} network", lane.stage, name_of(network)));
  for (const Task& task : plan.tasks()) {
    const Lane& lane = plan.structure->lanes[static_cast<size_t>(task.lane)];
    if (std::find(lane.queue.begin(), lane.queue.end(), task.id) == lane.queue.end())
      broken(task, "is not in the queue of its lane {}", name_of(lane.kind));
    if (task.group == GroupKind::none) {
      if (lane.kind != LaneKind::compute) broken(task, "computes on the {} lane", name_of(lane.kind));
      continue;
    }
    const Group& group = plan.groups[static_cast<size_t>(task.group)];
    if (group.size < 2) broken(task, "is a collective over one rank");
    if (!lane.owns(group.network))
      broken(task, "its {} group uses the {} network, which lane {} does not own", name_of(group.kind),
             name_of(group.network), name_of(lane.kind));
  }
}

// Transitive closure as bit rows: row i holds every task ordered before i.
class Ancestors {
 public:
  explicit Ancestors(const Edges& edges) : words_((edges.size() + 63) / 64), bits_(edges.size() * words_) {
    for (size_t i = 0; i < edges.size(); ++i)  // predecessors have smaller ids: checked before
      for (const int p : edges[i]) {
        const size_t from = static_cast<size_t>(p);
        for (size_t w = 0; w < words_; ++w) bits_[i * words_ + w] |= bits_[from * words_ + w];
        bits_[i * words_ + from / 64] |= uint64_t{1} << (from % 64);
      }
  }
  bool before(int first, int second) const {
    const size_t f = static_cast<size_t>(first);
    return bits_[static_cast<size_t>(second) * words_ + f / 64] >> (f % 64) & 1;
  }

 private:
  size_t words_;
  std::vector<uint64_t> bits_;
};

void check_gradients(const Plan& plan, const Ancestors& ancestors) {
  std::vector<int> sender(plan.slices.size(), -1);
  for (const Task& task : plan.tasks()) {
    if (task.kind != TaskKind::gradient) continue;
    if (task.slice < 0 || task.slice >= static_cast<int>(plan.slices.size()))
      broken(task, "sends slice {}, the plan has {}", task.slice, plan.slices.size());
    if (sender[static_cast<size_t>(task.slice)] >= 0) broken(task, "sends slice {} a second time", task.slice);
    sender[static_cast<size_t>(task.slice)] = task.id;
    const int made_by = plan.gradients.at(static_cast<size_t>(plan.slices[static_cast<size_t>(task.slice)].gradient))
                            .made_by;
    if (made_by >= 0 && !ancestors.before(made_by, task.id))
      broken(task, "sends gradients before {} made them", plan.tasks()[static_cast<size_t>(made_by)].name());
  }
  for (size_t g = 0; g < plan.gradients.size(); ++g) {
    std::vector<std::tuple<int64_t, int64_t, int>> sent;
    for (size_t s = 0; s < plan.slices.size(); ++s)
      if (plan.slices[s].gradient == static_cast<int>(g) && sender[s] >= 0)
        sent.emplace_back(plan.slices[s].begin, plan.slices[s].end, sender[s]);
    std::sort(sent.begin(), sent.end());
    int64_t reached = 0;
    for (const auto& [begin, end, id] : sent) {
      if (begin != reached || end < begin)
        broken(plan.tasks()[static_cast<size_t>(id)], "sends gradient bytes {} to {}, expected them from {} on", begin,
               end, reached);
      reached = end;
    }
    require<WrongResult>(reached == plan.gradients[g].bytes, "plan: gradient {} of layer {}: {} of {} bytes are sent", g,
                         plan.gradients[g].layer, reached, plan.gradients[g].bytes);
  }
}

void check_rows(const Plan& plan) {
  std::map<std::tuple<Phase, int, int, TaskKind>, int64_t> reached;
  for (const Task& task : plan.tasks()) {
    if (task.kind < TaskKind::dispatch || task.kind > TaskKind::combine) continue;
    if (task.chunk < 0 || task.chunk >= task.chunks) broken(task, "chunk {} of {}", task.chunk, task.chunks);
    const Rows rows = plan.rows_of(task);
    int64_t& next = reached[{task.phase, task.micro_batch, task.layer, task.kind}];
    if (rows.begin != next) broken(task, "handles rows from {}, expected from {}", rows.begin, next);
    next = rows.end;
  }
  for (const Task& task : plan.tasks()) {
    const auto it = reached.find({task.phase, task.micro_batch, task.layer, task.kind});
    if (it != reached.end() && it->second != plan.rows)
      broken(task, "this stage handles {} of {} rows", it->second, plan.rows);
    if (task.kind == TaskKind::order && !reached.contains({task.phase, task.micro_batch, task.layer, TaskKind::expert}))
      broken(task, "no expert handles its rows");
  }
}

struct Write {
  Rows rows;
  int task;
};
using BufferKey = std::tuple<Buffer, Phase, int>;

void check_accesses(const Plan& plan, const Ancestors& ancestors) {
  std::map<BufferKey, std::vector<Write>> writers;
  const auto rows_of = [&](const Access& a) { return chunk_rows(plan.rows, a.chunks, a.chunk); };
  for (const Task& task : plan.tasks())
    for (const Access& a : task.writes) writers[{a.buffer, a.phase, a.layer}].push_back({rows_of(a), task.id});
  for (auto& [key, writes] : writers)
    std::sort(writes.begin(), writes.end(), [](const Write& a, const Write& b) { return a.rows.begin < b.rows.begin; });
  for (const auto& [key, writes] : writers)
    for (size_t i = 1; i < writes.size(); ++i)
      if (writes[i].rows.begin < writes[i - 1].rows.end)
        broken(plan.tasks()[static_cast<size_t>(writes[i].task)], "writes rows of {} that {} wrote",
               name_of(std::get<0>(key)), plan.tasks()[static_cast<size_t>(writes[i - 1].task)].name());
  for (const Task& task : plan.tasks())
    for (const Access& a : task.reads) {
      const auto it = writers.find({a.buffer, a.phase, a.layer});
      if (it == writers.end()) continue;  // nobody writes it: it comes from outside
      const Rows rows = rows_of(a);
      int64_t covered = rows.begin;
      for (const Write& w : it->second) {
        if (w.rows.end <= rows.begin || w.rows.begin >= rows.end) continue;
        if (!ancestors.before(w.task, task.id))
          broken(task, "reads {} before {} wrote it", name_of(a.buffer),
                 plan.tasks()[static_cast<size_t>(w.task)].name());
        if (w.rows.begin <= covered) covered = std::max(covered, w.rows.end);
      }
      if (covered < rows.end) broken(task, "reads rows of {} that nobody writes", name_of(a.buffer));
    }
}

}  // namespace

void check_plan(const Plan& plan) {
  const Edges edges = check_order(plan);
  check_lanes(plan);
  const Ancestors ancestors(edges);
  check_gradients(plan, ancestors);
  check_rows(plan);
  check_accesses(plan, ancestors);
}

}  // namespace moe
