#include "reproduce/fsmoe_models.h"

#include "moe/base/check.h"
#include "reproduce/fsmoe_layer.h"

namespace moe::reproduce {
namespace {

LayerCase layer_case(const Model& model, const Profile& profile, const ModelRun& run) {
  LayerShape layer = model.layer;
  if (run.seq > 0) layer.seq = run.seq;
  ParallelShape parallel = model.parallel;
  parallel.nodes = run.nodes > 0 ? run.nodes : profile.nodes;
  parallel.ranks_per_node = profile.ranks_per_node;
  parallel.pp = run.stages;
  parallel.ep = parallel.nodes / run.stages;  // every stage spreads all experts over its own nodes
  return complete(layer, parallel, Rounding::exact);
}

}  // namespace

std::string ModelRun::name() const { return fmt::format("{} on {}", model, cluster); }

StepSeconds step_seconds(const ModelRun& run, const std::vector<std::string>& schedules, const Assumptions* assumed,
                         std::set<std::string>& missing) {
  const Profile profile = with_assumed(find_profile(run.cluster), assumed);
  const Model model = on_cluster(fsmoe_model(run.model), run.cluster);
  const LayerCase shape = layer_case(model, profile, run);
  const ModelShape whole{shape, model.layers, run.micro_batches, PipelineOrder::gpipe};
  ModelSearch search;
  StepSeconds steps;
  for (const std::string& schedule : schedules)
    steps[schedule] = step_from_print(search, schedule, {profile, assumed, missing}, whole);
  return steps;
}

std::optional<double> speedup_of(const StepSeconds& steps, const std::string& schedule, const std::string& over) {
  const auto faster = steps.at(schedule), slower = steps.at(over);
  return faster && slower ? std::optional(*slower / *faster) : std::nullopt;
}

const std::vector<std::string>& figure_schedules() {
  static const std::vector<std::string> kNames{"ds-moe",       "ds-moe-replicated", "tutel", "tutel-improved",
                                               "pipemoe+lina", "fsmoe-no-iio",      "fsmoe"};
  return kNames;
}

std::vector<std::string> model_conventions() {
  return {
      "Models of section 6.4: B = 1, k = 2, f = 1.2, E = nodes, MP = ESP = GPUs of a node, unrounded capacity. L = "
      "1024 "
      "on testbed A and 256 on B, Mixtral-7B with 7 layers on B and Mixtral-22B with 33 on A, where not varied.",
      "A step is the replay of the whole model's plan: gradients may be sent once they are made, those of the first "
      "layers in the tail; embedding, output, gates' and norms' sums and the optimizer are left out.",
      "testbed-a (driver's order, per element; attention by gemm), testbed-b (as printed, per byte; attention by the "
      "driver's fit); gemm's beta per FLOP; order and gate beyond its GEMM cost nothing.",
      "ds-moe: FSMoE's layer, everything in sequence. ds-moe-replicated: tokens replicated over MP and partial sums "
      "added by an AllReduce inside the node, as the authors' driver feeds DeepSpeed-MoE. Which of them the figures "
      "show is not said. No paper prints that AllReduce: it is left open unless an assumption file has it derived."};
}

}  // namespace moe::reproduce
