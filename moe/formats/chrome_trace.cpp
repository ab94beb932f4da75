#include "moe/formats/chrome_trace.h"

#include <algorithm>
#include <cmath>
#include <ostream>

#include "moe/base/check.h"
#include "moe/plan/pipeline.h"
#include "moe/simulator/simulator.h"

namespace moe {
namespace {

// Returns a JSON string with its quotes. Bytes above 0x7f are unchanged, because names are UTF-8.
std::string quoted(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      json += {'\\', c};
    else if (static_cast<unsigned char>(c) < 0x20)
      json += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      json += c;
  }
  return json + '"';
}

// Events of a track may touch but not overlap, so starts and ends are rounded instead of lengths.
int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

std::string microseconds(int64_t ns) {
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", std::abs(ns) / 1000, std::abs(ns) % 1000);
}

std::string lane_name(const Lane& lane, bool several_stages) {
  const std::string_view kind = name_of(lane.kind);
  return several_stages ? fmt::format("stage {} {}", lane.stage + 1, kind) : std::string(kind);
}

// Returns whether `place` is shown if only `shown` of `count` positions are: half of them from the start, half from the
// end.
bool is_near_an_end(int place, int count, int shown) { return place < shown - shown / 2 || place >= count - shown / 2; }

const Lane& lane_of(const Plan& plan, int task) { return plan.structure->lanes[plan.tasks()[task].lane]; }

bool is_shown(const TraceGroup& group, const Lane& lane) { return group.stage < 0 || group.stage == lane.stage; }

bool is_shown(const TraceGroup& group, const Task& task, const TraceExtent& extent) {
  const Plan& plan = *group.plan;
  const Lane& lane = lane_of(plan, task.id);
  if (!is_shown(group, lane)) return false;
  const bool is_step = task.phase == Phase::step;
  if (!is_step && !is_near_an_end(task.micro_batch, plan.micro_batches, extent.micro_batches)) return false;
  const StageSplit split = plan.split();
  const int chunk = chunk_of_layer(split, task.layer);
  if (plan.is_end(task.layer) || chunk % split.stages != lane.stage) return true;
  const auto [first, last] = layers_of_chunk(split, chunk);
  const int place = chunk / split.stages * (last - first) + task.layer - first;
  return is_near_an_end(place, layers_in(split, lane.stage), extent.layers);
}

class EventWriter {
 public:
  EventWriter(std::ostream& out, const TraceExtent& extent) : out_(out), extent_(extent) {}

  void group(const TraceGroup& group, int place) {
    const Plan& plan = *group.plan;
    const std::string process =
        fmt::format("{} r_f {} r_b {} {}", plan.schedule, plan.degree_forward, plan.degree_backward, group.name);
    const int pid = place + 1;
    metadata(pid, 0, "process_name", "name",
             quoted(group.rank < 0 ? process : fmt::format("{}, rank {}", process, group.rank)));
    metadata(pid, 0, "process_labels", "labels",
             quoted(describe(plan.shape.layer) + (group.cluster.empty() ? "" : " on " + group.cluster)));
    metadata(pid, 0, "process_sort_index", "sort_index", fmt::to_string(place));
    const auto& lanes = plan.structure->lanes;
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      if (lanes[lane].queue.empty() || !is_shown(group, lanes[lane])) continue;
      const int tid = static_cast<int>(lane) + 1;
      metadata(pid, tid, "thread_name", "name", quoted(lane_name(lanes[lane], lanes.back().stage > 0)));
      metadata(pid, tid, "thread_sort_index", "sort_index", fmt::to_string(lane));
    }
    const CriticalPath path = critical_path(*plan.structure, group.start_s, group.end_s);
    for (const Task& task : plan.tasks())
      if (is_shown(group, task, extent_)) complete(group, path, task, pid);
    // Arrows come after the slices, because viewers attach an arrow to the slice at its time that they have already
    // read.
    for (const Task& task : plan.tasks())
      for (const int from : cross_lane_dependencies(*plan.structure, task))
        if (is_shown(group, task, extent_) && is_shown(group, plan.tasks()[from], extent_))
          arrow(group, from, task.id, pid);
  }

 private:
  void metadata(int pid, int tid, std::string_view what, std::string_view key, std::string_view value) {
    event(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"{}":{}}}}})", pid, tid, what, key, value);
  }

  void complete(const TraceGroup& group, const CriticalPath& path, const Task& task, int pid) {
    const int64_t start = nanoseconds(group.start_s[task.id]), end = nanoseconds(group.end_s[task.id]);
    std::string name{name_of(task.kind)};
    // Viewers give names that differ only in numbers the same colour.
    if (task.chunks > 1) name += fmt::format(" {}", task.chunk + 1);
    if (task.slice >= 0) name += fmt::format(" slice {}", task.slice + 1);
    if (group.plan->layers > 1) name += fmt::format(" L{}", task.layer + 1);
    if (group.plan->micro_batches > 1) name += fmt::format(" M{}", task.micro_batch + 1);
    std::string args = fmt::format(R"("phase":"{}","layer":{},"chunk":{},"chunks":{},"task":{})", name_of(task.phase),
                                   task.layer, task.chunk, task.chunks, task.id);
    if (group.plan->micro_batches > 1) args += fmt::format(R"(,"micro_batch":{})", task.micro_batch + 1);
    const Work& work = group.plan->works[task.id];
    if (work.bytes > 0) args += fmt::format(R"(,"bytes":{:.0f})", work.bytes);
    if (work.bytes > 0 && end > start)
      args += fmt::format(R"(,"GB/s":{:.4g})", work.bytes / static_cast<double>(end - start));
    if (work.flops > 0) args += fmt::format(R"(,"flops":{:.0f})", work.flops);
    args += fmt::format(R"(,"critical":{},"slack_us":{})", path.on_path[task.id] ? "true" : "false",
                        microseconds(nanoseconds(path.slack_s[task.id])));
    if (group.predicted != nullptr)
      args +=
          fmt::format(R"(,"predicted_us":{})",
                      microseconds(nanoseconds(group.predicted->end_s[task.id] - group.predicted->start_s[task.id])));
    event(R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"cat":"{}","name":"{}","args":{{{}}}}})", pid, task.lane + 1,
          microseconds(start), microseconds(end - start), name_of(task.phase), name, args);
  }

  void arrow(const TraceGroup& group, int from, int to, int pid) {
    const size_t source = static_cast<size_t>(from), target = static_cast<size_t>(to);
    const int64_t begin = nanoseconds(group.start_s[source]), left = nanoseconds(group.end_s[source]) - 1;
    const int64_t reached = nanoseconds(group.start_s[target]), end = nanoseconds(group.end_s[target]);
    if (left < begin || end <= reached || reached < left) return;
    const auto tid = [&](size_t task) { return group.plan->tasks()[task].lane + 1; };
    ++arrows_;
    event(R"({{"ph":"s","pid":{},"tid":{},"ts":{},"id":{},"cat":"dependency","name":"after"}})", pid, tid(source),
          microseconds(left), arrows_);
    event(R"({{"ph":"f","bp":"e","pid":{},"tid":{},"ts":{},"id":{},"cat":"dependency","name":"after"}})", pid,
          tid(target), microseconds(reached), arrows_);
  }

  template <class... Args>
  void event(fmt::format_string<Args...> text, Args&&... args) {
    out_ << (first_ ? "\n" : ",\n") << fmt::format(text, std::forward<Args>(args)...);
    first_ = false;
  }

  std::ostream& out_;
  const TraceExtent& extent_;
  bool first_ = true;
  int64_t arrows_ = 0;  // ids must be unique in the file
};

void check_times(const TraceGroup& group) {
  const auto& tasks = group.plan->tasks();
  require<WrongResult>(group.start_s.size() == tasks.size() && group.end_s.size() == tasks.size(),
                       "trace '{}': {} starts and {} ends of {} tasks", group.name, group.start_s.size(),
                       group.end_s.size(), tasks.size());
  for (size_t i = 0; i < tasks.size(); ++i)
    require<WrongResult>(
        std::isfinite(group.start_s[i]) && std::isfinite(group.end_s[i]) && group.start_s[i] <= group.end_s[i],
        "trace '{}': {} starts at {} s and ends at {} s", group.name, tasks[i].name(), group.start_s[i],
        group.end_s[i]);
}

}  // namespace

int64_t shown_tasks(std::span<const TraceGroup> groups, const TraceExtent& extent) {
  int64_t tasks = 0;
  for (const TraceGroup& group : groups)
    tasks +=
        std::ranges::count_if(group.plan->tasks(), [&](const Task& task) { return is_shown(group, task, extent); });
  return tasks;
}

void chrome_trace(std::span<const TraceGroup> groups, std::ostream& out, const TraceExtent& extent) {
  for (const TraceGroup& group : groups) check_times(group);
  out << kChromeTraceBegins << R"("ms","traceEvents":[)";
  EventWriter writer(out, extent);
  for (size_t i = 0; i < groups.size(); ++i) writer.group(groups[i], static_cast<int>(i));
  out << "\n]}\n";
}

TraceGroup trace_group(const Plan& plan, const Timeline& timeline, const std::string& cluster) {
  return {"simulated", -1, &plan, timeline.start_s, timeline.end_s, cluster};
}

}  // namespace moe
