#include "moe/torch/detail/auto_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "moe/base/check.h"
#include "moe/device/device.h"
#include "moe/formats/plan_json.h"
#include "moe/prices/fit.h"
#include "moe/prices/pricer.h"
#include "moe/search/layer_search.h"

namespace moe {
namespace {

constexpr std::array kDegrees{1, 2, 4};            // degrees at which tasks are profiled
constexpr int kUntimedSteps = 1, kTimedSteps = 2;  // steps of each plan
constexpr size_t kTriedPlans = 3;

// Returns the plan with each task made to wait for the task before it.
Plan add_one_by_one(Plan plan) {
  auto structure = std::make_shared<Structure>(*plan.structure);
  for (Task& task : structure->tasks)
    if (task.id > 0 && std::ranges::find(task.after, task.id - 1) == task.after.end())
      task.after.push_back(task.id - 1);
  plan.structure = std::move(structure);
  return plan;
}

// Returns the schedules whose tasks are profiled: one per flow, and those that halve the backward.
std::vector<const Schedule*> profiled_schedules(const LayerCase& shape) {
  std::vector<const Schedule*> chosen{&find_schedule("fsmoe")};
  std::set<Flow> flows{Flow::sharded};
  const bool alike = shape.parallel.mp * shape.parallel.esp == 1;  // other flows send the same rows to the same ranks
  const auto consider = [&](const Schedule& schedule) {
    if (!schedule.variants.empty() || schedule.packs_experts || (alike && schedule.flow != Flow::sharded)) return;
    if (flows.insert(schedule.flow).second || schedule.halves_backward) chosen.push_back(&schedule);
  };
  for (const Schedule& schedule : schedules()) {
    consider(schedule);
    for (const Schedule* variant : schedule.variants) consider(*variant);
  }
  return chosen;
}

// Tasks of a plan with the same duration, and the row to which their time is fitted.
struct TaskGroup {
  const Plan* plan = nullptr;
  std::vector<const Task*> tasks;
  const Task& first() const { return *tasks.front(); }
  const Work& work() const { return plan->works[first().id]; }
  bool computes() const { return first().group == GroupKind::none; }

  TaskRow task_row() const {
    return {.name = task_row_name(first().kind, plan->shape), .phase = first().phase, .dtype = plan->shape.layer.dtype};
  }
  CommRow comm_row() const {
    const Group& ranks = plan->groups[work().group];
    const bool fused = work().op == Op::alltoall && work().group == GroupKind::ep_esp;
    CommRow row{.op = fused ? Op::a2a_ep_esp : work().op, .network = ranks.network, .ranks = ranks.size};
    const std::string& dispatcher = plan->shape.layer.dispatcher;
    if (work().op == Op::alltoall && dispatcher != "alltoall") row.algorithm = dispatcher;
    return row;
  }
  std::string row_name() const { return computes() ? moe::row_name(task_row()) : moe::row_name(comm_row()); }
  TermSample term_sample(double seconds) const {
    const TaskTerms terms = terms_of(first().kind, first().phase, plan->shape, plan->structure->flow);
    return {terms.share_terms(1.0 / first().chunks), seconds};
  }
  FitSample size_sample(double seconds) const {  // chunks may have different numbers of rows
    double bytes = 0;
    for (const Task* task : tasks) bytes += plan->works[task->id].bytes;
    return {.size = bytes / static_cast<double>(tasks.size()), .seconds = seconds};
  }
};

// A phase of SAA's exchange goes to one peer only, and costs a share of an AlltoAll.
bool is_priced(const Task& task, const Work& work) {
  if (task.kind == TaskKind::exchange) return false;
  if (task.group == GroupKind::none) return has_terms(task.kind);
  return facts_of(work.op).table == OpTable::comm && work.bytes > 0;
}

std::vector<TaskGroup> groups_of_tasks(const Plan& plan) {
  std::map<std::tuple<TaskKind, Phase, int>, TaskGroup> groups;
  for (const Task& task : plan.tasks()) {
    if (!is_priced(task, plan.works[task.id])) continue;
    TaskGroup& group = groups[{task.kind, task.phase, task.slice}];
    group.plan = &plan;
    group.tasks.push_back(&task);
  }
  std::vector<TaskGroup> all;
  for (auto& [what, group] : groups) all.push_back(std::move(group));
  return all;
}

// The times of short tasks need not grow with size.
LinearFit fit_of(const std::vector<FitSample>& samples, const std::string& what) {
  try {
    return fit_linear(samples, what);
  } catch (const FitError& none) {
    return fit_without_line(samples, none.why());
  }
}

}  // namespace

AutoPlan::AutoPlan(const LayerCase& shape, Communicator& world_comm, std::function<bool(const Plan&)> runs)
    : shape_(shape), world_comm_(world_comm), runs_(std::move(runs)) {
  const Profile profile = nominal_profile(shape_);
  const LayerPricer pricer(profile, shape_);
  for (const Schedule* schedule : profiled_schedules(shape_))
    for (const int degree : kDegrees) {
      if (degree > 1 && (schedule->degrees == DegreePolicy::one || degree > capacity_rows(shape_))) continue;
      try {
        const LayerResult decided = LayerSearch().tune(*schedule, pricer, {.forward = degree, .backward = degree});
        Plan plan = build_plan(*schedule, shape_, decided.decision);
        if (runs_(plan)) plans_.push_back(add_one_by_one(std::move(plan)));
      } catch (const Unsupported&) {  // the schedule does not support this shape; others cover its tasks
      }
    }
  require<BadInput>(!plans_.empty(), "MoELayer: found plan='auto' and a layer that no schedule runs, expected one");
  task_s_.resize(plans_.size());
  total_s_.assign(plans_.size(), 0);
}

bool AutoPlan::take(const std::vector<TaskTime>& tasks, double seconds) {
  if (is_decided()) return false;
  ++steps_;
  if (++steps_of_plan_ <= kUntimedSteps) return false;
  gather(tasks, seconds);
  if (steps_of_plan_ < kUntimedSteps + kTimedSteps) return false;
  steps_of_plan_ = 0;
  if (++current_ < plans_.size()) return true;
  state_ == State::profiling ? begin_trying() : decide();
  return true;
}

// A collective's time without waiting is that of the rank that came last; a computation's is that of the slowest rank.
void AutoPlan::gather(const std::vector<TaskTime>& tasks, double seconds) {
  std::vector<double> own;
  for (const TaskTime& time : tasks) own.push_back(time.end_s - time.start_s);
  own.push_back(seconds);
  std::vector<double> all(own.size() * static_cast<size_t>(world_comm_.size()));
  const auto stream = make_cpu_device()->make_stream("times of a step");
  world_comm_.allgather(own.data(), all.data(), static_cast<int64_t>(own.size() * sizeof(double)),
                        {*stream, {}, "times of a step"});
  stream->synchronize();
  std::vector<double>& known = task_s_[current_];
  known.resize(tasks.size(), std::numeric_limits<double>::infinity());
  for (size_t i = 0; i < own.size(); ++i) {
    const bool is_total = i == tasks.size();
    const bool computes = is_total || plan().tasks()[i].group == GroupKind::none;
    double found = all[i];
    for (size_t at = i; at < all.size(); at += own.size())
      found = computes ? std::max(found, all[at]) : std::min(found, all[at]);
    double& least = is_total ? total_s_[current_] : known[i];
    least = least == 0 ? found : std::min(least, found);
  }
}

Profile AutoPlan::fitted() {
  Profile profile;
  profile.name = "auto";
  profile.source = "the first steps";
  profile.nodes = shape_.parallel.nodes;
  profile.ranks_per_node = shape_.parallel.ranks_per_node;
  std::map<std::string, std::pair<TaskRow, std::vector<TermSample>>> computations;
  std::map<std::string, std::pair<CommRow, std::vector<FitSample>>> collectives;
  for (size_t p = 0; p < plans_.size(); ++p)
    for (const TaskGroup& group : groups_of_tasks(plans_[p])) {
      double seconds = 0;
      for (const Task* task : group.tasks) seconds += task_s_[p][task->id];
      seconds /= static_cast<double>(group.tasks.size());
      const std::string name = group.row_name();
      rows_.push_back({name, group.first().chunks, seconds});
      if (group.computes()) {
        auto& [row, samples] = computations[name];
        row = group.task_row();
        samples.push_back(group.term_sample(std::max(seconds, 1e-9)));
      } else {
        auto& [row, samples] = collectives[name];
        row = group.comm_row();
        samples.push_back(group.size_sample(std::max(seconds, 1e-9)));
      }
    }
  for (auto& [name, fit] : computations) {
    fit_terms(fit.second, name, fit.first);
    profile.tasks.push_back(std::move(fit.first));
  }
  for (auto& [name, fit] : collectives) {
    const LinearFit line = fit_of(fit.second, name);
    fit.first.alpha_s = line.alpha_s;
    fit.first.beta_s_per_byte = line.beta;
    profile.comm.push_back(std::move(fit.first));
  }
  return profile;
}

// Returns a document: the schedules by their predicted seconds, and the best plans.
std::string AutoPlan::ranked_plans() {
  const Profile profile = fitted();
  const LayerPricer pricer(profile, shape_);
  std::vector<std::pair<Ranked, Plan>> found;
  LayerSearch search;
  for (const Schedule& schedule : schedules()) {
    if (schedule.packs_experts) continue;
    try {
      const LayerResult result = search.tune(schedule, pricer, {});
      Plan plan = build_plan(schedule, shape_, result.decision);
      if (!runs_(plan)) continue;
      found.push_back({{plan.schedule, plan.degree_forward, plan.degree_backward, result.total_s()}, plan});
    } catch (const Unsupported&) {  // unsupported shape, or tasks that no plan ran
    }
  }
  std::ranges::stable_sort(found, {}, [](const auto& each) { return each.first.predicted_s; });
  Json document{{"ranking", Json::array()}, {"plans", Json::array()}};
  for (const auto& [ranked, plan] : found) {
    document["ranking"].push_back({ranked.schedule, ranked.degree_forward, ranked.degree_backward, ranked.predicted_s});
    if (document["plans"].size() >= kTriedPlans) continue;
    std::ostringstream text;
    write_plan(plan, text);
    document["plans"].push_back(text.str());
  }
  return document.dump();
}

// Rank 0 decides for all, so that ranks whose processors round differently cannot disagree.
void AutoPlan::begin_trying() {
  std::string text = ranked_plans();
  auto bytes = static_cast<int64_t>(text.size());
  const auto stream = make_cpu_device()->make_stream("plans of rank 0");
  world_comm_.broadcast(&bytes, sizeof bytes, 0, {*stream, {}, "plans of rank 0"});
  stream->synchronize();
  text.resize(bytes);
  world_comm_.broadcast(text.data(), bytes, 0, {*stream, {}, "plans of rank 0"});
  stream->synchronize();
  const Json document = Json::parse(text);
  for (const Json& row : document["ranking"])
    ranking_.push_back({row[0].get<std::string>(), row[1].get<int>(), row[2].get<int>(), row[3].get<double>()});
  plans_.clear();
  for (const Json& plan : document["plans"]) plans_.push_back(parse_plan(plan.get<std::string>(), "plan of rank 0"));
  task_s_.assign(plans_.size(), {});
  total_s_.assign(plans_.size(), 0);
  current_ = 0;
  state_ = State::trying;
}

void AutoPlan::decide() {
  for (size_t i = 0; i < plans_.size(); ++i) ranking_[i].measured_s = total_s_[i];
  const auto best = std::ranges::min_element(total_s_) - total_s_.begin();
  plans_ = {plans_[best]};
  current_ = 0;
  state_ = State::decided;
}

Json AutoPlan::report() const {
  Json report{{"decided", is_decided()}, {"steps", steps_}, {"rows", Json::array()}, {"ranking", Json::array()}};
  for (const MeasuredRow& row : rows_)
    report["rows"].push_back({{"row", row.name}, {"chunks", row.chunks}, {"seconds", row.seconds}});
  for (const Ranked& each : ranking_) {
    report["ranking"].push_back({{"schedule", each.schedule},
                                 {"degree_forward", each.degree_forward},
                                 {"degree_backward", each.degree_backward},
                                 {"predicted_s", each.predicted_s},
                                 {"measured_s", each.measured_s > 0 ? Json(each.measured_s) : Json()}});
  }
  if (!is_decided()) return report;
  std::ostringstream text;
  write_plan(plan(), text);
  report["plan"] = Json::parse(text.str());
  return report;
}

}  // namespace moe
