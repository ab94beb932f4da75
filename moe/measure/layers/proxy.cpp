#include "moe/measure/layers/proxy.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <numeric>

#include "moe/base/check.h"
#include "moe/base/statistics.h"
#include "moe/layer/layer_device.h"
#include "moe/measure/layers/overlap.h"
#include "moe/schedule/schedule.h"
#include "moe/simulator/slowdown.h"

namespace moe::measure {
namespace {

constexpr int64_t kModelDim = 64, kHeads = 4, kTokensPerSample = 32, kMinRows = 4;

int at_most_two(int nominal) { return nominal > 1 ? 2 : 1; }

// Returns the largest multiple of `step` up to `width`, but at least `step`.
int64_t whole_steps(int64_t width, int64_t step) { return std::max(step, width / step * step); }

// Returns a case with the groups of `parallel`, small sizes in the proportions of `nominal`, and few tokens.
LayerCase shrunk(const LayerCase& nominal, const ParallelShape& parallel, int fewest_rows) {
  LayerShape layer = nominal.layer;
  layer.heads = std::max<int64_t>(kHeads, parallel.mp);
  layer.kv_heads =
      nominal.layer.kv_heads < nominal.layer.heads ? std::max<int64_t>(layer.heads / 2, parallel.mp) : layer.heads;
  const int64_t block = block_of(layer.ffn), width = kModelDim / kHeads * layer.heads;
  layer.model_dim = whole_steps(width, std::lcm(layer.heads, block));
  // Keeps the ratio of the heads' total width to M. Rotary positions need even widths.
  const auto shrunk_head = [&](int64_t head, int64_t step) {
    return whole_steps(nominal.layer.heads * head * layer.model_dim / (nominal.layer.model_dim * layer.heads), step);
  };
  if (layer.head_dim > 0) layer.head_dim = shrunk_head(layer.head_dim, 2);
  if (is_latent(layer)) {
    for (int64_t LayerShape::*rank : {&LayerShape::q_lora_rank, &LayerShape::kv_lora_rank})
      if (layer.*rank > 0) layer.*rank = whole_steps(layer.*rank * layer.model_dim / nominal.layer.model_dim, 1);
    layer.qk_nope_head_dim = shrunk_head(layer.qk_nope_head_dim, 1);
    layer.qk_rope_head_dim = shrunk_head(layer.qk_rope_head_dim, 2);
    layer.v_head_dim = shrunk_head(layer.v_head_dim, 1);
  }
  const double scale = static_cast<double>(nominal.layer.hidden) / static_cast<double>(nominal.layer.model_dim);
  const auto hidden = std::llround(static_cast<double>(layer.model_dim) * scale);
  layer.hidden = whole_steps(hidden, block * parallel.esp);
  const auto shared = std::llround(static_cast<double>(nominal.layer.shared_hidden * layer.hidden) /
                                   static_cast<double>(nominal.layer.hidden));
  if (nominal.layer.shared_hidden > 0) layer.shared_hidden = whole_steps(shared, block * parallel.mp);
  layer.experts = nominal.layer.experts / nominal.parallel.ep * parallel.ep;
  layer.top_k = std::min(nominal.layer.top_k, layer.experts);
  clear_planned_only_fields(layer);
  const auto rows = static_cast<double>(std::max<int64_t>(fewest_rows, kMinRows));
  const double tokens = rows * parallel.mp * parallel.cp * static_cast<double>(layer.experts) /
                        (static_cast<double>(layer.top_k) * layer.capacity_factor.value_or(1.0));
  const int64_t cuts = parallel.cp > 1 ? int64_t{2} * parallel.cp : layer.parts;  // pieces of a sample
  layer.seq = cuts > 1 ? whole_steps(kTokensPerSample, cuts * parallel.mp) : kTokensPerSample;
  if (layer.window > 0)  // keeps the ratio of the window to the sample
    layer.window = std::max<int64_t>(1, layer.window * layer.seq / nominal.layer.seq);
  layer.batch = static_cast<int64_t>(std::ceil(tokens / static_cast<double>(layer.seq)));
  const Rounding rounding = nominal.rounding == Rounding::exact ? Rounding::ragged : nominal.rounding;
  LayerCase small = complete(layer, parallel, rounding);
  // More than once if Tutel's capacity rounds down.
  while (static_cast<double>(capacity_rows(small)) < rows) ++small.layer.batch;
  small.row_multiple = nominal.row_multiple;
  return small;
}

// Returns a hidden size that is shrunk as much as the experts' hidden size and that MP divides.
int64_t shrunk_hidden(int64_t hidden, const LayerCase& nominal, const LayerCase& small) {
  const auto shrunk =
      std::llround(static_cast<double>(hidden * small.layer.hidden) / static_cast<double>(nominal.layer.hidden));
  return whole_steps(shrunk, block_of(small.layer.ffn) * small.parallel.mp);
}

int64_t proxy_bytes(const Plan& proxy, const LayerCases& cases, const Gradient& gradient) {
  const LayerCase& c = cases.at(gradient.layer);
  if (proxy.vocabulary > 0 && proxy.is_end(gradient.layer)) {
    const StepWeights& end = gradient.layer < 0 ? proxy.ends.embedding : proxy.ends.head;
    return gradient.is_replicated ? end_norm_bytes(c, end) : end_gradient_bytes(c, end);
  }
  if (gradient.experts) return expert_gradient_bytes(c);
  return gradient.is_replicated ? stage_gradient_bytes(c) : gradient_bytes(c);
}

}  // namespace

LayerCase proxy_case(const LayerCase& nominal, int degree_forward, int degree_backward, int max_packing) {
  const ParallelShape& p = nominal.parallel;
  ParallelShape parallel;
  parallel.ep_inside = p.ep_inside;
  parallel.recompute = p.recompute;
  parallel.offload = p.offload;
  parallel.zero = p.zero;
  parallel.nodes = kProxyNodes * p.pp;
  parallel.pp = p.pp;
  parallel.ranks_per_node = kProxyRanksPerNode;
  parallel.cp = p.ring_blocks() > 0 ? p.cp : at_most_two(p.cp);  // the number of a ring's tasks is that of its ranks
  parallel.cp_exchange = p.cp_exchange;
  parallel.mp = at_most_two(p.mp);
  constexpr int kMax = kProxyNodes * kProxyRanksPerNode;
  require<Unsupported>(p.ring_blocks() * parallel.mp <= kMax,
                       "cp-exchange: found a ring of {}, with MP {}; an emulated cluster runs it on {} ranks, MP as {}",
                       p.cp, p.mp, kMax, parallel.mp);
  parallel.ep = std::max(at_most_two(p.ep), max_packing);
  parallel.esp = at_most_two(p.esp);
  return shrunk(nominal, parallel, std::max(degree_forward, degree_backward));
}

int max_proxy_packing(const LayerCase& nominal) {
  const ParallelShape& p = nominal.parallel;
  const int shared = p.ring_blocks() > 0 ? p.cp : at_most_two(p.cp);
  int most = kProxyNodes * kProxyRanksPerNode / shared / at_most_two(p.mp) / at_most_two(p.esp);
  while (most > 1 && p.ep % most != 0) most /= 2;
  return most;
}

LayerCase small_case(const LayerCase& nominal, int degree_forward, int degree_backward) {
  return shrunk(nominal, nominal.parallel, std::max(degree_forward, degree_backward));
}

double reference_flops(const LayerCase& shape) {
  const LayerShape& layer = shape.layer;
  const auto m = static_cast<double>(layer.model_dim), h = static_cast<double>(layer.hidden);
  const auto seq = static_cast<double>(layer.seq), tokens = static_cast<double>(layer.batch) * seq * shape.parallel.dp;
  const auto heads = static_cast<double>(attention_width(layer) + attention_output_width(layer));
  const double attention = 2 * m * heads + seq * heads;
  const double experts =
      static_cast<double>(layer.top_k) * layer.capacity_factor.value_or(1) * gemms_of(layer.ffn) * m * h;
  const double shared = gemms_of(layer.ffn) * m * static_cast<double>(layer.shared_hidden);
  return 3 * kFlopsPerMac * tokens * (attention + experts + shared);  // forward and backward, which has twice as many
}

namespace {

// Returns the bytes of a slice with the gradients of a stage's replicated weights. Such a slice has those of all layers
// and is never cut.
int64_t replicated_bytes(const Plan& plan, const GradientSlice& slice) {
  int64_t bytes = 0;
  for (auto g = static_cast<size_t>(slice.gradient); g < plan.gradients.size(); ++g) {
    const bool end = plan.is_end(plan.gradients[g].layer);
    if (!plan.gradients[g].is_replicated || (g > static_cast<size_t>(slice.gradient) && end)) break;
    bytes += plan.gradients[g].bytes;
  }
  return bytes;
}

// Returns the proxy's offset that corresponds to the nominal plan's offset `at` into the gradients from `first` on:
// whole gradients before it, plus the same share of the gradient at it, rounded to `grain` bytes.
int64_t scaled_offset(const Plan& nominal, const Plan& proxy, int first, int64_t at, int64_t grain) {
  int64_t passed = 0;
  for (auto g = static_cast<size_t>(first);; ++g) {
    const int64_t all = nominal.gradients[g].bytes, bytes = proxy.gradients[g].bytes;
    if (at <= all || g + 1 == proxy.gradients.size()) {
      const double share = static_cast<double>(at) / static_cast<double>(all);
      return passed + std::llround(share * static_cast<double>(bytes / grain)) * grain;
    }
    at -= all;
    passed += bytes;
  }
}

}  // namespace

Plan proxy_plan(const Plan& nominal, const LayerCase& proxy, int64_t vocabulary) {
  Plan plan = nominal;
  plan.shape = proxy;
  plan.rows = padded_rows(proxy);
  if (nominal.vocabulary > 0) {
    plan.vocabulary = vocabulary;
    plan.ends = end_weights(proxy, vocabulary, plan.step.tied);
  }
  const Groups sizes = groups_of(proxy.parallel);
  for (size_t k = 0; k < sizes.size(); ++k)  // groups keep the networks of the nominal plan
    if (plan.groups[k].network != Network::none && sizes[k].size > 1) plan.groups[k].size = sizes[k].size;
  if (plan.dense.hidden > 0) plan.dense.hidden = shrunk_hidden(plan.dense.hidden, nominal.shape, proxy);
  const LayerCases cases(plan.shape, plan.dense, plan.whole);
  const int64_t grain = bytes_of(proxy.layer.dtype);
  for (Gradient& gradient : plan.gradients) gradient.bytes = proxy_bytes(plan, cases, gradient);
  for (GradientSlice& slice : plan.slices) {
    if (plan.gradients[slice.gradient].is_replicated) {
      slice.end = replicated_bytes(plan, slice);
      continue;
    }
    slice.begin = scaled_offset(nominal, plan, slice.gradient, slice.begin, grain);
    slice.end = scaled_offset(nominal, plan, slice.gradient, slice.end, grain);
  }
  set_works(plan);
  check_plan(plan);
  return plan;
}

std::string proxy_ranks() { return fmt::format("{} x {} threads", kProxyNodes, kProxyRanksPerNode); }

std::vector<Plan> emulated_plans(const std::vector<const Plan*>& nominal, DeviceKind device, int64_t vocabulary,
                                 int max_packing) {
  int forward = 1, backward = 1;
  for (const Plan* plan : nominal) {
    forward = std::max(forward, plan->degree_forward);
    backward = std::max(backward, plan->degree_backward);
  }
  LayerCase proxy = proxy_case(nominal.front()->shape, forward, backward, max_packing);
  DType& dtype = proxy.layer.dtype;
  if (!supports_dtype(device, dtype)) dtype = accumulation_type(dtype);
  std::vector<Plan> plans;
  for (Decision decision; const Plan* plan : nominal) {
    proxy.row_multiple = plan->shape.row_multiple;
    plans.push_back(proxy_plan(*plan, decided_case(proxy, decision), vocabulary));
    decision.packing *= 2;
  }
  return plans;
}

Plan proving_plan(const Plan& nominal, int64_t vocabulary) {
  return proxy_plan(nominal, small_case(nominal.shape, nominal.degree_forward, nominal.degree_backward), vocabulary);
}

namespace {

// Seconds; a pass of the fastest schedule must not be shorter, so that a late end is about 1 % of it.
constexpr double kMinPassS = 0.06;
constexpr double kTaskOfPassS = 0.8e-3;  // least seconds of a pass per task of its longest queue
constexpr double kMinTaskS = 0.1e-3;     // seconds; a shorter task would end before its thread wakes up
constexpr double kWorkMargin = 4;        // a pace is at least this many times the work under it
// Kinds with at most this share of a plan's tasks are rare, and so are those of a step.
constexpr double kRare = 1.0 / 400;
// Limit for the share of a pass that a rare kind's work, or all late wake-ups, may take.
constexpr double kRareShare = 1e-3;

// Returns the dilation that a kind's work requires. Rare kinds may exceed their paces by a negligible share of the
// pass; otherwise one short sum per step would stretch the whole model.
double factor_of(double ratio, bool rare, double work_s, double pass_s) {
  const double wanted = kWorkMargin * ratio;
  return rare ? std::min(wanted, work_s / (kRareShare * pass_s)) : wanted;
}

std::string words_for(const Plan& plan, Phase phase, TaskKind kind) {
  return fmt::format("{} {} of {}", name_of(phase), name_of(kind), plan.schedule);
}

double pass_dilation(const PlannedRun& run) {
  size_t longest = 0;
  for (const Lane& lane : run.plan.structure->lanes) longest = std::max(longest, lane.queue.size());
  const double min_s = std::max(kMinPassS, kTaskOfPassS * static_cast<double>(longest));
  return min_s / (run.forward_s + run.backward_s);
}

// Returns the smallest dilation with which tasks are long enough. Some of the shortest tasks may be shorter, if the
// late wake-ups of their threads are a negligible share of a pass.
Dilation task_dilation(const PlannedRun& run) {
  std::vector<std::pair<double, const Task*>> tasks;
  for (const Task& task : run.plan.tasks())
    if (const double seconds = run.task_seconds[task.id]; seconds > 0) tasks.emplace_back(seconds, &task);
  std::ranges::stable_sort(tasks, {}, [](const auto& timed) { return timed.first; });
  // Share of a pass per shorter task.
  const double waking = kMinTaskS / (kRareShare * (run.forward_s + run.backward_s));
  Dilation least{std::numeric_limits<double>::max(), {}};
  double shorter = 0;
  for (const auto& [seconds, task] : tasks) {
    const double factor = std::max(kMinTaskS / seconds, shorter++ * waking);
    if (factor >= least.factor) continue;
    least = {factor, "the shortest tasks, up to " + words_for(run.plan, task->phase, task->kind)};
  }
  return tasks.empty() ? Dilation{0, {}} : least;
}

}  // namespace

Dilation min_dilation(const std::vector<PlannedRun>& planned) {
  Dilation least{0, "the shortest pass"};
  for (const PlannedRun& run : planned) {
    if (const Dilation tasks = task_dilation(run); tasks.factor > least.factor) least = tasks;
    if (const double pass = pass_dilation(run); pass > least.factor) least = {pass, "the shortest pass"};
  }
  return least;
}

Dilation choose_dilation(const std::vector<PlannedRun>& planned, const std::vector<std::vector<RankTimes>>& unpaced) {
  Dilation chosen = min_dilation(planned);
  for (size_t s = 0; s < planned.size(); ++s) {
    std::map<std::pair<Phase, TaskKind>, std::vector<double>> ratios;
    std::map<std::pair<Phase, TaskKind>, double> seconds;  // modelled seconds of all tasks, by phase and kind
    for (const Task& task : planned[s].plan.tasks()) {
      const double modelled = planned[s].task_seconds[task.id];
      if (modelled <= 0) continue;
      seconds[{task.phase, task.kind}] += modelled;
      for (const RankTimes& pass : unpaced[s])
        ratios[{task.phase, task.kind}].push_back(own_seconds(task, pass) / modelled);
    }
    const auto measured = static_cast<double>(planned[s].plan.tasks().size() * unpaced[s].size());
    const double pass_s = planned[s].forward_s + planned[s].backward_s;
    for (auto& [of, values] : ratios) {
      const double share = static_cast<double>(values.size()) / measured, ratio = median(std::move(values));
      const bool rare = share <= kRare || of.first == Phase::step;
      const double factor = factor_of(ratio, rare, ratio * seconds[of], pass_s);
      if (factor > chosen.factor) chosen = {factor, "the work of " + words_for(planned[s].plan, of.first, of.second)};
    }
  }
  return chosen;
}

std::unique_ptr<Pacer> make_pacer(const PlannedRun& run, int ranks, const Dilation& dilation) {
  if (!run.slowdown) return nullptr;
  Pacer::Stall stall;
  if (run.stall) stall = [of = run.stall, dilation](int slowed, int by) { return dilation.factor * of(slowed, by); };
  return std::make_unique<Pacer>(ranks, kResources, run.slowdown, stall);
}

}  // namespace moe::measure
