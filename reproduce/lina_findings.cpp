#include "reproduce/lina_findings.h"

#include <algorithm>
#include <cmath>

#include "moe/base/check.h"

namespace moe::reproduce {

// Returns what follows from print alone.
std::vector<std::string> lina_from_print() {
  const double share = printed_lina_text("layer_share");
  return {
      "The step's printed speedups lie between what its AlltoAll's own speedup would give and what a step without "
      "AlltoAll would: the rest must come from pipelining the experts with the remaining AlltoAll, as the paper says.",
      fmt::format(
          "Figure 2 and Table 3 agree: where AlltoAll is {:.1f} % of a layer's forward, an expert takes at most "
          "{:.3f} of an AlltoAll, and under two of them it keeps computation busy for {:.1f} % of their time.",
          100 * share, expert_over_alltoall(share), 100 * efficiency_by_share(share)),
      "Table 1's parameters say what its model is: 302 M more for 12 more experts in 12 layers are 2.097 M an expert, "
      "so M = 512 and H = 2048: Transformer-XL as published for enwik8."};
}

// Taking the slowdown of a backward's AlltoAlls away saves no more than it cost: with as many of them in either phase,
// a share s of the step and a slowdown w, s (w - 1) / (w + 1) of the step.
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
  const std::string priority = fmt::format(
      "Priority and partition alone are printed at up to {:.2f}x. They keep AllReduce out of the backward's AlltoAlls, "
      "which carry as much as before. Were each of those slowed {:.2f}x, the median measured, and AlltoAll {:.1f} % of "
      "the step, its largest share printed, that saved {:.2f}x; were each slowed {:.2f}x, the worst (more than two "
      "lanes' fair share), {:.2f}x. So the rest is not time of AlltoAlls, and the paper does not say what it is.",
      speedup, usual, 100 * share, most(usual), worst, most(worst));
  const std::string pipelining = fmt::format(
      "If an AlltoAll is cut into n micro-ops, no expert can run beside the first one, nor beside the last one of the "
      "way back, so pipelining is at most (n - 1) / n efficient. {:.0f} % needs {:.0f} micro-ops, so AlltoAlls of more "
      "than {:.0f} MB at 30 MB "
      "each: {:.0f} GB/s out of a node by Table 1's time over 16 GPUs, more than links of 100 Gb/s carry, were there "
      "one a GPU.",
      100 * efficient, micro_ops, 30 * (micro_ops - 1), out_of_node);
  return {priority, pipelining};
}

// Returns what a fair share of the network must carry for the printed slowdown, and what there is.
std::string lina_slowdowns(const LinaSteps& steps, const Assumptions& assumed) {
  std::string found;
  double least = 0, most = 0;
  for (const std::string& model : kLinaModels) {
    const LayerCase shape = lina_case(model, 16, assumed);
    const Profile profile = lina_profile(model, assumed);
    const LayerPricer pricer(profile, shape);
    const double alltoall =
        pricer.chunk_seconds(TaskKind::dispatch, Phase::backward, static_cast<double>(pricer.rows()));
    const double needed = 2 * (printed_lina_text("slowdown_median") - 1) * alltoall;
    const double times = needed / pricer.gradient_seconds(pricer.gradient_bytes());
    least = least == 0 ? times : std::min(least, times);
    most = std::max(most, times);
    const double slowdown = steps.at({model, 16, "lina-baseline"}).slowdown;
    found += fmt::format("{}{} {:.2f}x", found.empty() ? "" : ", ", model, slowdown);
  }
  return fmt::format(
      "The baseline's backward AlltoAlls are slowed, in the median with 16 experts: {}; the paper measured {:.2f}x. At "
      "a fair share that takes AllReduce beside both AlltoAlls of every layer, {:.1f} to {:.1f} times as long as these "
      "layers' gradients take over the links that carried the AlltoAll. Priority can therefore save little here.",
      found, printed_lina_text("slowdown_median"), least, most);
}

// Returns the experts a device by Lina's rule alone, and by the replay.
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
      "rank's 40 GB allow. No plan contains offloading to the host, which the paper then uses. Of 2 experts it packs "
      "{}, the paper "
      "both: by the time assumed of an AlltoAll between two GPUs an expert takes longer already.",
      chosen, rule, steps.at({kLinaModels[0], 2, "lina-packed"}).packing);
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
      "fusing of packed experts' kernels (multi-stream execution, section 6.1) changes no time here."};
}

}  // namespace moe::reproduce
