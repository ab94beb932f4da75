// What flows through a plan: gradients, rows, and what tasks read and write.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "moe/plan/plan_checks.h"

namespace moe {
namespace {

// A gradient that no task of this plan makes waits when the backward begins, not earlier.
void check_made(const Plan& plan, const Ancestors& ancestors, const Task& task, int gradient) {
  const int made_by = plan.gradients[static_cast<size_t>(gradient)].made_by;
  for (const Task& maker : plan.tasks())
    if ((made_by < 0 ? maker.phase == Phase::forward : maker.id == made_by) && !ancestors.before(maker.id, task.id))
      broken(task, "sends gradients before {} {}", maker.name(), made_by < 0 ? "ended the forward" : "made them");
}

std::vector<int> check_senders(const Plan& plan, const Ancestors& ancestors) {
  const int slices = static_cast<int>(plan.slices.size()), gradients = static_cast<int>(plan.gradients.size());
  std::vector<int> sender(plan.slices.size(), -1);
  for (const Task& task : plan.tasks()) {
    if (task.kind != TaskKind::gradient) continue;
    if (task.slice < 0 || task.slice >= slices) broken(task, "sends slice {}, the plan has {}", task.slice, slices);
    if (sender[static_cast<size_t>(task.slice)] >= 0) broken(task, "sends slice {} a second time", task.slice);
    sender[static_cast<size_t>(task.slice)] = task.id;
    const int gradient = plan.slices[static_cast<size_t>(task.slice)].gradient;
    if (gradient < 0 || gradient >= gradients) broken(task, "sends gradient {}, the plan has {}", gradient, gradients);
    check_made(plan, ancestors, task, gradient);
  }
  return sender;
}

// The stages that every row passes: an exchange over one rank is none.
bool is_stage(const Plan& plan, TaskKind kind) {
  const auto several = [&](GroupKind group) { return plan.groups[static_cast<size_t>(group)].size > 1; };
  if (kind == TaskKind::dispatch || kind == TaskKind::combine) return several(GroupKind::ep);
  if (kind == TaskKind::allgather || kind == TaskKind::reducescatter) return several(GroupKind::esp);
  return kind == TaskKind::expert;
}

struct Write {
  Rows rows;
  int task;
};
using BufferKey = std::tuple<Buffer, Phase, int>;

}  // namespace

void check_gradients(const Plan& plan, const Ancestors& ancestors) {
  for (const Gradient& gradient : plan.gradients)
    require<WrongResult>(gradient.made_by < static_cast<int>(plan.tasks().size()),
                         "plan: gradients of layer {} are made by task {}, which does not exist", gradient.layer,
                         gradient.made_by);
  const std::vector<int> sender = check_senders(plan, ancestors);
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
    const Gradient& gradient = plan.gradients[g];
    if (reached == gradient.bytes) continue;
    const int named = sent.empty() ? gradient.made_by : std::get<2>(sent.back());  // nobody sends, nobody made: none
    const std::string task = named < 0 ? "" : plan.tasks()[static_cast<size_t>(named)].name() + ": ";
    throw WrongResult(fmt::format("plan: {}{} of {} gradient bytes of layer {} are sent", task, reached, gradient.bytes,
                                  gradient.layer));
  }
}

void check_rows(const Plan& plan) {
  struct Passed {
    int64_t rows = 0;
    const Task* last = nullptr;
  };
  std::map<std::tuple<Phase, int, int>, std::array<Passed, kTaskKinds>> layers;
  for (const Task& task : plan.tasks()) {
    if (task.kind < TaskKind::order || task.kind > TaskKind::i_order) continue;
    auto& stages = layers[{task.phase, task.micro_batch, task.layer}];
    Passed& passed = stages[static_cast<size_t>(task.kind)];
    passed.last = &task;
    if (task.kind == TaskKind::order || task.kind == TaskKind::i_order) continue;
    const Rows rows = plan.rows_of(task);
    if (rows.begin != passed.rows) broken(task, "handles rows from {}, expected from {}", rows.begin, passed.rows);
    passed.rows = rows.end;
  }
  for (const auto& [layer, stages] : layers)
    for (int k = 0; k < kTaskKinds; ++k) {
      const Passed& passed = stages[static_cast<size_t>(k)];
      if (!is_stage(plan, static_cast<TaskKind>(k)) || passed.rows == plan.rows) continue;
      const Task* named = passed.last;
      for (const Passed& other : stages) named = named != nullptr ? named : other.last;
      broken(*named, "{} of {} rows pass this layer's {}", passed.rows, plan.rows, name_of(static_cast<TaskKind>(k)));
    }
}

void check_accesses(const Plan& plan, const Ancestors& ancestors) {
  std::map<BufferKey, std::vector<Write>> writers;
  std::set<std::pair<Phase, int>> inside;  // what other phases and layers wrote comes from outside, as the input does
  const auto rows_of = [&](const Access& a) { return chunk_rows(plan.rows, a.chunks, a.chunk); };
  for (const Task& task : plan.tasks()) inside.emplace(task.phase, task.layer);
  for (const Task& task : plan.tasks())
    for (const Access& a : task.writes) writers[{a.buffer, a.phase, a.layer}].push_back({rows_of(a), task.id});
  for (auto& [key, writes] : writers)
    std::sort(writes.begin(), writes.end(), [](const Write& a, const Write& b) {
      return std::pair(a.rows.begin, a.task) < std::pair(b.rows.begin, b.task);
    });
  for (const auto& [key, writes] : writers)
    for (size_t i = 1; i < writes.size(); ++i)
      if (writes[i].rows.begin < writes[i - 1].rows.end)
        broken(plan.tasks()[static_cast<size_t>(writes[i].task)], "writes rows of {} that {} wrote",
               name_of(std::get<0>(key)), plan.tasks()[static_cast<size_t>(writes[i - 1].task)].name());
  for (const Task& task : plan.tasks())
    for (const Access& a : task.reads) {
      if (!inside.contains({a.phase, a.layer})) continue;
      if (a.buffer == Buffer::input && a.phase == Phase::forward) continue;
      const auto it = writers.find({a.buffer, a.phase, a.layer});
      if (it == writers.end()) broken(task, "reads rows of {} that nobody writes", name_of(a.buffer));
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

}  // namespace moe
