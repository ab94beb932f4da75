// Checks what flows through a plan: gradients, rows, and what tasks read and write.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "moe/plan/pipeline.h"
#include "moe/plan/plan_checks.h"

namespace moe {
namespace {

// Returns where each gradient begins in the one sequence of bytes that they are.
std::vector<int64_t> offsets_of(const Plan& plan) {
  std::vector<int64_t> offsets{0};
  for (const Gradient& gradient : plan.gradients) offsets.push_back(offsets.back() + gradient.bytes);
  return offsets;
}

// Returns the last task of the forward of each lane that has one.
std::vector<int> last_forwards(const Plan& plan) {
  std::vector<int> last(plan.structure->lanes.size(), -1);
  for (const Task& task : plan.tasks())
    if (task.runs_in() == Phase::forward) last[static_cast<size_t>(task.lane)] = task.id;
  std::erase(last, -1);
  return last;
}

// Finds the tasks that make the same gradients together: of every micro-batch, of experts every chunk.
class Makers {
 public:
  explicit Makers(const Plan& plan) {
    const bool experts = std::ranges::any_of(plan.gradients, &Gradient::experts);
    if (plan.micro_batches == 1 && !experts) return;
    std::set<Kind> kinds;
    for (const Gradient& gradient : plan.gradients)
      if (gradient.made_by >= 0) kinds.insert(kind_of(plan.tasks()[static_cast<size_t>(gradient.made_by)]));
    by_task_.resize(plan.tasks().size(), nullptr);
    for (const Task& task : plan.tasks())
      if (kinds.contains(kind_of(task))) by_kind_[kind_of(task)].push_back(task.id);
    for (const auto& [kind, tasks] : by_kind_)
      for (const int task : tasks) by_task_[static_cast<size_t>(task)] = &tasks;
  }
  std::span<const int> together_with(int maker) const {
    const std::vector<int>* all = by_task_.empty() ? nullptr : by_task_[static_cast<size_t>(maker)];
    return all == nullptr ? std::span<const int>() : *all;
  }

 private:
  using Kind = std::tuple<TaskKind, Phase, bool, int>;  // of a layer
  static Kind kind_of(const Task& task) { return {task.kind, task.phase, task.again, task.layer}; }
  std::map<Kind, std::vector<int>> by_kind_;
  std::vector<const std::vector<int>*> by_task_;
};

void check_made(const Plan& plan, const Ancestors& ancestors, const Task& task, int made_by, const Makers& makers) {
  if (!ancestors.before(made_by, task.id))
    broken(task, "sends gradients before {} made them", plan.tasks()[static_cast<size_t>(made_by)].name());
  for (const int other : makers.together_with(made_by))
    if (!ancestors.before(other, task.id))
      broken(task, "sends gradients before {} added to them", plan.tasks()[static_cast<size_t>(other)].name());
}

// A gradient that no task of this plan makes waits when the backward begins, not earlier.
void check_waiting(const Plan& plan, const Ancestors& ancestors, const Task& task, const std::vector<int>& forwards) {
  if (std::ranges::all_of(forwards, [&](int last) { return ancestors.before(last, task.id); })) return;
  for (const Task& maker : plan.tasks())
    if (maker.runs_in() == Phase::forward && !ancestors.before(maker.id, task.id))
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
    if (sender[static_cast<size_t>(task.slice)] >= 0) broken(task, "sends slice {} a second time", task.slice);
    sender[static_cast<size_t>(task.slice)] = task.id;
    const GradientSlice& slice = plan.slices[static_cast<size_t>(task.slice)];
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
      const int64_t offset = offsets[static_cast<size_t>(plan.slices[s].gradient)];
      sent.emplace_back(offset + plan.slices[s].begin, offset + plan.slices[s].end, sender[s]);
    }
  std::sort(sent.begin(), sent.end());
  int64_t reached = 0;
  for (const auto& [begin, end, id] : sent) {
    if (begin != reached || end < begin)
      broken(plan.tasks()[static_cast<size_t>(id)], "sends gradient bytes {} to {}, expected them from {} on", begin,
             end, reached);
    reached = end;
  }
  if (reached == offsets.back()) return;
  size_t g = 0;
  while (g + 1 < plan.gradients.size() && reached >= offsets[g + 1]) ++g;
  const int named = sent.empty() ? plan.gradients[g].made_by : std::get<2>(sent.back());  // nobody sends or made: none
  const std::string task = named < 0 ? "" : plan.tasks()[static_cast<size_t>(named)].name() + ": ";
  throw WrongResult(fmt::format("plan: {}{} of {} gradient bytes of layer {} are sent", task, reached - offsets[g],
                                plan.gradients[g].bytes, plan.gradients[g].layer));
}

// MP ranks that have the rows of their own tokens alone gather an end's input and share out its sum; the others have
// all rows of both.
void check_ends(const Plan& plan) {
  const bool apart = traits_of(plan.structure->flow).holds == Tokens::own;
  for (const Task& task : plan.tasks()) {
    const bool shares_out = task.kind == TaskKind::end_allgather || task.kind == TaskKind::end_reducescatter;
    if (shares_out && !apart) broken(task, "gathers or shares out rows that every MP rank has");
    if (task.kind == TaskKind::end_allreduce && apart) broken(task, "leaves rows that an MP rank does not have");
  }
}

void check_transfers(const Plan& plan) {
  // A stage's messages of a phase go over one link, whichever chunks they are between. `sent` holds the sends by phase
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
    if (next >= sends.size()) broken(task, "receives what nobody sends");
    if (sends[next]->micro_batch != task.micro_batch || receiver(*sends[next]) != task.layer)
      broken(task, "receives micro-batch {}, but {} is sent before it", task.micro_batch, sends[next]->name());
  }
}

void check_accesses(const Plan& plan, const Ancestors& ancestors) {
  std::vector<Write> writes;  // by buffer, then by their rows
  std::set<PassKey> inside;   // what other passes wrote comes from outside, as the input does
  const auto rows_of = [&](const Access& a) { return chunk_rows(plan.rows, a.chunks, a.chunk); };
  PassKey last{.layer = kEmbeddingLayer - 1};
  for (const Task& task : plan.tasks()) {
    if (task.pass() != last) inside.insert(last = task.pass());
    for (const Access& a : task.writes) writes.push_back({{a.buffer, a.pass()}, rows_of(a), task.id});
  }
  std::sort(writes.begin(), writes.end(), [](const Write& a, const Write& b) {
    return std::tie(a.buffer, a.rows.begin, a.task) < std::tie(b.buffer, b.rows.begin, b.task);
  });
  for (size_t i = 1; i < writes.size(); ++i)
    if (writes[i].buffer == writes[i - 1].buffer && writes[i].rows.begin < writes[i - 1].rows.end)
      broken(plan.tasks()[static_cast<size_t>(writes[i].task)], "writes rows of {} that {} wrote",
             name_of(std::get<0>(writes[i].buffer)), plan.tasks()[static_cast<size_t>(writes[i - 1].task)].name());
  for (const Task& task : plan.tasks())
    for (const Access& a : task.reads) {
      if (!inside.contains(a.pass())) continue;
      const bool from_outside = plan.vocabulary == 0 || a.layer > 0;  // a model's embedding makes the first one
      if (a.buffer == Buffer::input && a.phase == Phase::forward && from_outside) continue;
      const auto found = std::ranges::equal_range(writes, BufferKey{a.buffer, a.pass()}, {}, &Write::buffer);
      if (found.empty()) broken(task, "reads rows of {} that nobody writes", name_of(a.buffer));
      const Rows rows = rows_of(a);
      int64_t covered = rows.begin;
      // Writes do not overlap: in order of their beginnings they are in order of their ends too.
      auto w = std::ranges::partition_point(found, [&](const Write& e) { return e.rows.end <= rows.begin; });
      for (; w != found.end() && w->rows.begin < rows.end; ++w) {
        if (!ancestors.before(w->task, task.id))
          broken(task, "reads {} before {} wrote it", name_of(a.buffer),
                 plan.tasks()[static_cast<size_t>(w->task)].name());
        if (w->rows.begin <= covered) covered = std::max(covered, w->rows.end);
      }
      if (covered < rows.end) broken(task, "reads rows of {} that nobody writes", name_of(a.buffer));
    }
}

}  // namespace moe
