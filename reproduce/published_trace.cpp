// DeepSeek's training trace, replayed from the durations of its own tasks.
#include <algorithm>

#include "moe/base/check.h"
#include "moe/cost/simulator.h"
#include "reproduce/published.h"

namespace moe::reproduce {
namespace {

enum LaneOf { kCompute, kComm, kWeights };

// Builds the tasks of one layer pair after another's, as DualPipe orders them (DeepSeek-V3, Figure 4).
class PairBuilder {
 public:
  PairBuilder(const std::vector<TraceTask>& trace, bool own_lane) : trace_(trace), own_lane_(own_lane) {
    structure_.lanes.resize(own_lane ? 3 : 2);
    structure_.lanes[kComm].kind = LaneKind::comm;
  }

  double seconds(int layers) {
    int attended = add("attention", "forward", kCompute, {}), combined_back = add("combine", "backward", kComm, {});
    for (int layer = 0; layer < layers; ++layer) {
      const int mlp_back = add("mlp", "backward", kCompute, {combined_back});
      const int dispatched = add("dispatch", "forward", kComm, {attended});
      add_weights("mlp_dw", mlp_back);
      const int mlp = add("mlp", "forward", kCompute, {dispatched});
      const int dispatched_back = add("dispatch", "backward", kComm, {mlp_back});
      const int attention_back = add("attention", "backward", kCompute, {dispatched_back});
      const int combined = add("combine", "forward", kComm, {mlp});
      add_weights("attention_dw", attention_back);
      if (layer + 1 == layers) break;
      attended = add("attention", "forward", kCompute, {combined});
      combined_back = add("combine", "backward", kComm, {attention_back});
    }
    return simulate(structure_, seconds_).makespan_s;
  }

 private:
  int add(std::string_view task, std::string_view phase, int lane, std::vector<int> after) {
    double sum = 0;
    for (const TraceTask& row : trace_)
      if (row.task == task && row.phase == phase && (lane == kWeights) == on_weights_lane(row)) sum += row.seconds;
    require<BadInput>(sum > 0, "trace: found no {} of the {}, expected its seconds", task, phase);
    Task added;
    added.id = added.work_class = static_cast<int>(structure_.tasks.size());
    added.phase = phase == "forward" ? Phase::forward : Phase::backward;
    added.lane = lane;
    added.after = std::move(after);
    seconds_.push_back(sum);
    structure_.lanes[static_cast<size_t>(lane)].queue.push_back(added.id);
    structure_.tasks.push_back(std::move(added));
    return structure_.tasks.back().id;
  }

  // Adds the weight gradients of a part whose backward is over; nothing in these layers waits for them.
  void add_weights(std::string_view task, int backward) {
    add(task, "backward", kCompute, {backward});
    const bool split =
        std::ranges::any_of(trace_, [&](const TraceTask& row) { return row.task == task && on_weights_lane(row); });
    if (split) add(task, "backward", kWeights, {backward});
  }

  bool on_weights_lane(const TraceTask& row) const { return own_lane_ && row.stream == "wgrad"; }

  const std::vector<TraceTask>& trace_;
  bool own_lane_;
  Structure structure_;
  std::vector<double> seconds_;  // by task
};

}  // namespace

double replayed_trace(const std::vector<TraceTask>& trace, int layers, bool own_lane) {
  return PairBuilder(trace, own_lane).seconds(layers);
}

Comparison trace_times() {
  Comparison c{.caption = "DeepSeek's training trace, four layers, forward beside backward",
               .label_names = {"what"},
               .quantity = kMilliseconds};
  const std::vector<TraceTask> trace = published_trace();
  const auto whole = std::ranges::find(trace, "iteration", &TraceTask::task);
  require<BadInput>(whole != trace.end(), "trace: found no iteration, expected its seconds");
  c.figures = {{{"iteration"}, "compute lane", whole->seconds, replayed_trace(trace, kTraceLayers, false)},
               {{"iteration"}, "own lane", whole->seconds, replayed_trace(trace, kTraceLayers, true)}};
  return c;
}

}  // namespace moe::reproduce
