#include "reproduce/lina_models.h"

#include <algorithm>
#include <map>

#include "moe/base/check.h"
#include "moe/base/statistics.h"
#include "moe/plan/memory.h"
#include "moe/plan/model_file.h"
#include "moe/search/variants.h"
#include "reproduce/printed_rows.h"

namespace moe::reproduce {
namespace {

constexpr int kGpusPerNode = 4, kGpus = 16;  // section 7.1
constexpr double kGpuBytes = 40e9;
constexpr std::string_view kLinaCluster = "lina";

double assumed_value(const Assumptions& assumed, std::string_view name) {
  const auto value = assumed.value(name);
  require<BadInput>(value.has_value() && *value > 0, "{}: value: found no {} above 0, expected one", assumed.file,
                    name);
  return *value;
}

bool is_alltoall(const Task& task) { return task.kind == TaskKind::dispatch || task.kind == TaskKind::combine; }

// Returns the time from a layer's first chunked task to its last, summed over a phase's layers.
double moe_seconds(const ModelResult& result, Phase phase) {
  std::map<int, std::pair<double, double>> spans;
  for (const Task& task : result.plan.tasks()) {
    if (task.phase != phase || !is_chunked(task.kind)) continue;
    const size_t id = static_cast<size_t>(task.id);
    const double start = result.timeline.start_s[id], end = result.timeline.end_s[id];
    const auto [it, fresh] = spans.try_emplace(task.layer, start, end);
    if (!fresh) it->second = {std::min(it->second.first, start), std::max(it->second.second, end)};
  }
  double seconds = 0;
  for (const auto& [layer, span] : spans) seconds += span.second - span.first;
  return seconds;
}

LinaStep measured(const ModelResult& result, const std::vector<double>& alone_s) {
  LinaStep step{.step_s = result.total_s()};
  step.moe_forward_s = moe_seconds(result, Phase::forward);
  step.moe_backward_s = moe_seconds(result, Phase::backward);
  const Timeline& t = result.timeline;
  std::vector<double> slowdowns;
  double overlap = 0, overlap_forward = 0;
  for (const Task& task : result.plan.tasks()) {
    if (!is_alltoall(task)) continue;
    const size_t id = static_cast<size_t>(task.id);
    const double seconds = t.end_s[id] - t.start_s[id];
    step.alltoall_s += seconds;
    for (const int other : result.plan.structure->lanes.front().queue) {  // computation
      const size_t o = static_cast<size_t>(other);
      const double beside = std::min(t.end_s[id], t.end_s[o]) - std::max(t.start_s[id], t.start_s[o]);
      overlap += std::max(0.0, beside);
      if (task.phase == Phase::forward) overlap_forward += std::max(0.0, beside);
    }
    if (task.phase == Phase::forward) continue;
    step.alltoall_backward_s += seconds;
    slowdowns.push_back(seconds / alone_s[static_cast<size_t>(task.work_class)]);
  }
  if (!slowdowns.empty()) step.slowdown = upper_median(std::move(slowdowns));
  const double forward_s = step.alltoall_s - step.alltoall_backward_s;
  if (step.alltoall_s > 0) step.efficiency = overlap / step.alltoall_s;
  if (forward_s > 0) step.efficiency_forward = overlap_forward / forward_s;
  return step;
}

}  // namespace

double expert_over_alltoall(double layer_share) { return 2 * (1 / layer_share - 1); }

double efficiency_by_share(double layer_share) { return expert_over_alltoall(layer_share) / 2; }

LayerCase lina_case(const std::string& model, int experts, const Assumptions& assumed) {
  LayerShape layer = find_model(model).layer;
  layer.batch = std::max<int64_t>(1, static_cast<int64_t>(assumed_value(assumed, "tokens")) / layer.seq);
  layer.capacity_factor = assumed_value(assumed, "capacity_factor");
  layer.experts = experts;
  layer.top_k = 2;
  ParallelShape p;
  p.ranks_per_node = std::min(experts, kGpusPerNode);
  p.nodes = experts / p.ranks_per_node;
  p.mp = p.esp = 1;
  p.ep = p.dp = experts;
  return complete(layer, p, Rounding::ragged);
}

Profile lina_profile(const std::string& model, const Assumptions& assumed) {
  Profile profile;
  profile.name = kLinaCluster;
  profile.nodes = profile.ranks_per_node = kGpusPerNode;
  profile.memory_bytes = kGpuBytes;
  profile = with_assumed(profile, &assumed);
  const LayerCase shape = lina_case(model, kGpus, assumed);
  const LayerPricer pricer(profile, shape);
  const double alltoall_s =
      pricer.chunk_seconds(TaskKind::dispatch, Phase::forward, static_cast<double>(pricer.rows()));
  ComputeRow expert;
  expert.op = Op::expert;
  expert.ffn = shape.layer.ffn;
  expert.dtype = shape.layer.dtype;
  expert.beta_s_per_flop = alltoall_s * expert_over_alltoall(printed_lina_text("layer_share")) /
                           whole_work(TaskKind::expert, Phase::forward, shape, Flow::sharded).flops;
  profile.compute.push_back(expert);
  return profile;
}

std::optional<LinaStep> lina_step(const LinaRun& run, const Assumptions& assumed, std::set<std::string>& missing) {
  try {
    const Profile profile = lina_profile(run.model, assumed);
    const Model model = find_model(run.model);
    ModelShape shape{lina_case(run.model, run.experts, assumed), run.layers > 0 ? run.layers : model.layers};
    add_ends(shape, model.vocabulary, model.tied_embedding);
    const LayerPricer pricer(profile, shape.shape);
    DegreeChoice choice{.micro_op_bytes = run.micro_op_bytes};
    choice.fits = [&](const LayerCase& packed, Flow flow) {
      const MemoryRequest request{.shape = packed, .layers = shape.layers, .flow = flow};
      return !profile.memory_bytes || !misfit(estimate_memory(request), *profile.memory_bytes);
    };
    const ModelResult result =
        ModelSearch().tune(find_schedule(run.schedule), pricer, shape, partition_strategies().front(), choice);
    LinaStep step = measured(result, price(pricer, result.plan));
    step.packing = run.experts / result.plan.shape.parallel.ep;
    return step;
  } catch (const Unpriced& error) {
    missing.insert(error.what());
  }
  return std::nullopt;
}

LinaRule lina_rule(const std::string& model, int experts, const Assumptions& assumed) {
  const Profile profile = lina_profile(model, assumed);
  const LayerPricer pricer(profile, lina_case(model, experts, assumed));
  const std::vector<LayerResult> all = tune_packings(LayerSearch().replay(find_schedule("lina-packed"), pricer), {});
  return {all.back().decision.packing, all.front().total_s() / all.back().total_s()};
}

}  // namespace moe::reproduce
