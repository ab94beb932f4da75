// Checks what a planned step adds up, steps and gathers: all that there is, once, and after what it needs.
#include <algorithm>
#include <map>
#include <set>

#include "moe/plan/plan_checks.h"

namespace moe {
namespace {

using Sent = std::pair<TaskKind, int>;  // by kind of sum and layer

bool spans(const Plan& plan, GroupKind group) {
  return plan.groups[static_cast<size_t>(group)].network != Network::none;
}

// Counts gradient bytes that several ranks make parts of.
std::map<Sent, int64_t> summed_bytes(const Plan& plan) {
  std::map<Sent, int64_t> bytes;
  const LayerCase& c = plan.shape;
  const LayerCases cases(c, plan.dense);
  const auto add = [&](TaskKind kind, int layer, int64_t count) {
    if (count > 0 && spans(plan, group_of(plan.structure->flow, kind))) bytes[{kind, layer}] = count;
  };
  for (int layer = 0; layer < plan.layers; ++layer) {
    const LayerCase& own = cases.of(layer);
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

// Checks the sums; that each byte of plan.gradients is sent once is check_gradients' business.
void check_sums(const Plan& plan) {
  std::map<Sent, int64_t> found;
  for (const Gradient& g : plan.gradients) found[{g.sent_by(), g.layer}] += g.bytes;
  for (const auto& [of, bytes] : summed_bytes(plan)) {
    const int64_t sent = found[of];
    require<WrongResult>(sent == bytes, "plan: layer {}: {} sums {} gradient bytes, expected {}", of.second,
                         name_of(of.first), sent, bytes);
  }
}

// Returns the sums of a layer's or an end's gradients, by layer.
std::map<int, std::vector<int>> sums_of(const Plan& plan) {
  std::map<int, std::vector<int>> sums;
  std::vector<int> sender(plan.slices.size(), -1);
  for (const Task& task : plan.tasks())
    if (task.slice >= 0) sender[static_cast<size_t>(task.slice)] = task.id;
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
    if (task.kind == kind && plan.structure->lanes[static_cast<size_t>(task.lane)].stage == stage) return &task;
  return nullptr;
}

void check_after(const Plan& plan, const Ancestors& ancestors, const Task& task, const std::vector<int>& before,
                 std::string_view complaint) {
  for (const int id : before)
    if (!ancestors.before(id, task.id)) broken(task, "{} {}", complaint, plan.tasks()[static_cast<size_t>(id)].name());
}

class StepCheck {
 public:
  StepCheck(const Plan& plan, const Ancestors& ancestors) : plan_(plan), ancestors_(ancestors), sums_(sums_of(plan)) {
    for (const Task& task : plan.tasks())
      if (task.phase == Phase::backward && (makes_attention_gradients(task.kind) || computes_end(task.kind)))
        makers_[task.layer].push_back(task.id);
  }

  void run() {
    check_sums(plan_);
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
                           "plan: stage {}: nothing adds up the squares of its gradients", stage);
    for (int layer = kEmbeddingLayer; layer <= plan_.layers; ++layer) {
      const bool end = plan_.is_end(layer), is_there = !plan_.ends.none() || sums_.contains(layer);
      require<WrongResult>(stepped_.contains(layer) || (end && !is_there),
                           "plan: layer {}: no optimizer's task steps it", layer);
    }
  }

 private:
  int stage_of(const Task& task) const { return plan_.structure->lanes[static_cast<size_t>(task.lane)].stage; }
  std::vector<int> tasks_of(TaskKind kind) const {
    std::vector<int> all;
    for (const Task& task : plan_.tasks())
      if (task.kind == kind) all.push_back(task.id);
    return all;
  }

  void check_optimizer(const Task& task) {
    if (!stepped_.emplace(task.layer, task.id).second) broken(task, "steps a layer a second time");
    if (const auto sums = sums_.find(task.layer); sums != sums_.end())
      check_after(plan_, ancestors_, task, sums->second, "steps before the end of");
    check_after(plan_, ancestors_, task, makers_[task.layer], "steps before the end of");
    if (const bool end = plan_.is_end(task.layer); end && sums_tied()) {
      const Task* tied = find(plan_, TaskKind::tied_gradient, stage_of(task));
      if (tied == nullptr) broken(task, "steps a tied embedding that the other end's stage does not know");
      check_after(plan_, ancestors_, task, {tied->id}, "steps before the end of");
    }
    if (!plan_.step.clips) return;
    const bool apart = spans(plan_, GroupKind::world);
    const Task* norm = find(plan_, apart ? TaskKind::norm : TaskKind::squares, stage_of(task));
    if (norm == nullptr) broken(task, "clips by a norm that nobody computes");
    check_after(plan_, ancestors_, task, {norm->id}, "clips before the end of");
  }

  bool sums_tied() const { return plan_.step.tied && !plan_.ends.none() && plan_.shape.parallel.pp > 1; }

  // Checks the sum of what both ends have: it comes once each has all of its own.
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

  // Checks a gather of a layer's weights or, of what a stage holds alike, those of all of its layers.
  void check_gather(const Task& task) {
    if (!gathered_.emplace(task.kind, task.layer).second) broken(task, "gathers weights a second time");
    for (const auto& [layer, id] : stepped_) {
      const Task& step = plan_.tasks()[static_cast<size_t>(id)];
      const bool end = plan_.is_end(task.layer), of_all = task.kind == TaskKind::stage_weights && !end;
      const bool in_stage = layer >= 0 && layer < plan_.layers && stage_of(step) == stage_of(task);
      if (of_all ? in_stage : layer == task.layer) check_after(plan_, ancestors_, task, {id}, "gathers before");
    }
  }

  const Plan& plan_;
  const Ancestors& ancestors_;
  std::map<int, std::vector<int>> sums_;
  std::map<int, std::vector<int>> makers_;  // by layer: what its backwards do last
  std::map<int, int> stepped_;              // by layer: the optimizer's task
  std::set<std::pair<TaskKind, int>> gathered_;
};

}  // namespace

void check_step(const Plan& plan, const Ancestors& ancestors) {
  if (plan.step.planned) StepCheck(plan, ancestors).run();
}

}  // namespace moe
