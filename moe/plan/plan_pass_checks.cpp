// Checks what a layer's pass has: rows through every stage, the shared expert, attention, a dense layer's feed-forward,
// and a forward that runs again.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "moe/plan/plan_checks.h"

namespace moe {
namespace {

// Says whether a task is a stage that every row passes: an exchange over one rank is none.
bool is_stage(const Plan& plan, TaskKind kind) {
  const GroupKind group = group_of(plan.structure->flow, kind);
  return group == GroupKind::none || plan.groups[static_cast<size_t>(group)].size > 1;
}

using StagesOfLayer = std::array<std::vector<const Task*>, kTaskKinds>;

// A layer's backward has whole experts or both halves, each of all rows: a whole one would overwrite what the first
// half leaves to the second. A forward has no halves.
void check_halves(const Plan& plan, const StagesOfLayer& stages) {
  const auto& weights = stages[static_cast<size_t>(TaskKind::expert_dw)];
  int64_t passed = 0;
  for (const Task* task : weights) passed += plan.rows_of(*task).count();
  for (const Task* task : stages[static_cast<size_t>(TaskKind::expert)]) {
    const bool half = task->kind == TaskKind::expert_dx;
    if (half && task->phase == Phase::forward) broken(*task, "is half of a backward");
    if (half != !weights.empty()) broken(*task, "stands beside {} tasks of kind expert_dw", weights.size());
  }
  if (!weights.empty() && passed != plan.rows)
    broken(*weights.back(), "{} of {} rows pass this layer's {}", passed, plan.rows, name_of(TaskKind::expert_dw));
}

// Checks the shared expert's reads. Its sum, over one MP rank what it writes, is added to the output with i_order, and
// to the gradient of the tokens with the gate's; its backward reads what its forward read.
void check_reads_of_shared(const Plan& plan) {
  std::map<std::pair<int, int>, Buffer> inputs;  // by micro-batch and layer
  const auto reads = [](const Task& task, Buffer buffer, Phase phase) {
    return std::ranges::any_of(task.reads, [&](const Access& a) { return a.buffer == buffer && a.phase == phase; });
  };
  const bool sums = plan.groups[static_cast<size_t>(GroupKind::mp)].size > 1;
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
  // Holds the tasks of every stage of each layer, whatever their order.
  std::map<PassKey, StagesOfLayer> layers;
  for (const Task& task : plan.tasks()) {
    if (task.kind != TaskKind::order && task.kind != TaskKind::i_order && !is_chunked(task.kind)) continue;
    TaskKind stage = task.kind == TaskKind::exchange ? TaskKind::combine : task.kind;
    if (is_expert_stage(stage)) stage = TaskKind::expert;
    layers[task.pass()][static_cast<size_t>(stage)].push_back(&task);
  }
  for (auto& [layer, stages] : layers)
    for (std::vector<const Task*>& stage : stages) {
      if (stage.empty() || !is_chunked(stage.front()->kind)) continue;
      std::ranges::stable_sort(stage, {}, [&](const Task* task) { return plan.rows_of(*task).begin; });
      int64_t passed = 0;
      for (const Task* task : stage) {
        const Rows rows = plan.rows_of(*task);
        if (rows.begin != passed) broken(*task, "handles rows from {}, expected from {}", rows.begin, passed);
        passed = rows.end;
      }
    }
  for (const auto& [layer, stages] : layers)
    for (const TaskKind kind : stages_of(plan.structure->flow, layer.phase)) {
      if (kind == TaskKind::expert) check_halves(plan, stages);
      if (!is_stage(plan, kind)) continue;
      const std::vector<const Task*>& stage = stages[static_cast<size_t>(kind)];
      const int64_t passed = stage.empty() ? 0 : plan.rows_of(*stage.back()).end;
      if (passed == plan.rows) continue;
      const Task* named = stage.empty() ? nullptr : stage.back();
      for (const auto& other : stages) named = named != nullptr || other.empty() ? named : other.back();
      broken(*named, "{} of {} rows pass this layer's {}", passed, plan.rows, name_of(kind));
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

// A layer's pass has an attention. A dense one has one feed-forward, which its backward runs on what its forward read,
// and nothing of the MoE part; one with experts has no feed-forward.
void check_dense(const Plan& plan) {
  if (plan.dense.hidden == 0 && std::ranges::none_of(plan.tasks(), is_ffn, &Task::kind)) return;
  std::map<PassKey, int> found;
  std::map<std::pair<int, int>, Buffer> inputs;  // by micro-batch and layer
  for (const Task& task : plan.tasks()) {
    const bool dense = plan.dense.has(task.layer);
    const bool of_experts = is_chunked(task.kind) || is_shared(task.kind) || task.kind == TaskKind::gate ||
                            task.kind == TaskKind::order || task.kind == TaskKind::i_order;
    if (dense && of_experts) broken(task, "belongs to an MoE part, which its layer has not");
    if (!dense && is_ffn(task.kind)) broken(task, "belongs to a dense feed-forward, which its layer has not");
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

// A layer's backward has one attention or both its halves; a forward has no halves.
void check_attention(const Plan& plan) {
  std::map<PassKey, std::array<int, 3>> found;  // whole, and of each half
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
}

// What a backward reads of a forward that runs again is there once alone: the first one's memory served others since.
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
    again.again = true;
    const bool runs_again = tasks.contains(again);
    if (task.phase == Phase::backward)
      for (const Access& a : task.reads)
        if (a.phase == Phase::forward && a.layer == task.layer && runs_again && !a.again)
          broken(task, "reads {} of a forward that runs again, expected what it made last", name_of(a.buffer));
    if (!task.again) continue;
    if (task.phase != Phase::forward) broken(task, "runs again, which a forward alone does");
    if (tasks[again] != tasks[first]) broken(task, "runs again, but not all that its forward ran, and no more");
    for (const auto& [lane, id] : last[first])
      if (!ancestors.before(id, task.id))
        broken(task, "runs again before the end of {}", plan.tasks()[static_cast<size_t>(id)].name());
  }
}

}  // namespace moe
