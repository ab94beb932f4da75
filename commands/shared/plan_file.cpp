#include "commands/shared/plan_file.h"

#include <algorithm>
#include <limits>
#include <ostream>
#include <streambuf>

#include "moe/base/check.h"
#include "moe/base/files.h"
#include "moe/base/log.h"
#include "moe/base/units.h"
#include "moe/formats/plan_json.h"
#include "moe/plan/pipeline.h"
#include "moe/schedule/model_plan.h"
#include "moe/search/wave.h"
#include "moe/simulator/bounds.h"
#include "moe/simulator/fluid_replay.h"
#include "moe/simulator/model_bound.h"

namespace moe::commands {
namespace {

// Returns the bytes of gradients that a schedule's search puts between tasks of the MoE part. Pieces do not count.
int64_t bytes_in_moe(const Plan& plan) {
  if (find_schedule(plan.schedule).gradients != GradientPolicy::adaptive) return 0;
  int first = -1, last = -1;
  for (const Task& task : plan.tasks()) {
    if (task.phase != Phase::backward || !is_chunked(task.kind)) continue;
    if (first < 0) first = task.id;
    last = task.id;
  }
  int64_t bytes = 0;
  for (const Task& task : plan.tasks())
    if (task.kind == TaskKind::gradient && task.id > first && task.id < last) bytes += plan.slices[task.slice].bytes();
  return bytes;
}

// Returns the tasks of one phase, renumbered, with their dependencies inside the phase.
Plan phase_of(const Plan& plan, Phase phase) {
  Structure part = *plan.structure;
  Plan alone = plan;
  alone.works.clear();
  std::vector<int> place(plan.tasks().size(), -1);
  part.tasks.clear();
  for (const Task& task : plan.tasks())
    if (task.execution_phase() == phase) {
      place[task.id] = static_cast<int>(part.tasks.size());
      part.tasks.push_back(task);
      alone.works.push_back(plan.works[task.id]);
    }
  const auto renumber = [&](std::vector<int>& ids) {
    for (int& id : ids) id = place[id];
    std::erase(ids, -1);
  };
  for (Task& task : part.tasks) {
    task.id = place[task.id];
    renumber(task.after);
  }
  for (Lane& lane : part.lanes) renumber(lane.queue);
  alone.structure = std::make_shared<const Structure>(std::move(part));
  return alone;
}

}  // namespace

Plan plan_of_file(const std::string& path, int nodes, int ranks_per_node) {
  Plan plan = read_plan(path);
  const ParallelShape& p = plan.shape.parallel;
  require<BadInput>(p.nodes == nodes && p.ranks_per_node == ranks_per_node,
                    "{}: parallel: found {} nodes x {} ranks, expected {} x {} as the cluster has", path, p.nodes,
                    p.ranks_per_node, nodes, ranks_per_node);
  return plan;
}

void save_plan(const Plan& plan, const std::string& path) {
  require_kind(path, kPlanBegins, "plan");
  write_whole_file(path, "a file for the plan (--save-plan)", [&](std::ostream& out) { write_plan(plan, out); });
}

void require_one_saved(const std::string& path, size_t schedules) {
  require<BadInput>(path.empty() || schedules == 1, "--save-plan: found {} schedules, expected one (--schedule)",
                    schedules);
}

// Uses a separate pricer, whose notes on other decisions of the schedule are not notes on this plan.
double bound_seconds(const Plan& plan, const LayerPricer& pricer) {
  const Schedule& schedule = find_schedule(plan.schedule);
  const LayerPricer any(pricer.profile(), plan.shape, pricer.options());
  if (!plan.step.planned) return degree_free_bound(schedule, any).total_s();
  const ModelShape model = model_of(plan);
  if (!schedule.orders_iterations()) return model_bound(schedule, any, model);
  return wave_bound(any, model, {.keep = plan.layers * plan.micro_batches});
}

PlanTimes times_of(const Plan& plan, const LayerPricer& pricer) {
  const std::vector<double> seconds = price(pricer, plan);
  const Contention& contention = pricer.profile().contention;
  const Timeline both = timeline_of(plan, seconds, contention);
  const std::vector<double> start_s = starts_of(*plan.structure, both.end_s);  // a timeline's own are rounded
  PlanTimes times;
  double begin_backward_s = both.makespan_s;
  for (const Task& task : plan.tasks()) {
    if (task.execution_phase() == Phase::forward)
      times.forward_s = std::max(times.forward_s, both.end_s[task.id]);
    else
      begin_backward_s = std::min(begin_backward_s, start_s[task.id]);
  }
  times.backward_s = both.makespan_s - times.forward_s;
  if (plan.step.planned) return times;
  times.moe_forward_s = moe_seconds(*plan.structure, both.end_s, Phase::forward);
  times.moe_backward_s = moe_seconds(*plan.structure, both.end_s, Phase::backward);
  times.gar_in_moe_bytes = bytes_in_moe(plan);
  if (begin_backward_s < times.forward_s) return times;
  const Plan backward = phase_of(plan, Phase::backward);
  const Timeline alone = timeline_of(backward, price(pricer, backward), contention);
  times.backward_s = alone.makespan_s;
  times.moe_backward_s = moe_seconds(*backward.structure, alone.end_s, Phase::backward);
  return times;
}

namespace {

// A stream that only counts the bytes written to it.
class ByteCounter : public std::streambuf {
 public:
  int64_t bytes() const { return bytes_; }

 protected:
  int_type overflow(int_type c) override {
    ++bytes_;
    return traits_type::not_eof(c);
  }
  std::streamsize xsputn(const char* /*text*/, std::streamsize count) override {
    bytes_ += count;
    return count;
  }

 private:
  int64_t bytes_ = 0;
};

int64_t bytes_of(std::span<const TraceGroup> groups, const TraceExtent& extent) {
  ByteCounter counter;
  std::ostream out(&counter);
  chrome_trace(groups, out, extent);
  return counter.bytes();
}

// Returns the largest number of layers of a stage, and the largest number of micro-batches.
TraceExtent whole_extent(std::span<const TraceGroup> groups) {
  TraceExtent whole{1, 1};
  for (const TraceGroup& group : groups) {
    whole.layers = std::max(whole.layers, max_layers(group.plan->split()));
    whole.micro_batches = std::max(whole.micro_batches, group.plan->micro_batches);
  }
  return whole;
}

std::string shown_text(std::span<const TraceGroup> groups, const TraceExtent& extent) {
  const TraceExtent whole = whole_extent(groups);
  const bool stages = std::ranges::any_of(groups, [](const auto& g) { return g.plan->shape.parallel.pp > 1; });
  std::string text;
  const auto add = [&](int shown, int count, const std::string& what) {
    if (shown < count) text += fmt::format("{}{} of {} {}", text.empty() ? "" : " and ", shown, count, what);
  };
  add(extent.layers, whole.layers, stages ? "layers of a stage" : "layers");
  add(extent.micro_batches, whole.micro_batches, "micro-batches");
  if (text.empty()) return "";
  return fmt::format("; it shows {}, the first and the last (--trace-layers, --trace-micro-batches: N or all)", text);
}

}  // namespace

void require_timeline(const std::string& path) { require_kind(path, kChromeTraceBegins, "timeline"); }

TraceExtent trace_extent(std::span<const TraceGroup> groups, const TraceFlags& flags) {
  TraceExtent extent = whole_extent(groups);
  if (flags.layers) extent.layers = *flags.layers;
  if (flags.micro_batches) extent.micro_batches = *flags.micro_batches;
  const auto open = [](const std::optional<int>& asked, int& number) {
    return asked || number == 1 ? nullptr : &number;
  };
  while (shown_tasks(groups, extent) > kOpenedAtOnce) {
    int* const layers = open(flags.layers, extent.layers);
    int* const micro_batches = open(flags.micro_batches, extent.micro_batches);
    if (layers == nullptr && micro_batches == nullptr) break;
    const bool cuts_layers = micro_batches == nullptr || (layers != nullptr && *layers >= *micro_batches);
    int& number = cuts_layers ? *layers : *micro_batches;
    number = (number + 1) / 2;
  }
  return extent;
}

void write_trace(std::span<const TraceGroup> groups, const TraceFlags& flags) {
  require_timeline(flags.file);
  const TraceExtent extent = trace_extent(groups, flags);
  log_info(fmt::format("{}: a timeline of {}, {} tasks{}", flags.file,
                       human_bytes(static_cast<double>(bytes_of(groups, extent))), shown_tasks(groups, extent),
                       shown_text(groups, extent)));
  write_whole_file(flags.file, "a file for the timeline (--trace)",
                   [&](std::ostream& out) { chrome_trace(groups, out, extent); });
}

}  // namespace moe::commands
