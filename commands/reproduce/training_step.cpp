// Predicts a training step from a published row. A long step is extrapolated from two short ones: once the pipeline is
// full, every further micro-batch takes as long as the one before.
#include <algorithm>
#include <cmath>

#include "commands/reproduce/training.h"
#include "commands/shared/chosen_model.h"
#include "moe/base/check.h"
#include "moe/schedule/model_plan.h"
#include "moe/simulator/fluid_replay.h"
#include "moe/simulator/simulator.h"

namespace moe::reproduce {
namespace {

// Share of the exchanges' time that Megatron-Core's overlap of micro-batches hides beside GEMMs and attention. NVIDIA
// profiled it for Qwen3-30B-A3B with EP 16 and HybridEP on 16 H100 (Megatron-Bridge at 067f987df,
// skills/nemo-mbridge-perf-moe-optimization-workflow).
constexpr double kHiddenExchanges = 0.3655;

std::string_view computation_cost(TaskPart part) {
  switch (part) {
    case TaskPart::attention:
      return "attention";
    case TaskPart::experts:
      return "experts";
    case TaskPart::shared_expert:
    case TaskPart::feed_forward:
      return "dense";
    case TaskPart::gate:
      return "gate";
    case TaskPart::permute:
      return "permute";
    case TaskPart::ends:
      return "head";
    case TaskPart::stages:
    case TaskPart::gradients:
    case TaskPart::gradient_norm:
    case TaskPart::optimizer:
    case TaskPart::weights:
    case TaskPart::offload:
    case TaskPart::serving:
      break;
  }
  return "optimizer";
}

std::string_view cost_of(TaskKind kind) {
  if (computes(kind)) return computation_cost(part_of(kind));
  if (operation_of(kind) == TaskOperation::alltoall) return "alltoall";
  if (part_of(kind) == TaskPart::stages) return "sends";
  return is_of_layer(kind) || is_end(kind) ? "tp" : "optimizer";
}

/// Seconds of a step, and the costs of its busiest stage by kind.
struct Step {
  double seconds = 0, busy_s = 0;
  std::map<std::string_view, double> costs = {};

  /// Returns this step extended `count` times by the difference to a step with fewer micro-batches.
  Step continued(const Step& shorter, double count) const {
    Step longer;
    const auto on = [&](double value, double before) { return value + count * (value - before); };
    longer.seconds = on(seconds, shorter.seconds);
    longer.busy_s = on(busy_s, shorter.busy_s);
    for (const auto& [cost, value] : costs) longer.costs[cost] = on(value, shorter.costs.at(cost));
    return longer;
  }
};

// Returns the seconds in which at least one of these tasks runs.
double covered_s(std::vector<std::pair<double, double>> spans) {
  std::ranges::sort(spans);
  double covered = 0, end = 0;
  for (const auto& [from, to] : spans) {
    covered += std::max(0.0, to - std::max(from, end));
    end = std::max(end, to);
  }
  return covered;
}

Step replayed(const LayerPricer& pricer, ModelShape model, int micro_batches) {
  const Schedule& schedule = find_schedule("ds-moe");
  model.micro_batches = micro_batches;
  ModelDecision decision;
  decision.backwards.resize(decided_layers(model));
  const Plan plan = timed_model_plan(schedule, model, decision);
  const Timeline timeline = timeline_of(plan, price(pricer, plan), pricer.profile().contention);
  const size_t stages = static_cast<size_t>(model.shape.parallel.pp);
  std::vector<std::vector<std::pair<double, double>>> spans(stages);
  std::vector<std::map<std::string_view, double>> costs(stages);
  for (const Task& task : plan.tasks()) {
    const Lane& lane = plan.structure->lanes[task.lane];
    if (task.kind == TaskKind::recv) continue;  // only waits
    spans[lane.stage].emplace_back(timeline.start_s[task.id], timeline.end_s[task.id]);
    costs[lane.stage][cost_of(task.kind)] += timeline.end_s[task.id] - timeline.start_s[task.id];
  }
  Step step{.seconds = timeline.makespan_s};
  for (size_t stage = 0; stage < stages; ++stage) {
    const double busy = covered_s(spans[stage]);
    if (busy <= step.busy_s) continue;
    step.busy_s = busy;
    step.costs = costs[stage];
  }
  for (const std::string_view cost : kStepCosts) step.costs.try_emplace(cost, 0);
  return step;
}

// Returns the step of all of the model's micro-batches.
Step whole_step(const LayerPricer& pricer, const ModelShape& model) {
  check_stages(model.split(), model.order, model.micro_batches);
  const int stages = model.shape.parallel.pp, count = model.micro_batches;
  const int shorter = std::min(count, 2 * stages), longer = std::min(count, 3 * stages);
  Step step = replayed(pricer, model, longer);
  if (count > longer)
    step = step.continued(replayed(pricer, model, shorter), static_cast<double>(count - longer) / stages);
  step.costs["bubble"] =
      std::max(0.0, step.seconds - step.busy_s);  // clamped, because rounding may give a negative value
  return step;
}

// Returns the least number of layers, at least the model's, that its virtual stages share evenly, as plans of virtual
// stages require.
int layers_in_whole_chunks(const ModelShape& model) {
  if (model.split().virtual_stages == 1) return model.layers;
  const int chunks = model.split().chunks();
  return (model.layers + chunks - 1) / chunks * chunks;
}

/// Throws Unsupported with a reason if no plan or price exists for the run.
void check_run(const PublishedRun& run) {
  require<Unsupported>(run.precision == "bf16", "no prices of {}, only of bf16", run.precision);
  require<Unsupported>(run.overlap == "none" || run.overlap == "1f1b-ep", "no plan of overlap {}", run.overlap);
  require<Unsupported>(run.dispatcher == "alltoall" || run.dispatcher == "deepep", "no prices of dispatcher {}",
                       run.dispatcher);
  const int replica = run.tp * run.cp * run.pp;
  require<Unsupported>(
      replica > 0 && run.micro_batch > 0 && run.gpus % replica == 0 &&
          run.global_batch % (run.gpus / replica * run.micro_batch) == 0,
      "{} GPUs and {} samples are no whole number of replicas of TP {} CP {} PP {} with micro-batches of {}", run.gpus,
      run.global_batch, run.tp, run.cp, run.pp, run.micro_batch);
  const int samples = run.global_batch / (run.gpus / replica);  // samples of a replica
  require<Unsupported>(
      run.pipeline_batch >= 0 &&
          (run.pipeline_batch == 0 || (samples % run.pipeline_batch == 0 && run.pipeline_batch % run.micro_batch == 0)),
      "{} samples of a replica are no whole number of pipeline_batch {}, or that of micro-batches of {}", samples,
      run.pipeline_batch, run.micro_batch);
}

commands::Selection selection_of(const PublishedRun& run) {
  std::string cluster = run.gpu;
  std::ranges::transform(cluster, cluster.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  commands::Selection selection;
  selection.cluster = cluster + (run.dispatcher == "deepep" ? "-deepep-8-nodes" : "-8-nodes");
  selection.nodes = std::max(1, run.gpus / kNodeRanks);
  selection.nearest = true;
  commands::LayerFlags& layer = selection.layer;
  layer.fields.set(&LayerShape::batch, run.micro_batch);
  layer.fields.set(&LayerShape::seq, run.seq);
  layer.dp = run.gpus / (run.tp * run.cp * run.pp);
  layer.cp = run.cp;
  layer.mp = run.tp;
  layer.pp = run.pp;
  layer.ep = run.ep;
  layer.esp = run.etp;
  layer.zero = 1;
  layer.recompute = run.recompute == "full" ? Recompute::full : Recompute::selective;
  return selection;
}

std::vector<std::string> approximations(const PublishedRun& run) {
  std::vector<std::string> notes;
  if (run.fsdp > 0)
    notes.push_back(
        fmt::format("FSDP over {} ranks is modelled as ZeRO 1; weight gathers overlap with computation", run.fsdp));
  if (run.cp > 1)
    notes.push_back(fmt::format("CP {}: keys and values are gathered before attention, counted as tp", run.cp));
  if (run.overlap != "none")
    notes.push_back(
        fmt::format("1f1b-ep: another micro-batch's computation hides {:.2f} % of the exchanges, as NVIDIA profiled "
                    "Qwen3-30B-A3B on 16 H100 (Megatron-Bridge)",
                    100 * kHiddenExchanges));
  if (run.recompute != "none" && run.recompute != "full")
    notes.push_back(fmt::format("recomputation of {} has no price", run.recompute));
  return notes;
}

// Returns how often a step fills and drains the pipeline.
int pipeline_runs(const PublishedRun& run, int replicas) {
  return run.pipeline_batch > 0 ? run.global_batch / (replicas * run.pipeline_batch) : 1;
}

}  // namespace

PredictedStep predicted_step(const PublishedRun& run) {
  PredictedStep out;
  out.notes = approximations(run);
  try {
    check_run(run);
    const commands::Selection selection = selection_of(run);
    const Profile profile = commands::chosen_profile(selection);
    const int dp = *selection.layer.dp, count = run.global_batch / (dp * run.micro_batch);
    commands::ModelFlags flags;
    flags.model = run.model;
    flags.micro_batches = count;
    commands::ChosenModel chosen = commands::chosen_model(flags, selection, profile);
    chosen.model.order = PipelineOrder::one_f_one_b;
    add_end_tasks(chosen.model, chosen.vocabulary);
    const LayerPricer pricer(profile, chosen.model.shape, commands::pricing_of(selection));
    ModelShape in_chunks = chosen.model;
    in_chunks.virtual_stages = std::max(1, run.vp);
    in_chunks.layers = layers_in_whole_chunks(in_chunks);
    Step step = whole_step(pricer, in_chunks);
    if (const int runs = pipeline_runs(run, dp); runs > 1) {
      ModelShape one_run = in_chunks;
      one_run.micro_batches = count / runs;
      step.costs["bubble"] = runs * whole_step(pricer, one_run).costs["bubble"];
      out.notes.push_back(
          fmt::format("the pipeline is drained after {} of {} micro-batches", one_run.micro_batches, count));
    }
    if (in_chunks.layers != chosen.model.layers) {
      const double bubble_s = step.costs["bubble"];
      step = whole_step(pricer, chosen.model);
      step.costs["bubble"] = bubble_s;
      out.notes.push_back(fmt::format("virtual stages: the bubble is that of {} layers, which {} chunks share evenly",
                                      in_chunks.layers, in_chunks.split().chunks()));
    }
    out.step_s = step.busy_s + step.costs["bubble"];
    out.costs = step.costs;
    out.passes = static_cast<double>(max_layers(chosen.model.split())) * count;
    if (run.overlap == "1f1b-ep") {  // all except those of the first and the last micro-batch
      double computing = 0;
      for (const std::string_view cost : {"attention", "experts", "dense", "gate", "permute", "head"})
        computing += step.costs[cost];
      out.hidden_s = std::min(kHiddenExchanges * step.costs["alltoall"], computing) * (count - 1) / count;
      *out.step_s -= out.hidden_s;
    }
    std::ranges::copy(texts_of(pricer.notes()), std::back_inserter(out.notes));
  } catch (const Unsupported& error) {
    out.reason = error.what();
  } catch (const BadInput& error) {
    out.reason = error.what();
  }
  return out;
}

double tokens_per_gpu(const PublishedRun& run, double step_s) {
  return static_cast<double>(run.global_batch) * run.seq / run.gpus / step_s;
}

std::optional<double> kendall_tau(std::span<const double> measured, std::span<const double> predicted) {
  int pairs = 0, agreeing = 0;
  for (size_t i = 0; i < measured.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      if (std::abs(measured[i] / measured[j] - 1) <= kTie) continue;
      ++pairs;
      agreeing += (measured[i] > measured[j]) == (predicted[i] > predicted[j]) ? 1 : -1;
    }
  if (pairs == 0) return std::nullopt;
  return static_cast<double>(agreeing) / pairs;
}

}  // namespace moe::reproduce
