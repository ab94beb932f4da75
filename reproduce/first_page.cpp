#include "reproduce/first_page.h"

#include <algorithm>
#include <array>
#include <span>

#include "moe/base/check.h"

namespace moe::reproduce {
namespace {

// One printed number: the report that compares it, and what our value rests on beside the paper's coefficients.
struct Headline {
  std::string_view what;
  std::string_view report, comparison;
  std::vector<std::string> labels;
  std::string_view convention, rests_on;
};

const std::array kHeadlines{Headline{"FSMoE over tutel, five models (Figure 6)",
                                     "fsmoe-fig6",
                                     "over the five runs",
                                     {"fsmoe", "tutel", "mean"},
                                     "ds-moe",
                                     "printed coefficients"},
                            Headline{"  the same",
                                     "fsmoe-fig6, assuming fsmoe-contention",
                                     "over the five runs",
                                     {"fsmoe", "tutel", "mean"},
                                     "ds-moe",
                                     "a slowdown fitted to Table 5"},
                            Headline{"FSMoE over tutel, 1458 layers (Table 5, B)",
                                     "fsmoe-table5",
                                     "",
                                     {"testbed-b", "fsmoe"},
                                     "volumes x f",
                                     "printed coefficients"},
                            Headline{"FSMoE on one lane over tutel (Table 5, B)",
                                     "fsmoe-table5",
                                     "",
                                     {"testbed-b", "fsmoe-no-iio"},
                                     "volumes x f",
                                     "printed coefficients"},
                            Headline{"layers with r_f != r_b, of 1458 (B)",
                                     "fsmoe-degrees",
                                     "",
                                     {"testbed-b", "fsmoe", "every integer"},
                                     "volumes x f",
                                     "printed coefficients"},
                            Headline{"Parm over its baseline, mean (Figure 7)",
                                     "parm-table4, assuming parm-fsmoe",
                                     "parm over the baseline on 32 GPUs, N_MP = N_ESP = 4 (Figure 7)",
                                     {"mean"},
                                     "",
                                     "FSMoE's coefficients (assumed)"},
                            Headline{"Parm over its baseline, most",
                                     "parm-table4, assuming parm-fsmoe",
                                     "parm over the baseline, all layers",
                                     {"most"},
                                     "",
                                     "FSMoE's coefficients (assumed)"},
                            Headline{"MoNTA O1's time over its baseline's (Table 8)",
                                     "monta-table8",
                                     "time over the baseline's, 8K",
                                     {"o1"},
                                     "own baseline",
                                     "printed coefficients"},
                            Headline{"MoNTA O2, share of a step saved (Figure 17)",
                                     "monta-fig14, assuming monta-a800",
                                     "step saved, 8K (Figure 17)",
                                     {"o2"},
                                     "",
                                     "two stalls fitted to Figure 14"},
                            Headline{"Lina over DeepSpeed-MoE, a step, 8 experts",
                                     "lina-training, assuming lina-a100",
                                     "",
                                     {"step_time", "8"},
                                     "",
                                     "assumed coefficients"},
                            Headline{"Lina, a MoE layer's forward, 8 experts",
                                     "lina-training, assuming lina-a100",
                                     "",
                                     {"forward_moe_layer", "8"},
                                     "",
                                     "assumed coefficients"},
                            Headline{"Lina, priority and partition alone, 16 experts",
                                     "lina-training, assuming lina-a100",
                                     "",
                                     {"priority_and_partition", "16"},
                                     "",
                                     "assumed coefficients"}};

constexpr std::string_view kCompared =
    "The FSMoE (ASPLOS'25), Parm (INFOCOM'24), MoNTA (2024) and Lina (ATC'23) papers print how much faster their "
    "schedules train. These pages compare printed numbers with numbers that moetune computes. Nothing here is measured "
    "on the papers' clusters: moetune simulates the same schedules with the coefficients that the papers print, so the "
    "result shows what those coefficients imply. Parameters that were fitted to a paper's numbers are named in the "
    "last "
    "column. B is FSMoE's testbed B.";

constexpr std::array<std::string_view, 5> kAgrees{
    "FSMoE: the schedules rank as printed in four sweeps of its 1458 layers (two testbeds, two readings of the "
    "volumes).",
    "FSMoE: with one slowdown a testbed for networks that carry traffic at the same time, fitted to Table 5, the mean "
    "speedup of fsmoe over tutel on its five models agrees too, without another parameter.",
    "Parm: speedups grow with N_MP and N_ESP as printed.",
    "MoNTA: the printed latencies are volume over bandwidth and efficiency.",
    "Lina: its AlltoAll share and its pipelining efficiency without packing are consistent with each other."};

constexpr std::array<std::string_view, 5> kDiffers{
    "FSMoE comes out better than printed from its coefficients alone: they contain no slowdown of one network by the "
    "other, so a simulation is an upper limit of what could be measured.",
    "DeepSpeed-MoE ran up to 2.3 times as long as the plain sequence would (Figure 6). The paper does not say with "
    "which "
    "settings it ran.",
    "MoNTA's printed ratios divide by different baselines: each by an AlltoAll at the strategy's own efficiency.",
    "Lina's steps are printed faster than its AlltoAll's speedup explains, and priority and partition alone at up to "
    "1.42x, where AlltoAlls that AllReduce slows as much as the paper measured explain 1.15x.",
    "Coefficients that no paper prints leave numbers open ('-'): an AllReduce inside a node, most of Parm's and "
    "Lina's."};

constexpr std::array<std::string_view, 2> kNoEvidence{
    "Parm's choice between S1 and S2: Parm's cost model needs the measured time of an AlltoAll beside an AllGather "
    "(row "
    "`saa` of a profile). No profile has that row, so the model takes the time from the same simulation that then "
    "ranks "
    "S1 and S2, and its choice agrees by construction.",
    "MoNTA's choice by sequence length: two stalls were fitted to the printed choices. That these choices come out "
    "shows "
    "that two stalls are enough to explain them, and nothing more."};

constexpr std::array<std::string_view, 4> kNotCompared{
    "FSMoE: the measured points and r^2 of Figure 5, and the times of profiling, fitting and solving in section 6.2.",
    "Parm: the measured points of Figure 6.",
    "MoNTA: the memory formulas of Tables 3 and 4 (`memory --json` evaluates those of activations), the bandwidths of "
    "Table 5, and Figures 11, 12 and 15.",
    "Lina: inference (sections 5 and 7.3), Tutel as a baseline, GPU utilisation and memory (Table 4), and the "
    "overheads "
    "of partitioning (section 7.2.2)."};

const Figure& figure_of(const std::vector<Report>& reports, const Headline& headline, const Comparison*& comparison) {
  for (const Report& report : reports) {
    if (name_of(report) != headline.report) continue;
    for (const Comparison& c : report.comparisons)
      for (const Figure& f : c.figures)
        if (c.caption == headline.comparison && f.labels == headline.labels && f.convention == headline.convention) {
          comparison = &c;
          return f;
        }
  }
  throw WrongResult(fmt::format("the summary page: no report has the number '{}'", headline.what));
}

std::string shown(std::optional<double> value, const Quantity& quantity) {
  if (!value) return "-";
  return fmt::format("{:.{}f} {}", *value * quantity.scale, quantity.digits, quantity.unit);
}

TextTable headlines_of(const std::vector<Report>& reports) {
  TextTable table{"", {"number", "printed", "ours", "difference", "based on"}, {}};
  for (const Headline& headline : kHeadlines) {
    if (std::ranges::none_of(reports, [&](const Report& r) { return name_of(r) == headline.report; })) continue;
    const Comparison* in = nullptr;
    const Figure& figure = figure_of(reports, headline, in);
    table.rows.push_back({std::string(headline.what), shown(figure.paper, in->quantity),
                          shown(figure.ours, in->quantity), difference(figure.ours, figure.paper),
                          std::string(headline.rests_on)});
  }
  return table;
}

}  // namespace

std::string first_page(const std::vector<Report>& reports) {
  std::string text = "# Reproducing the papers\n\n";
  text += wrapped(kCompared, "") + '\n';
  Report page;
  page.tables = {headlines_of(reports)};
  text += tables_text(page, ReportStyle::markdown);
  const auto add_list = [&](std::string_view title, std::span<const std::string_view> lines) {
    text += fmt::format("## {}\n\n", title);
    for (const std::string_view line : lines) text += wrapped(line, "- ");
    text += '\n';
  };
  add_list("What agrees", kAgrees);
  add_list("What differs, and why", kDiffers);
  add_list("What agrees by construction", kNoEvidence);
  add_list("Printed numbers without a comparison", kNotCompared);
  return text;
}

}  // namespace moe::reproduce
