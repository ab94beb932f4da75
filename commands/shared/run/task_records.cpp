#include "commands/shared/run/task_records.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "commands/shared/pick_layers.h"
#include "commands/shared/run/layer_run.h"
#include "moe/base/log.h"
#include "moe/measure/layers/rank_run.h"
#include "moe/prices/fit.h"
#include "moe/record/pass_times.h"

namespace moe::commands {
namespace {

constexpr double kMeasuredS = 0.3, kMaxMeasuredS = 2;
constexpr double kProvenFlops = 1e9;  // FLOPs; the results of a larger layer are verified on a smaller one

/// Tasks with equal work, which share a record of this key.
struct TaskGroup {
  std::string key;
  const Plan* plan = nullptr;
  std::vector<const Task*> tasks;
};

// Returns a schedule of each flow, preferably one that has chunks, and all schedules that halve backwards.
std::vector<const Schedule*> one_of_each_flow(const std::vector<const Schedule*>& schedules) {
  std::map<Flow, const Schedule*> chosen;
  const auto consider = [&](const Schedule* s) {
    const Schedule*& of_flow = chosen[s->flow];
    if (of_flow == nullptr || (of_flow->degrees == DegreePolicy::one && s->degrees != DegreePolicy::one)) of_flow = s;
    if (s->flow == Flow::sharded)
      of_flow = &find_schedule("fsmoe");  // its plans have all tasks of this flow, except halved backwards
  };
  for (const Schedule* schedule : schedules) {
    if (schedule->variants.empty()) consider(schedule);
    for (const Schedule* variant : schedule->variants) consider(variant);
  }
  std::vector<const Schedule*> all;
  for (const auto& [flow, schedule] : chosen) all.push_back(schedule);
  for (const Schedule* schedule : schedules)
    if (schedule->halves_backward) all.push_back(schedule);
  return all;
}

// Each layer sends a share of the waiting gradients, first those of the output projection, so that sums of several
// sizes are measured.
Plan model_plan_of(const ModelShape& model, const Schedule& schedule, int degree) {
  ModelDecision decision;
  decision.degree_forward = decision.degree_backward = degree;
  decision.backwards.resize(decided_layers(model));
  const LayerCases cases(model.shape, model.dense, model.whole);
  const int64_t element = bytes_of(model.shape.layer.dtype);
  const bool sums = groups_of(model.shape.parallel)[GroupKind::dp].size > 1;
  int64_t waiting = model.head_gradient_bytes;
  for (size_t i = 0; i < decision.backwards.size(); ++i) {
    BackwardDecision& layer = decision.backwards[i];
    const bool dense = decides_dense(model, i);
    if (!dense) layer.degree = degree;
    if (!dense && sums && schedule.gradients == GradientPolicy::adaptive)
      waiting -= layer.gar_in_moe_bytes = waiting / degree / element * element;
    waiting += gradient_bytes(dense ? cases.dense() : cases.moe());
  }
  return build_model_plan(schedule, model, decision);
}

// If the schedule splits gradients, a degree also divides these, so that their sums are measured at several sizes.
Plan plan_of(const LayerJob& job, const Schedule& schedule, int degree) {
  if (!job.is_one_layer()) return model_plan_of(job.model, schedule, degree);
  if (!splits_gradients(schedule)) return plan_nominally(job, schedule, degree).run.plan;
  const int64_t bytes = gradient_bytes(job.shape()), element = bytes_of(job.shape().layer.dtype);
  return build_plan(schedule, job.shape(), with_split(schedule, degree, degree, bytes / degree / element * element));
}

std::vector<measure::PlannedRun> serial_runs(const LayerJob& job) {
  std::vector<measure::PlannedRun> runs;
  for (const Schedule* schedule : one_of_each_flow(job.schedules))
    for (const int degree : kProfiledDegrees) {
      if (degree > 1 && (schedule->degrees == DegreePolicy::one || degree > padded_rows(job.shape()))) continue;
      try {
        measure::PlannedRun& run = runs.emplace_back();
        const Plan plan = plan_of(job, *schedule, degree);
        require_runnable_plan(job, plan);
        run.plan = measure::serial_plan(plan);
      } catch (const Unsupported&) {
        runs.pop_back();
      }
    }
  return runs;
}

// Three kinds of tasks are not measured: phases of SAA's exchange, which are priced as shares of an AlltoAll; gathers
// of weights, which are several collectives and copies; and copies over the host's link, which are timed alone.
bool is_measured(const Task& task, const Work& work) {
  if (task.kind == TaskKind::exchange || gathers_weights(task.kind) || transfers_offloaded_weights(task.kind))
    return false;
  if (task.phase == Phase::step && task.group == GroupKind::none) return work.bytes > 0;
  if (task.group == GroupKind::none) return has_terms(task.kind);
  return facts_of(work.op).table == OpTable::comm && work.bytes > 0;
}

// Returns the name of a layer, or of a model's end.
std::string part_name(const Plan& plan, int layer) {
  return layer < 0 ? "embedding" : layer == plan.layers ? "head" : fmt::format("layer-{}", layer);
}

std::vector<TaskGroup> groups_of_tasks(const std::string& layer, const Plan& plan) {
  std::map<std::tuple<TaskKind, Phase, int, int, bool>, TaskGroup> groups;
  for (const Task& task : plan.tasks()) {
    if (!is_measured(task, plan.works[task.id])) continue;
    const bool apart = task.kind == TaskKind::optimizer;  // layers and ends differ in their weights
    const bool whole = is_attention(task.kind) &&
                       plan.whole.has(task.layer);  // attention without a window, while other layers have one
    TaskGroup& group = groups[{task.kind, task.phase, task.slice, apart ? task.layer : 0, whole}];
    group.plan = &plan;
    group.tasks.push_back(&task);
    group.key = fmt::format("task/{}/{}/r{}/{}/{}{}", layer, plan.schedule, plan.degree_forward, name_of(task.phase),
                            name_of(task.kind),
                            task.slice >= 0 ? fmt::format("/{}", task.slice)
                            : apart         ? "/" + part_name(plan, task.layer)
                            : whole         ? "/whole"
                                            : "");
  }
  std::vector<TaskGroup> all;
  for (auto& [what, group] : groups) all.push_back(std::move(group));
  return all;
}

void describe_computation(const TaskGroup& group, Fields& parameters) {
  const Task& task = *group.tasks.front();
  const Plan& plan = *group.plan;
  const LayerCases cases(plan.shape, plan.dense, plan.whole);
  const LayerCase& shape = cases.at(task.layer);
  parameters.set("name", task_row_name(task.kind, shape));
  parameters.set("phase", std::string(name_of(task.phase)));
  parameters.set("dtype", std::string(name_of(shape.layer.dtype)));
  const Work& work = plan.works[task.id];
  const auto values = [&]() -> TermValues {
    if (task.phase == Phase::step) return memory_pass_terms(task.kind, work.bytes);
    if (computes_end(task.kind)) return end_terms(task.kind, shape, work);
    return terms_of(task.kind, task.phase, shape, plan.structure->flow).share_terms(1.0 / task.chunks);
  }();
  for (size_t t = 0; t < kTerms; ++t)
    if (values[t] > 0) parameters.set(term_names()[t], values[t]);
}

bool is_computation(const TaskGroup& group) { return group.tasks.front()->group == GroupKind::none; }

// Returns the row, without prices, to which the tasks' times are fitted.
CommRow row_of(const TaskGroup& group) {
  const Plan& plan = *group.plan;
  const Work& work = plan.works[group.tasks.front()->id];
  const Group& ranks = plan.groups[work.group];
  const bool fused = work.op == Op::alltoall && work.group == GroupKind::ep_esp;
  const int members = work.op == Op::sendrecv ? 2 : ranks.size;  // a stage or a rank of a ring sends to one other
  CommRow row{.op = fused ? Op::a2a_ep_esp : work.op, .network = ranks.network, .ranks = members};
  const std::string& dispatcher = plan.shape.layer.dispatcher;
  if (work.op == Op::alltoall && dispatcher != "alltoall") row.algorithm = dispatcher;
  return row;
}

void describe_collective(const TaskGroup& group, Fields& parameters) {
  const Plan& plan = *group.plan;
  const Work& work = plan.works[group.tasks.front()->id];
  const CommRow row = row_of(group);
  parameters.set("network", std::string(name_of(row.network)));
  parameters.set("ranks", int64_t{row.ranks});
  parameters.set("dtype", std::string(name_of(plan.shape.layer.dtype)));
  double bytes = 0;  // the mean, as median_s is the mean of the times, because chunks may have unequal rows
  for (const Task* task : group.tasks) bytes += plan.works[task->id].bytes;
  bytes /= static_cast<double>(group.tasks.size());
  parameters.set("bytes", bytes);
  parameters.set("wire_bytes", bytes * wire_share(work.op, row.ranks));
  if (row.algorithm != CommRow{}.algorithm) parameters.set("algorithm", row.algorithm);
}

CaseRecord record_of(const TaskGroup& group, const std::vector<double>& task_s, const Target& target,
                     const LayerJob& job) {
  CaseRecord record;
  record.key = group.key;
  record.backend = target.backend();
  const bool computes = is_computation(group);
  record.parameters = case_parameters(target.cluster, name_of(computes ? Op::task : row_of(group).op));
  if (computes)
    describe_computation(group, record.parameters);
  else
    describe_collective(group, record.parameters);
  record.parameters.set("layer", job.name);
  std::vector<double> seconds;
  for (const Task* task : group.tasks) seconds.push_back(task_s[task->id]);
  record.summary = {{"median_s", std::accumulate(seconds.begin(), seconds.end(), 0.0) / double(seconds.size())}};
  record.samples = {{"seconds", single_rank_samples(seconds)}};
  return record;
}

// Returns whether the leading process's writer has all groups. Writers of other processes only have the records of an
// interrupted run.
bool are_known(const Target& target, const std::vector<TaskGroup>& groups, const RecordWriter& writer) {
  return target.leader_value(
      std::ranges::all_of(groups, [&](const TaskGroup& g) { return writer.find(g.key) != nullptr; }));
}

std::vector<CaseRecord> known_records(const std::vector<TaskGroup>& groups, const RecordWriter& writer) {
  std::vector<CaseRecord> known;
  for (const TaskGroup& group : groups) {
    known.push_back(*writer.find(group.key));
    known.back().where.clear();
  }
  return known;
}

std::vector<CaseRecord> measure(const Target& target, const LayerJob& job, RecordWriter& writer) {
  const std::vector<measure::PlannedRun> runs = serial_runs(job);
  std::vector<std::vector<TaskGroup>> groups;
  std::vector<TaskGroup> all;
  for (const measure::PlannedRun& run : runs) {
    groups.push_back(groups_of_tasks(job.name, run.plan));
    all.insert(all.end(), groups.back().begin(), groups.back().end());
  }
  if (all.empty()) return {};
  if (are_known(target, all, writer)) return known_records(all, writer);
  measure::LayerBenchSettings settings = job.settings;
  settings.max_reference_flops = kProvenFlops;
  settings.inspect = {};
  settings.is_lockstep = true;
  settings.graphs = false;
  settings.fill_s = kMeasuredS;
  settings.max_timed_s = kMaxMeasuredS;
  const measure::LayerMeasurement measured = measure::measure_layer(runs, settings);
  std::vector<CaseRecord> records;
  for (size_t r = 0; r < runs.size(); ++r) {
    require<WrongResult>(!measured.runs[r].wrong, "{}: {}", job.name, measured.runs[r].wrong.value_or(""));
    for (const TaskGroup& group : groups[r]) {
      CaseRecord record = record_of(group, measured.runs[r].task_s, target, job);
      if (record.summary.number("median_s", record.key) <= 0) continue;
      const double slowdown = measured.runs[r].core_slowdown;
      if (slowdown > 0) record.summary.set("core_slowdown", slowdown);
      if (measured.runs[r].out_of_time) record.summary.set("out_of_time", int64_t{1});
      const CaseRecord* earlier = writer.find(record.key);  // from an interrupted run; every process has it
      if (earlier != nullptr) record = *earlier;
      records.push_back(std::move(record));
      records.back().where.clear();
    }
  }
  return records;
}

}  // namespace

std::vector<LayerJob> profiled(const std::vector<LayerJob>& layers) {
  std::vector<LayerShape> shapes;
  for (const LayerJob& job : layers) shapes.push_back(job.shape().layer);
  std::vector<LayerJob> jobs;
  for (const size_t i : pick_layers(shapes, kProfiledLayers)) {
    LayerJob& job = jobs.emplace_back(layers[i]);
    const ModelShape whole = job.model;
    const measure::TrainingSettings training = std::exchange(job.settings.training, {});
    job.plan.reset();
    job.model = {.shape = whole.shape, .step = whole.step};
    job.model.step.planned = true;
    job.model.shape.layer.first_stage_layers = job.model.shape.layer.last_stage_layers = 0;  // the job has one stage
    ParallelShape& parallel = job.model.shape.parallel;
    const int stages = std::exchange(parallel.pp, 1);
    parallel.dp *= stages;
    parallel.edp *= stages;
    job.settings.iterations = measure::kPasses;
    // A layer alone has no expert window. With one stage instead of several, ranks may share experts, which forbids
    // offloading.
    if (whole.vocabulary == 0 || offload_refusal(job.model.shape)) parallel.offload = Offload::none;
    if (whole.vocabulary == 0) continue;
    add_end_tasks(job.model, whole.vocabulary);
    job.settings.training = {.text = training.text, .optimizer = training.optimizer};
    job.model.layers = 2;  // two layers, because their gradients are sent together
    if (!whole.whole.has_none(whole.layers)) job.model.whole = {{false, true}};
    if (whole.dense.has_none(whole.layers)) continue;
    job.model.layers = 3;
    job.model.dense = {{{true, false, false}}, whole.dense.hidden};
  }
  return jobs;
}

std::vector<CommRow> comm_rows_of_tasks(const LayerJob& job) {
  std::vector<CommRow> rows;
  for (const measure::PlannedRun& run : serial_runs(job))
    for (const TaskGroup& group : groups_of_tasks(job.name, run.plan))
      if (!is_computation(group)) rows.push_back(row_of(group));
  return rows;
}

std::vector<CaseRecord> measure_tasks(const Target& target, const LayerJob& job, RecordWriter& writer) {
  std::vector<CaseRecord> records;
  const auto refusal = refusal_of([&] { records = measure(target, job, writer); }, target.ranks.processes);
  if (!target.is_leader()) return records;
  if (refusal) log_decision(fmt::format("{}: its tasks cannot be measured: {}", job.name, refusal->reason));
  for (const CaseRecord& record : records) writer.append_new(record);
  return records;
}

}  // namespace moe::commands
