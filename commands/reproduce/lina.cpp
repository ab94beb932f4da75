#include "commands/reproduce/lina.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "commands/reproduce/printed_rows.h"
#include "commands/reproduce/study.h"
#include "moe/base/check.h"
#include "moe/base/statistics.h"
#include "moe/plan/memory.h"
#include "moe/search/layer_search.h"
#include "moe/shape/model_file.h"

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

// Returns the seconds from a layer's first chunked task to its last, summed over a phase's layers.
double moe_seconds(const ModelResult& result, Phase phase) {
  std::map<int, std::pair<double, double>> spans;
  for (const Task& task : result.plan.tasks()) {
    if (task.phase != phase || !is_chunked(task.kind)) continue;
    const double start = result.timeline.start_s[task.id], end = result.timeline.end_s[task.id];
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
    const double seconds = t.end_s[task.id] - t.start_s[task.id];
    step.alltoall_s += seconds;
    for (const int other : result.plan.structure->lanes.front().queue) {  // the computing lane
      const double beside = std::min(t.end_s[task.id], t.end_s[other]) - std::max(t.start_s[task.id], t.start_s[other]);
      overlap += std::max(0.0, beside);
      if (task.phase == Phase::forward) overlap_forward += std::max(0.0, beside);
    }
    if (task.phase == Phase::forward) continue;
    step.alltoall_backward_s += seconds;
    slowdowns.push_back(seconds / alone_s[task.id]);
  }
  const auto& lanes = result.plan.structure->lanes;
  for (const int id : lanes.front().queue) step.utilization += (t.end_s[id] - t.start_s[id]) / step.step_s;
  for (size_t lane = 1; lane < lanes.size(); ++lane)
    for (const int id : lanes[lane].queue) step.communication_s += alone_s[id];
  if (!slowdowns.empty()) step.slowdown = upper_median(std::move(slowdowns));
  const double forward_s = step.alltoall_s - step.alltoall_backward_s;
  if (step.alltoall_s > 0) step.efficiency = overlap / step.alltoall_s;
  if (forward_s > 0) step.efficiency_forward = overlap_forward / forward_s;
  return step;
}

}  // namespace

double expert_to_alltoall_ratio(double layer_share) { return 2 * (1 / layer_share - 1); }

double efficiency_by_share(double layer_share) { return expert_to_alltoall_ratio(layer_share) / 2; }

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
  profile = with_assumed_rows(profile, &assumed);
  const LayerCase shape = lina_case(model, kGpus, assumed);
  const LayerPricer pricer(profile, shape);
  const double alltoall_s =
      pricer.chunk_seconds(TaskKind::dispatch, Phase::forward, static_cast<double>(pricer.rows()));
  ComputeRow expert;
  expert.op = Op::expert;
  expert.ffn = shape.layer.ffn;
  expert.dtype = shape.layer.dtype;
  expert.beta_s_per_flop = alltoall_s * expert_to_alltoall_ratio(printed_lina_text("layer_share")) /
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
      return !profile.memory_bytes || !memory_refusal(estimate_memory(request), *profile.memory_bytes);
    };
    const ModelResult result = ModelSearch().tune(find_schedule(run.schedule), pricer, shape, choice);
    LinaStep step = measured(result, price(pricer, result.plan));
    step.packing = run.experts / result.plan.shape.parallel.ep;
    return step;
  } catch (const Unpriced& error) {
    missing.insert(error.what());
  }
  return std::nullopt;
}

std::vector<LinaPacking> lina_packing_steps(const std::string& model, int experts, const Assumptions& assumed) {
  const Profile profile = lina_profile(model, assumed);
  const LayerCase shape = lina_case(model, experts, assumed);
  const LayerPricer pricer(profile, shape);
  std::vector<LinaPacking> found;
  for (const LayerResult& layer : tune_packings(LayerSearch().replay(find_schedule("lina-packed"), pricer), {})) {
    const LayerPricer packed(profile, decided_case(shape, layer.decision));
    const double rows = static_cast<double>(packed.rows()) / layer.decision.degree_forward;
    found.push_back({layer.decision.packing, {}, layer.total_s()});
    if (!packed.has(GroupKind::ep)) continue;
    found.back().times = {.expert_s = packed.chunk_seconds(TaskKind::expert, Phase::forward, rows),
                          .alltoall_s = packed.chunk_seconds(TaskKind::dispatch, Phase::forward, rows)};
  }
  return found;
}

LinaRule lina_rule(const std::string& model, int experts, const Assumptions& assumed) {
  const std::vector<LinaPacking> all = lina_packing_steps(model, experts, assumed);
  return {all.back().packing, all.front().layer_s / all.back().layer_s};
}

MemoryEstimate lina_memory(const std::string& model, int packing, const Assumptions& assumed, Offload offload) {
  const Model file = find_model(model);
  LayerCase shape = decided_case(lina_case(model, kGpus, assumed), {.packing = packing});
  shape.parallel.offload = offload;
  return estimate_memory(
      {.shape = shape, .layers = file.layers, .vocabulary = file.vocabulary, .tied_embedding = file.tied_embedding});
}

// AlltoAlls of one micro-op are not cut, and neither are gradient tensors of up to 30 MB: all but the embedding's.
double lina_concatenation_s(const std::string& model, const Assumptions& assumed) {
  const Model file = find_model(model);
  ModelShape shape{lina_case(model, kGpus, assumed), file.layers};
  add_ends(shape, file.vocabulary, file.tied_embedding);
  const LayerShape& layer = shape.shape.layer;
  const Profile profile = lina_profile(model, assumed);
  const LayerPricer pricer(profile, shape.shape);
  const int64_t width = layer.model_dim * bytes_of(layer.dtype);
  const int64_t alltoall = pricer.rows() * layer.experts * width;
  int64_t bytes = 0;
  if (alltoall > kMicroOpBytes) bytes += 4 * int64_t{file.layers} * alltoall;
  for (const int64_t end : {shape.embedding_gradient_bytes, shape.head_gradient_bytes})
    if (end > kMicroOpBytes) bytes += end;
  return 2 * static_cast<double>(bytes) / assumed_value(assumed, "copy_bytes_per_s");
}

// Returns the conclusions that need only printed numbers.
std::vector<std::string> lina_from_print() {
  const double share = printed_lina_text("layer_share");
  return {
      "The step's printed speedups lie between what its AlltoAll's own speedup would give and what a step without "
      "AlltoAll would: the rest must come from pipelining the experts with the remaining AlltoAll, as the paper says.",
      fmt::format(
          "Figure 2 and Table 3 agree: where AlltoAll is {:.1f} % of a layer's forward, an expert takes at most "
          "{:.3f} of an AlltoAll, and under two of them it keeps computation busy for {:.1f} % of their time.",
          100 * share, expert_to_alltoall_ratio(share), 100 * efficiency_by_share(share)),
      "Table 1's parameters say what its model is: 302 M more for 12 more experts in 12 layers are 2.097 M an expert, "
      "so M = 512 and H = 2048: Transformer-XL as published for enwik8."};
}

// Removing the slowdown of a backward's AlltoAlls saves at most what it cost. With equally many AlltoAlls in either
// phase, a share s of the step and a slowdown w, that is s (w - 1) / (w + 1) of the step.
std::vector<std::string> lina_unexplained(const std::vector<PrintedLina>& printed) {
  const double share = printed_lina_text("step_share_16"), worst = printed_lina_text("slowdown_worst"),
               usual = printed_lina_text("slowdown_median");
  const auto most = [&](double slowdown) { return 1 / (1 - share * (slowdown - 1) / (slowdown + 1)); };
  double speedup = 0, efficient = 0, alltoall_s = 0;
  for (const PrintedLina& row : printed)
    if (row.metric == "priority_and_partition") speedup = std::max(speedup, row.speedup);
  for (const PrintedPipelining& row : printed_lina_table3()) efficient = std::max(efficient, row.with);
  for (const PrintedLinaShare& row : printed_lina_table1())
    if (row.experts == 16 && row.layers == 12) alltoall_s = 1e-3 * row.alltoall_ms / (4 * row.layers);
  const double micro_ops = std::ceil(1 / (1 - efficient));
  const double out_of_node = 1e-9 * 4 * 0.75 * 30e6 * (micro_ops - 1) / alltoall_s;
  const double saved = (1 - 1 / speedup) / share;  // = (w - 1) / (w + 1)
  const std::string priority = fmt::format(
      "Priority and partition alone are printed at up to {:.2f}x. They keep AllReduce out of the backward's AlltoAlls, "
      "which carry as much as before. Were each of those slowed {:.2f}x, the median measured, and AlltoAll {:.1f} % of "
      "the step, its largest share printed, that saved {:.2f}x; were each slowed {:.2f}x, the worst (more than two "
      "lanes' fair share), {:.2f}x; the printed speedup takes {:.1f}x on each. So the rest is not time of AlltoAlls, "
      "and the paper does not say what it is.",
      speedup, usual, 100 * share, most(usual), worst, most(worst), (1 + saved) / (1 - saved));
  const std::string pipelining = fmt::format(
      "If an AlltoAll is cut into n micro-ops, no expert can run beside the first one, nor beside the last one of the "
      "way back, so pipelining is at most (n - 1) / n efficient. {:.0f} % needs {:.0f} micro-ops, so AlltoAlls of more "
      "than {:.0f} MB at 30 MB "
      "each: {:.0f} GB/s out of a node by Table 1's time over 16 GPUs, more than links of 100 Gb/s carry, were there "
      "one a GPU.",
      100 * efficient, micro_ops, 30 * (micro_ops - 1), out_of_node);
  return {priority, pipelining};
}

double lina_gradient_share(const std::string& model, const Assumptions& assumed) {
  const Profile profile = lina_profile(model, assumed);
  const LayerPricer pricer(profile, lina_case(model, kGpus, assumed));
  const double alltoall_s =
      pricer.chunk_seconds(TaskKind::dispatch, Phase::backward, static_cast<double>(pricer.rows()));
  return pricer.gradient_seconds(pricer.gradient_bytes()) / (2 * alltoall_s);
}

// Idea: while AllReduce and an AlltoAll run side by side, their work proceeds at the link's rate in total, however it
// is shared. So AlltoAlls lose at most the time of AllReduce alone. If instead both were w times as slow, AllReduce of
// g seconds would take w g, of which the AlltoAlls would lose w g - g.
std::string lina_slowdowns(const LinaSteps& steps, const Assumptions& assumed) {
  std::string found;
  double least = 9e99, most = 0;
  for (const std::string& model : kLinaModels) {
    const double share = lina_gradient_share(model, assumed);
    least = std::min(least, share);
    most = std::max(most, share);
    const double slowdown = steps.at({model, kGpus, "lina-baseline"}).slowdown;
    found += fmt::format("{}{} {:.2f}x", found.empty() ? "" : ", ", model, slowdown);
  }
  const double usual = printed_lina_text("slowdown_median"), lost = usual - 1;
  return fmt::format(
      "The baseline's backward AlltoAlls are slowed, in the median with 16 experts: {}; the paper measured {:.2f}x. "
      "Here lanes share a link without loss, so that all AlltoAlls of a backward lose at most what AllReduce takes "
      "alone, whichever of them gets more of the link. These layers' gradients take {:.2f} to {:.2f} of the time of "
      "their AlltoAlls, over the same links: at most {:.2f}x in the mean. If half of the AlltoAlls are to be slowed "
      "{:.2f}x, AllReduce must take {:.1f} to {:.1f} times as long; or a link that both use must lose capacity: with "
      "all of the AllReduce beside AlltoAlls, both would be {:.1f}x to {:.1f}x as slow, where halves make 2x and the "
      "paper's worst AlltoAll took {:.2f}x. Priority can therefore save little here.",
      found, usual, least, most, 1 + most, usual, lost / 2 / most, lost / 2 / least, 1 + lost / most, 1 + lost / least,
      printed_lina_text("slowdown_worst"));
}

// Returns the experts per device by Lina's rule alone, and by the replay.
std::string lina_packings(const LinaSteps& steps, const Assumptions& assumed) {
  std::string chosen, rule;
  for (const std::string& model : kLinaModels) {
    const LinaRule alone = lina_rule(model, 16, assumed);
    rule += fmt::format("{}{} of 16 ({:.2f}x)", rule.empty() ? "" : ", ", alone.packing, alone.speedup);
    chosen += fmt::format("{}{} {}", chosen.empty() ? "" : ", ", model, steps.at({model, 16, "lina-packed"}).packing);
  }
  return fmt::format(
      "Experts on a device with 16: {}; the paper settles on 4, 2 and 2. Lina's rule, to pack while an expert's "
      "micro-op is shorter than the AlltoAll's, sees neither the replicas' gradients nor memory: alone it packs {}, "
      "with the speedup of one layer in brackets. lina-packed packs only as far as the simulated time improves and a "
      "rank's 40 GB allow, within which all of these packings fit without offloading. Of 2 experts it packs {}, the "
      "paper both: by the time assumed of an AlltoAll between two GPUs an expert takes longer already.",
      chosen, rule, steps.at({kLinaModels[0], 2, "lina-packed"}).packing);
}

Comparison lina_table4(const LinaSteps& steps, const Assumptions* assumed) {
  Comparison c{.caption = "utilization and peak memory of a GPU with 16 experts (Table 4)",
               .label_names = {"model", "of", "experts a device"},
               .quantity = kShare};
  const std::vector<PrintedPipelining> packings = printed_lina_table3();
  for (const PrintedUtilization& row : printed_lina_table4()) {
    const int packed = std::ranges::find(packings, row.model, &PrintedPipelining::model)->experts_per_device;
    std::optional<double> baseline, lina, memory, memory_lina, kept;
    const Offload offload = row.offloads > 0 ? Offload::experts : Offload::none;
    int ours = 1;
    if (assumed != nullptr) {
      const LinaStep& step = steps.at({row.model, kGpus, "lina-packed"});
      baseline = steps.at({row.model, kGpus, "lina-baseline"}).utilization;
      lina = step.utilization;
      ours = step.packing;
      memory = lina_memory(row.model, 1, *assumed).total() / kGpuBytes;
      memory_lina = lina_memory(row.model, packed, *assumed, offload).total() / kGpuBytes;
      kept = lina_memory(row.model, packed, *assumed).total() / kGpuBytes;
    }
    const std::string both = assumed == nullptr ? fmt::format("{}", packed) : fmt::format("{}, ours {}", packed, ours);
    c.figures.push_back({{row.model, "utilization, baseline", "1"}, "", row.baseline, baseline});
    c.figures.push_back({{row.model, "utilization, Lina", both}, "", row.lina, lina});
    c.figures.push_back({{row.model, "memory, baseline", "1"}, "", row.memory, memory});
    const std::string experts = fmt::format("{}", packed);
    const std::string offloaded = row.offloads > 0 ? "memory, Lina, offloaded" : "memory, Lina";
    c.figures.push_back({{row.model, offloaded, experts}, "", row.memory_lina, memory_lina});
    if (row.offloads > 0)
      c.figures.push_back({{row.model, "memory, Lina, not offloaded", experts}, "", std::nullopt, kept});
  }
  return c;
}

Comparison lina_overheads(const LinaSteps& steps, const Assumptions* assumed) {
  Comparison c{.caption = "overheads of micro-ops with 16 experts, without packing (section 7.2.2)",
               .label_names = {"of", "model"},
               .quantity = {"share", "%", 100, 2}};
  const auto add = [&](const std::string& what, double printed, auto share) {
    double mean = 0;
    std::vector<Figure> models;
    for (const std::string& model : kLinaModels) {
      std::optional<double> ours;
      if (assumed != nullptr)
        ours = share(model, steps.at({model, kGpus, "lina"}), steps.at({model, kGpus, "lina-baseline"}));
      if (ours) mean += *ours / static_cast<double>(kLinaModels.size());
      models.push_back({{what, model}, "", std::nullopt, ours});
    }
    c.figures.push_back({{what, "mean"}, "", printed, assumed == nullptr ? std::nullopt : std::optional(mean)});
    c.figures.insert(c.figures.end(), models.begin(), models.end());
  };
  add("partition and concatenation, of a step", printed_lina_text("partition_share"),
      [&](const std::string& model, const LinaStep& lina, const LinaStep&) {
        return lina_concatenation_s(model, *assumed) / lina.step_s;
      });
  add("communication, longer by", printed_lina_text("micro_op_longer"),
      [](const std::string&, const LinaStep& lina, const LinaStep& baseline) {
        return lina.communication_s / baseline.communication_s - 1;
      });
  return c;
}

TextTable lina_controller(const Assumptions& assumed) {
  TextTable table{
      "experts a device by Lina's packing controller with 16 experts, fed with the replay's micro-ops of a forward",
      {"model", "steps", "experts a device", "expert, ms", "AlltoAll, ms"},
      {}};
  constexpr int kSteps = 30;
  for (const std::string& model : kLinaModels) {
    const std::vector<LinaPacking> all = lina_packing_steps(model, kGpus, assumed);
    PackingController controller(all.back().packing);
    int first = 1;
    for (int step = 1; step <= kSteps; ++step) {
      const LinaPacking& now = *std::ranges::find(all, controller.packing(), &LinaPacking::packing);
      controller.record(now.times);
      if (!controller.end_step(step) && step < kSteps) continue;
      table.rows.push_back({model, fmt::format("{} to {}", first, step), fmt::format("{}", now.packing),
                            fmt::format("{:.3f}", 1e3 * now.times.expert_s),
                            fmt::format("{:.3f}", 1e3 * now.times.alltoall_s)});
      first = step + 1;
    }
  }
  return table;
}

std::string lina_table4_unexplained() {
  std::string grown;
  double gain = 0, more = 0;
  const std::vector<PrintedPipelining> packings = printed_lina_table3();
  for (const PrintedUtilization& row : printed_lina_table4()) {
    const Model model = find_model(row.model);
    const int packed = std::ranges::find(packings, row.model, &PrintedPipelining::model)->experts_per_device;
    const double expert = 2.0 * static_cast<double>(model.layer.model_dim * model.layer.hidden);
    const double states = 1e-9 * 16 * expert * (packed - 1) * model.layers;
    const double printed = 1e-9 * (row.memory_lina - row.memory) * kGpuBytes;
    grown += fmt::format("{}{} {:.1f} GB more, its packed experts' states {:.1f} GB", grown.empty() ? "" : "; ",
                         row.model, printed, states);
    gain += 100 * (row.lina - row.baseline) / 3;
    if (row.model == kLinaModels[2]) more = 100 * (row.memory_lina - row.memory);
  }
  return fmt::format(
      "Table 4's memory grows by more than what is packed. By 16 bytes a parameter, of 40 GB: {}. Moving all of these "
      "parameters to the host would therefore free little: what fills the GPUs is something else, which is not "
      "printed. The text has {:.1f} % more utilization and {:.1f} % more memory (BERT2GPT2), the table {:.1f} and "
      "{:.1f} points.",
      grown, 100 * printed_lina_text("utilization_gain"), 100 * printed_lina_text("memory_gain_bert2gpt2"), gain, more);
}

std::vector<std::string> lina_conventions() {
  return {
      "Whole models, one step, forward and backward, with the gradients of embedding and output projection (one "
      "tensor); experts = GPUs, 4 a node, top-2, no MP; ours are means over the three models, as the paper's. "
      "Transformer-XL: 12 layers of M = 512, H = 2048; GPT-2: 12 of 768, 3072; BERT2GPT2: 24 of them, the decoder's "
      "attention to the encoder left out.",
      "Baseline: lina-baseline, whose gradients share the network with the AlltoAll, each at half speed while both "
      "run. Lina: lina-packed; priority and partition: lina-partition; priority only: lina-priority. Fused gradients "
      "are buckets of 25 MiB within a layer.",
      "alltoall_backward: busy time of the backward's AlltoAlls. MoE layers: from the start of the first AlltoAll to "
      "the end of the last, summed. Pipelining efficiency: computation's busy share while an AlltoAll runs, both "
      "phases.",
      "lina-packed sums the gradients of replicas in micro-ops of their own, each matrix of an expert cut alone; the "
      "fusing of packed experts' kernels (multi-stream execution, section 6.1) changes no time here.",
      "Utilization: computation's busy share of a step. Memory: the estimate of a rank, Adam, with the experts a "
      "device "
      "that Table 3 prints. Offloaded: as by `--offload experts`, with two layers' experts and all of their gradients "
      "on the device, and their optimizer's states on the host.",
      "Overheads: cutting makes views; concatenation reads and writes all bytes of AlltoAlls and gradient tensors that "
      "are cut. Communication: all collectives of a step, each alone, with micro-ops (lina) over without "
      "(lina-baseline).",
      "The packing controller decides at step 10 and at every fourth step from there on. Here it is fed with the "
      "replay's times; `modelbench --online-packing` feeds it with those of its steps and moves the experts."};
}

// Lina's training speedups (section 7.2). The paper prints none of its coefficients, batches or sequence lengths. Its
// numbers alone only bound the effect of its AlltoAll's speedup (Table 1's shares), and show that an expert takes a
// third of the AlltoAlls beside it (Figure 2 and Table 3 agree); the steps themselves need assumptions.

namespace {

const std::array<int, 4> kExperts{2, 4, 8, 16};
const std::array<std::string, 6> kTrained{"lina-baseline",  "lina-fixed", "lina-priority",
                                          "lina-partition", "lina",       "lina-packed"};
constexpr std::array<int, 6> kPartitionMb{10, 20, 30, 50, 70, 100};

// Returns all steps; none without assumptions, or if a row is missing.
LinaSteps all_steps(const Assumptions* assumed, std::set<std::string>& missing) {
  LinaSteps steps;
  if (assumed == nullptr) return steps;
  for (const std::string& model : kLinaModels)
    for (const int experts : kExperts)
      for (const std::string& schedule : kTrained)
        if (const auto step = lina_step({model, experts, schedule}, *assumed, missing))
          steps[{model, experts, schedule}] = *step;
  if (!missing.empty()) steps.clear();
  return steps;
}

double seconds_of(std::string_view metric, const LinaStep& step) {
  if (metric == "forward_moe_layer") return step.moe_forward_s;
  if (metric == "backward_moe_layer") return step.moe_backward_s;
  if (metric == "alltoall_backward") return step.alltoall_backward_s;
  return step.step_s;
}

std::string schedule_of(std::string_view metric) {
  if (metric == "priority_only_mean") return "lina-priority";
  return metric == "priority_and_partition" ? "lina-partition" : "lina-packed";
}

// Returns the mean over the models, like the paper; none if a model has no exchange left.
std::optional<double> our_value(const PrintedLina& row, const LinaSteps& steps) {
  double sum = 0;
  int count = 0;
  for (const std::string& model : kLinaModels)
    for (const int experts : kExperts) {
      if (steps.empty() || (row.experts != 0 && row.experts != experts)) continue;
      const double lina = seconds_of(row.metric, steps.at({model, experts, schedule_of(row.metric)}));
      if (lina == 0) return std::nullopt;
      sum += seconds_of(row.metric, steps.at({model, experts, "lina-baseline"})) / lina;
      ++count;
    }
  if (count == 0) return std::nullopt;
  return sum / count;
}

Comparison speedups(const std::vector<PrintedLina>& printed, const LinaSteps& steps) {
  Comparison c{.caption = "", .label_names = {"metric", "experts"}};
  for (const PrintedLina& row : printed)
    c.figures.push_back({{row.metric, row.experts == 0 ? "all" : fmt::format("{}", row.experts)},
                         "",
                         row.speedup,
                         our_value(row, steps)});
  return c;
}

// Compares the step's printed speedup with that of AlltoAlls that are all as much faster as the backward's are printed
// to be, by Table 1's share of the step, averaged over its models with that many experts.
Comparison alltoall_alone(const std::vector<PrintedLina>& printed) {
  Comparison c{.caption = "the step's speedup from the AlltoAll's alone", .label_names = {"experts"}};
  for (const PrintedLina& row : printed) {
    if (row.metric != "step_time") continue;
    double share = 0, alltoall = 0;
    int models = 0;
    for (const PrintedLinaShare& s : printed_lina_table1())
      if (s.experts == row.experts) share += s.share, ++models;
    for (const PrintedLina& other : printed)
      if (other.metric == "alltoall_backward" && other.experts == row.experts) alltoall = other.speedup;
    if (models == 0 || alltoall == 0) continue;
    share /= models;
    const std::vector<std::string> labels{fmt::format("{}", row.experts)};
    c.figures.push_back({labels, "AlltoAll as printed", row.speedup, 1 / (1 - share + share / alltoall)});
    c.figures.push_back({labels, "no AlltoAll at all", row.speedup, 1 / (1 - share)});
  }
  return c;
}

// Compares the printed efficiency without packing with Figure 2's share, and both with the replay.
Comparison pipelining(const LinaSteps& steps) {
  Comparison c{.caption = "pipelining efficiency with 16 experts (Table 3), by Figure 2's share and replayed",
               .label_names = {"model", "experts a device"},
               .quantity = kShare};
  const double by_share = efficiency_by_share(printed_lina_text("layer_share"));
  for (const PrintedPipelining& row : printed_lina_table3()) {
    const auto add = [&](const std::string& schedule, int experts, double printed, std::optional<double> share) {
      const std::vector<std::string> labels{row.model, fmt::format("{}", experts)};
      std::optional<double> forward, both;
      if (!steps.empty()) {
        const LinaStep& step = steps.at({row.model, 16, schedule});
        forward = step.efficiency_forward;
        both = step.efficiency;
      }
      c.figures.push_back({labels, "Figure 2", printed, share});
      c.figures.push_back({labels, "forward", printed, forward});
      c.figures.push_back({labels, "both phases", printed, both});
    };
    add("lina", 1, row.without, by_share);
    add("lina-packed", row.experts_per_device, row.with, std::nullopt);
  }
  return c;
}

// Compares the baseline's shares: for Table 1's model by its layers, and for all three by Figure 4's ends.
Comparison alltoall_shares(const LinaSteps& steps, const Assumptions* assumed, std::set<std::string>& missing) {
  Comparison c{
      .caption = "AlltoAll's share of a baseline's step", .label_names = {"of", "experts"}, .quantity = kShare};
  const auto share = [](const LinaStep& step) { return step.alltoall_s / step.step_s; };
  for (const PrintedLinaShare& row : printed_lina_table1()) {
    std::optional<double> found;
    if (assumed != nullptr)
      if (const auto step =
              lina_step({.model = kLinaModels[0], .experts = row.experts, .layers = row.layers}, *assumed, missing))
        found = share(*step);
    c.figures.push_back(
        {{fmt::format("Table 1, {} layers", row.layers), fmt::format("{}", row.experts)}, "", row.share, found});
  }
  for (const int experts : kExperts) {
    double sum = 0;
    for (const std::string& model : kLinaModels)
      if (!steps.empty()) sum += share(steps.at({model, experts, "lina-baseline"})) / kLinaModels.size();
    std::optional<double> printed, found;
    if (experts == 2 || experts == 16) printed = printed_lina_text(fmt::format("step_share_{}", experts));
    if (!steps.empty()) found = sum;
    c.figures.push_back({{"Figure 4, mean of the models", fmt::format("{}", experts)}, "", printed, found});
  }
  return c;
}

// Tabulates section 7.2.2: each design choice in turn, without packing except in the last row.
TextTable ablation(const LinaSteps& steps) {
  TextTable table{"speedup of a step over lina-baseline, one design choice after the other", {"model", "experts"}, {}};
  for (size_t i = 1; i < kTrained.size(); ++i) table.header.push_back(kTrained[i]);
  table.header.push_back("experts a device");
  for (const std::string& model : kLinaModels)
    for (const int experts : kExperts) {
      std::vector<std::string> row{model, fmt::format("{}", experts)};
      const double baseline = steps.at({model, experts, kTrained[0]}).step_s;
      for (size_t i = 1; i < kTrained.size(); ++i)
        row.push_back(fmt::format("{:.3f}", baseline / steps.at({model, experts, kTrained[i]}).step_s));
      row.push_back(fmt::format("{}", steps.at({model, experts, "lina-packed"}).packing));
      table.rows.push_back(row);
    }
  return table;
}

// Tabulates section 7.2.2's partition sizes, with 16 experts and without packing.
TextTable partition_sizes(const Assumptions& assumed, std::set<std::string>& missing) {
  TextTable table{"milliseconds of lina's step with 16 experts, by partition size", {"model"}, {}};
  for (const int megabytes : kPartitionMb) table.header.push_back(fmt::format("{} MB", megabytes));
  for (const std::string& model : kLinaModels) {
    table.rows.push_back({model});
    for (const int megabytes : kPartitionMb) {
      const auto step = lina_step({model, 16, "lina", megabytes * int64_t{1'000'000}}, assumed, missing);
      table.rows.back().push_back(step ? fmt::format("{:.1f}", 1e3 * step->step_s) : "-");
    }
  }
  return table;
}

}  // namespace

Report lina_training(Study& study) {
  Report report{.key = "lina-training",
                .title = "training speedups over DeepSpeed-MoE",
                .source = "Lina (ATC'23), section 7.2 as stated in the text, Tables 1 and 3: 16 A100 in 4 nodes."};
  const auto printed = printed_lina_training();
  std::set<std::string> missing;
  const LinaSteps steps = all_steps(study.assumed, missing);
  const Assumptions* assumed = steps.empty() ? nullptr : study.assumed;
  report.comparisons = {speedups(printed, steps), alltoall_alone(printed), pipelining(steps),
                        alltoall_shares(steps, assumed, missing)};
  report.shows = lina_from_print();
  report.comparisons.push_back(lina_table4(steps, assumed));
  report.comparisons.push_back(lina_overheads(steps, assumed));
  report.unexplained = lina_unexplained(printed);
  report.unexplained.push_back(lina_table4_unexplained());
  if (assumed != nullptr) {
    report.tables = {ablation(steps), partition_sizes(*assumed, missing), lina_controller(*assumed)};
    report.shows.push_back(lina_slowdowns(steps, *assumed));
    report.shows.push_back(lina_packings(steps, *assumed));
  }
  report.not_computable.assign(missing.begin(), missing.end());
  if (study.assumed == nullptr)
    report.not_computable = {"AlltoAll, AllReduce: alpha, beta; the time of a dense part",
                             "B and L of the models, M and H but of Table 1's",
                             "the bandwidth of the link to the host, over which two of the models offload experts "
                             "(section 7.2.1)"};
  for (const Figure& f : report.comparisons.front().figures)
    if (assumed != nullptr && !f.ours)
      report.not_computable.push_back(
          fmt::format("{}, {} experts: packed, nothing is exchanged any more", f.labels[0], f.labels[1]));
  const auto open = [](const Figure& f) { return !f.ours; };
  if (assumed != nullptr && std::ranges::any_of(report.comparisons[2].figures, open))
    report.not_computable.push_back("efficiency with packed experts by Figure 2's share: it is of one expert a GPU");
  report.conventions = lina_conventions();
  return report;
}

}  // namespace moe::reproduce
