#include "reproduce/first_page.h"

#include <algorithm>
#include <array>

#include "moe/base/check.h"

namespace moe::reproduce {
namespace {

// Describes one number of a paper: where it stands among the reports, and what ours rests on beside print.
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
                                     "print"},
                            Headline{"  the same",
                                     "fsmoe-fig6, assuming fsmoe-contention",
                                     "over the five runs",
                                     {"fsmoe", "tutel", "mean"},
                                     "ds-moe",
                                     "a slowdown, fitted to Table 5"},
                            Headline{"FSMoE over tutel, 1458 layers (Table 5, B)",
                                     "fsmoe-table5",
                                     "",
                                     {"testbed-b", "fsmoe"},
                                     "volumes x f",
                                     "print"},
                            Headline{"FSMoE on one lane over tutel (Table 5, B)",
                                     "fsmoe-table5",
                                     "",
                                     {"testbed-b", "fsmoe-no-iio"},
                                     "volumes x f",
                                     "print"},
                            Headline{"layers with r_f != r_b, of 1458 (B)",
                                     "fsmoe-degrees",
                                     "",
                                     {"testbed-b", "fsmoe", "every integer"},
                                     "volumes x f",
                                     "print"},
                            Headline{"Parm over its baseline, mean (Figure 7)",
                                     "parm-table4, assuming parm-fsmoe",
                                     "parm over the baseline on 32 GPUs, N_MP = N_ESP = 4 (Figure 7)",
                                     {"mean"},
                                     "",
                                     "FSMoE's coefficients"},
                            Headline{"Parm over its baseline, most",
                                     "parm-table4, assuming parm-fsmoe",
                                     "parm over the baseline, all layers",
                                     {"most"},
                                     "",
                                     "FSMoE's coefficients"},
                            Headline{"MoNTA O1's time over its baseline's (Table 8)",
                                     "monta-table8",
                                     "time over the baseline's, 8K",
                                     {"o1"},
                                     "own baseline",
                                     "print"},
                            Headline{"MoNTA O2, share of a step saved (Figure 17)",
                                     "monta-fig14, assuming monta-a800",
                                     "step saved, 8K (Figure 17)",
                                     {"o2"},
                                     "",
                                     "two stalls, fitted to Figure 14"},
                            Headline{"Lina over DeepSpeed-MoE, a step, 8 experts",
                                     "lina-training, assuming lina-a100",
                                     "",
                                     {"step_time", "8"},
                                     "",
                                     "coefficients that print allows"},
                            Headline{"Lina, a MoE layer's forward, 8 experts",
                                     "lina-training, assuming lina-a100",
                                     "",
                                     {"forward_moe_layer", "8"},
                                     "",
                                     "coefficients that print allows"},
                            Headline{"Lina, priority and partition alone, 16 experts",
                                     "lina-training, assuming lina-a100",
                                     "",
                                     {"priority_and_partition", "16"},
                                     "",
                                     "coefficients that print allows"}};

constexpr std::string_view kCompared =
    "Four papers print how much faster their schedules train: FSMoE (ASPLOS'25), Parm (INFOCOM'24), MoNTA (2024) and "
    "Lina (ATC'23). Here each number that they print stands beside ours. Ours is no measurement of their clusters: it "
    "is the exact replay of the same plan, on the coefficients that the papers print. So it says what those "
    "coefficients imply, and nothing is tuned to make a number fit but what says so. B is FSMoE's testbed B. The "
    "section "
    "'published' is of real clusters that others measured.";

constexpr std::array<std::string_view, 5> kAgrees{
    "FSMoE's schedules rank as printed in every sweep of its 1458 layers.",
    "With one slowdown a testbed for networks that carry traffic at once, fitted to Table 5, FSMoE's five models "
    "follow "
    "without another knob.",
    "Parm's speedups grow with N_MP and N_ESP as printed, and its choice between S1 and S2 is the faster one on every "
    "layer.",
    "MoNTA's latencies are volume over bandwidth and efficiency. With two stalls its choice is the printed one at "
    "every "
    "sequence length.",
    "Lina's AlltoAll share and its efficiency without packing are consistent with each other."};

constexpr std::array<std::string_view, 5> kDiffers{
    "FSMoE comes out better than printed from print alone: in its coefficients neither network slows the other, so "
    "that "
    "a replay is an upper limit of what could be measured.",
    "DeepSpeed-MoE ran up to 2.3 times as long as the plain sequence would (Figure 6). What it ran with is not said.",
    "MoNTA's printed ratios divide by different baselines: each by an AlltoAll at the strategy's own efficiency.",
    "Lina's steps are printed faster than its AlltoAll's speedup explains, and priority and partition alone at up to "
    "1.42x, where AlltoAlls that AllReduce slows as much as the paper measured explain 1.15x.",
    "Coefficients that no paper prints leave numbers open ('-'): an AllReduce inside a node, most of Parm's and "
    "Lina's."};

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
  throw WrongResult(fmt::format("the first page: no report has the number '{}'", headline.what));
}

std::string shown(std::optional<double> value, const Quantity& quantity) {
  if (!value) return "-";
  return fmt::format("{:.{}f} {}", *value * quantity.scale, quantity.digits, quantity.unit);
}

TextTable headlines_of(const std::vector<Report>& reports) {
  TextTable table{"", {"number", "printed", "ours", "difference", "ours rests on"}, {}};
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
  std::string text = "# What the papers print, beside what moetune computes\n\n";
  text += wrapped(kCompared, "") + '\n';
  Report page;
  page.tables = {headlines_of(reports)};
  text += tables_text(page, ReportStyle::markdown);
  text += "**What agrees**\n\n";
  for (const std::string_view line : kAgrees) text += wrapped(line, "- ");
  text += "\n**What does not, and why**\n\n";
  for (const std::string_view line : kDiffers) text += wrapped(line, "- ");
  text += '\n' +
          wrapped(
              "Each table of the papers has a section below, with its conventions and what it shows. The first table "
              "there has one row a comparison.",
              "") +
          '\n';
  return text;
}

}  // namespace moe::reproduce
