// MoNTA's Figures 14, 16 and 17: its choice by sequence length and the step of its model, by the plans that run.
#include <algorithm>
#include <limits>

#include "moe/base/check.h"
#include "reproduce/monta_plans.h"
#include "reproduce/printed_rows.h"
#include "reproduce/study.h"

namespace moe::reproduce {
namespace {

constexpr int kStepSeq = 8, kLongSeq = 256;  // thousands of tokens
constexpr std::array kSteps{MontaStrategy::baseline, MontaStrategy::o1, MontaStrategy::o2, MontaStrategy::o3};

double ratio(const MontaLayer& layer, MontaStrategy s) {
  return layer.exchange_s(s, kMontaChunks) / layer.exchange_s(MontaStrategy::baseline, 1);
}

// Compares Figure 14's two printed times, and for plots those that are not printed.
std::vector<Comparison> time_comparisons(const Profile& profile) {
  Comparison printed{.caption = "time over the baseline's", .label_names = {"strategy", "tokens"}};
  Comparison others{.caption = "time over the baseline's, not printed", .label_names = printed.label_names};
  printed.quantity = others.quantity = kShare;
  others.drawn = false;
  for (const PrintedChoice& row : printed_monta_choices()) {
    const MontaLayer layer(profile, row.seq);
    for (const MontaStrategy s : kMontaStrategies) {
      const bool o1 = s == MontaStrategy::o1 && row.seq == kStepSeq;
      const bool o3 = s == MontaStrategy::o3 && row.seq == kLongSeq;
      const Figure figure{{std::string(name_of(s)), fmt::format("{}K", row.seq)}, "", std::nullopt, ratio(layer, s)};
      Comparison& c = o1 || o3 ? printed : others;
      c.figures.push_back(figure);
      if (o1 || o3) c.figures.back().paper = printed_monta_ratio(o1 ? "fig14-o1" : "fig14-o3", row.seq);
    }
  }
  return {printed, others};
}

std::string text_of(const Decision& choice) {
  const std::string name(choice.variant->name.substr(std::string_view("monta-").size()));
  return choice.degree_forward == 1 ? name : fmt::format("{}, {} chunks", name, choice.degree_forward);
}

TextTable choice_table(const Profile& profile, bool searched) {
  TextTable table{"time over the baseline's and the least of them, by sequence; O2 and O3 with 4 chunks",
                  {"tokens", "o1", "o2", "o3", "least", "chosen in the paper"},
                  {}};
  if (searched) table.header.emplace_back("monta chooses, chunks searched");
  for (const PrintedChoice& row : printed_monta_choices()) {
    const MontaLayer layer(profile, row.seq);
    auto& cells = table.rows.emplace_back(std::vector{fmt::format("{}K", row.seq)});
    for (const MontaStrategy s : kMontaStrategies) cells.push_back(fmt::format("{:.3f}", ratio(layer, s)));
    cells.emplace_back(name_of(least_exchange(layer, kMontaChunks)));
    cells.push_back(row.choice);
    if (searched) cells.push_back(text_of(layer.choice()));
  }
  return table;
}

// Returns the stall at which `slower` takes as long as `faster` for a sequence; both with 4 chunks.
double even_stall_s(Profile profile, Resource by, int seq, std::array<MontaStrategy, 2> slower_faster) {
  double low = 0, high = 1e-1;
  for (int halving = 0; halving < 40; ++halving) {
    const double middle = (low + high) / 2;
    profile.contention.stall_s[static_cast<size_t>(Resource::intra)][static_cast<size_t>(by)] = middle;
    const MontaLayer layer(profile, seq);
    const bool slower =
        layer.exchange_s(slower_faster[0], kMontaChunks) > layer.exchange_s(slower_faster[1], kMontaChunks);
    (slower ? high : low) = middle;
  }
  return (low + high) / 2;
}

std::string stall_finding(const Profile& profile, bool assumed) {
  constexpr std::array kO2O1{MontaStrategy::o2, MontaStrategy::o1}, kO3O2{MontaStrategy::o3, MontaStrategy::o2};
  const auto us = [&](Resource by, int seq, auto pair) { return 1e6 * even_stall_s(profile, by, seq, pair); };
  std::string text = fmt::format(
      "For O1 to be best up to 16K and O2 from 32K on, an AllGather must lose {:.0f} to {:.0f} us each time it starts "
      "to run beside an AlltoAll",
      us(Resource::inter, 16, kO2O1), us(Resource::inter, 32, kO2O1));
  if (assumed)
    text += fmt::format(
        "; on top of what is assumed of those, O2 up to 128K and O3 at 256K need {:.0f} to {:.0f} us "
        "beside a copy",
        us(Resource::copy, 128, kO3O2), us(Resource::copy, 256, kO3O2));
  return text +
         ". The paper names the causes (fixed latency, misaligned dispatch; AllGather and copy kernels that "
         "stall each other where there is little data) and prints neither figure. Rates alone (r2 and r3 of one value "
         "each) cannot shift O3's lead between lengths, because copy and AllGather grow alike.";
}

// Compares Figures 16 and 17 with what they print alone.
Comparison printed_step() {
  Comparison c{.caption = "the training step, 8K: from the AlltoAll's printed shares (0.22 before, 0.10 after)",
               .label_names = {"what"}};
  c.quantity = kShare;
  const double before = printed_monta_ratio("alltoall-share-baseline", kStepSeq);
  const double after = printed_monta_ratio("alltoall-share-monta", kStepSeq);
  // after = x before / (1 - before + x before), where x is the AlltoAll's new time over its old one.
  const double ratio = after * (1 - before) / (before * (1 - after));
  c.figures.push_back({{"AlltoAll over the baseline's"}, "", printed_monta_ratio("fig14-o1", kStepSeq), ratio});
  c.figures.push_back({{"step saved"}, "", printed_monta_ratio("step-reduction", kStepSeq), before * (1 - ratio)});
  return c;
}

// Compares Figures 16 and 17 with the plans.
std::vector<Comparison> planned_steps(const Profile& profile, const Assumptions& assumed) {
  const auto peak = assumed.value("peak_flops");
  require<BadInput>(peak && *peak > 0, "{}: value: found no peak_flops above 0, expected one", assumed.file);
  const MontaLayer layer(profile, kStepSeq);
  Comparison share{.caption = "AlltoAll's share of a step, 8K (Figure 16)", .label_names = {"strategy"}};
  Comparison saved{.caption = "step saved, 8K (Figure 17)", .label_names = {"strategy"}};
  Comparison mfu{.caption = "model FLOPs utilisation, 8K", .label_names = {"strategy"}};
  share.quantity = saved.quantity = mfu.quantity = kShare;
  const double baseline_s = layer.step(MontaStrategy::baseline, 1).seconds;
  for (const MontaStrategy s : kSteps) {
    const MontaStep step = layer.step(s, kMontaChunks);
    const std::vector<std::string> labels{std::string(name_of(s))};
    const bool baseline = s == MontaStrategy::baseline, good = s == MontaStrategy::o1 || s == MontaStrategy::o2;
    std::optional<double> printed_share, printed_saved;
    if (baseline || good)
      printed_share = printed_monta_ratio(baseline ? "alltoall-share-baseline" : "alltoall-share-monta", kStepSeq);
    if (good) printed_saved = printed_monta_ratio("step-reduction", kStepSeq);
    share.figures.push_back({labels, "", printed_share, step.share()});
    if (!baseline) saved.figures.push_back({labels, "", printed_saved, 1 - step.seconds / baseline_s});
    mfu.figures.push_back({labels, "", std::nullopt, step.flops / step.seconds / *peak});
  }
  return {share, saved, mfu};
}

void add_steps(Report& report, const Profile& profile, const Assumptions* assumed) {
  if (assumed == nullptr) {
    report.comparisons.push_back(printed_step());
    report.shows.emplace_back(
        "The AlltoAll's share of a step before and after gives the step's saving of 13 % back; it implies an AlltoAll "
        "of 0.39 of the baseline's, which is O1's 0.355 of Table 8 rather than Figure 14's 0.30.");
    report.not_computable = {"the step itself and its MFU: GEMM, ReduceScatter and AllReduce of the cluster"};
    return;
  }
  const auto steps = planned_steps(profile, *assumed);
  report.comparisons.insert(report.comparisons.end(), steps.begin(), steps.end());
  report.shows.emplace_back(
      "The baseline's share is an input (it sets GEMM's rate); the others are results. O1 saves more than printed "
      "because "
      "it reduces the expert's partial sums by a ReduceScatter here, where the baseline has an AllReduce. The paper "
      "calls O2 comparable to O1 in the step, which holds at the lower end of the first stall's range. The assumed "
      "value also gives the printed choice when the number of chunks is searched.");
  const MontaExperts experts = monta_experts(profile);
  report.shows.push_back(
      fmt::format("MoNTA outputs an MFU, but the paper prints none. 2x70B with {} layers does not fit GPUs of {:.0f} "
                  "GB (Table 3's 16 P2 / (p t e) bytes: {:.0f} GB of experts alone), so the trained model had fewer "
                  "layers or kept state elsewhere, and the paper does not say which. Here one layer stands for all.",
                  experts.layers, profile.memory_bytes.value_or(0) / 1e9, experts.bytes / 1e9));
}

}  // namespace

Report monta_fig14(Study& study) {
  Report report{.key = "monta-fig14",
                .title = "the choice among O1, O2 and O3 by sequence length, and the training step",
                .source = "MoNTA (2024), Figures 14, 16 and 17, as stated in the text beside them."};
  const bool assumed = study.assumed != nullptr;
  const Profile profile = monta_cluster(study.assumed);
  report.comparisons = time_comparisons(profile);
  report.tables = {choice_table(profile, assumed)};
  report.shows = {stall_finding(profile, assumed),
                  "Equation 13's limit for O3, 7/32 = 0.219 (printed 0.21), is the AllGather's time alone over the "
                  "baseline's at equal efficiencies."};
  if (!assumed)
    report.shows.emplace_back(
        "Without slowdowns O3 cannot be slower, as in the paper's own model: nothing is faster at any length, "
        "where "
        "the paper measured and chose others up to 128K.");
  add_steps(report, profile, study.assumed);
  report.conventions = {
      "Plans of monta-baseline, monta-o1 to -o3 and monta for a layer of configs/models/moe-2x70b on "
      "configs/clusters/a800, replayed; an exchange is a dispatch until the expert could begin, with Table 8's lines "
      "(monta-fig13) and copy. Its volume has the k that equation 3 leaves out: 8K are 2 x 8192 x 8192 x 2 bytes, 256 "
      "MiB, where Table 8 counts 256 million.",
      "A step: forward and backward of one layer; gradients, embedding and optimizer left out.",
      "Choices: 'less than 16K' is read as up to 16K."};
  return report;
}

}  // namespace moe::reproduce
