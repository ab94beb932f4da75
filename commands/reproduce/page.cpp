#include "commands/reproduce/page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <span>

#include "commands/reproduce/study.h"
#include "commands/shared/printed.h"
#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/base/statistics.h"
#include "moe/base/units.h"

namespace moe::reproduce {
namespace {

// Returns the relative differences of a comparison's numbers by convention, for those with both values.
std::map<std::string, std::vector<double>> differences_of(const Comparison& c) {
  std::map<std::string, std::vector<double>> off;
  for (const Figure& f : c.figures)
    if (f.ours && f.paper && *f.paper != 0) off[f.convention].push_back(std::abs(*f.ours / *f.paper - 1));
  return off;
}

std::vector<std::string> summary_row(const Report& report, const Comparison& c) {
  std::set<std::vector<std::string>> printed, computed;
  for (const Figure& f : c.figures) {
    if (!f.paper) continue;
    printed.insert(f.labels);
    if (f.ours) computed.insert(f.labels);
  }
  std::string closest = "-";
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [convention, off] : differences_of(c))
    if (const double m = median(off); m < least) least = m, closest = convention.empty() ? "the only one" : convention;
  return {name_of(report), fmt::format("{}", printed.size()), fmt::format("{}", computed.size()), closest,
          std::isfinite(least) ? percent(least) : "-"};
}

// Formulas that are computed differently than a paper prints them.
constexpr std::array<std::string_view, 6> kReadings{
    "Expert Choice (gate expert-choice). FSMoE section 2.1 writes Softmax(KeepTopK((I W_g)^T, k)): a softmax of raw "
    "logits over the k tokens that an expert takes. The paper it cites, Zhou et al. (2022), section 3.2, takes the "
    "softmax over the experts of each token first, and each expert's largest of those; the code follows Zhou et al., "
    "by whose weights a token's experts compete. The choice differs, and so do the weights; sizes and times do not.",
    "MoNTA's equation 3, I = b s h BPE, leaves out k, the experts of a token: Table 8's 256 M bytes of an 8K sequence "
    "are 2 x 8192 x 8192 x 2, so its k is 2 in 16 bit numbers. Volumes here have k (and f).",
    "MoNTA's Algorithms 1 and 2 end with T = T_min where T_min = T, N_min = N is meant; done so.",
    "Parm's equation 14 adds AG_MP(E T M) to an Overlap that has it already (equation 7): then S2 could never win, "
    "though Table IV shows it winning. Equation 7 is taken. Equation 13's second line drops N_ESP.",
    "Parm's Algorithm 1 multiplies T by M once too often and leaves / N_MP out of its last term.",
    "Parm's SAA improves 'over SAA' in the text of section VI-C: over AAS, the AlltoAll and the AllGather in "
    "sequence."};

std::string readings_text() {
  std::string text = "## Formulas that differ from print\n\n";
  for (const std::string_view reading : kReadings) text += wrapped(reading, "- ");
  return text + '\n';
}

std::string comparisons_text(const std::vector<Report>& reports) {
  Report summary;
  summary.tables = {summary_of(reports)};
  return "## Accuracy of every comparison\n\n" +
         wrapped(
             "`printed` counts the numbers that the paper prints, `computed` those that moetune computes. `median "
             "difference` is the median of |ours / printed - 1| under the convention that comes closest. A number that "
             "rests on a coefficient that no paper prints is left open ('-'), unless a file of configs/papers/assume/ "
             "supplies it; such rows say 'assuming'. `./moetune reproduce --all --write docs/reproduction.md` writes "
             "this page and those of the papers.",
             "") +
         '\n' + tables_text(summary, ReportStyle::markdown);
}

// A page of comparisons: its file name without the extension, its title and the prefix of its reports' keys.
struct Topic {
  std::string_view name, title, keys;
  std::string_view about = "Printed numbers and what moetune computes for them.";
};

constexpr std::array<Topic, 8> kTopics{
    {{"fsmoe", "FSMoE (ASPLOS'25)", "fsmoe-"},
     {"fsmoe-audit", "FSMoE: every reading of its conventions", "audit"},
     {"parm", "Parm (INFOCOM'24)", "parm-"},
     {"monta", "MoNTA (2024)", "monta-"},
     {"lina", "Lina (ATC'23)", "lina-"},
     {"training", "Training steps on real clusters", "training"},
     {"beyond", "Whole iterations in one order", "beyond",
      "What an order of a whole iteration gains over the papers' schedules, as planned."},
     {"published", "Measurements that others published", ""}}};

// Returns the first topic that has the report; the last topic has all remaining ones.
const Topic& topic_of(const Report& report) {
  return *std::ranges::find_if(kTopics, [&](const Topic& topic) { return report.key.starts_with(topic.keys); });
}

std::string topic_text(const Topic& topic, const std::vector<const Report*>& reports, std::string_view summary) {
  std::string text = fmt::format("# {}\n\n", topic.title);
  text +=
      wrapped(fmt::format("{} [Reproducing the papers]({}) summarizes all comparisons.", topic.about, summary), "") +
      '\n';
  for (const Report* const made : reports) {
    Report report = *made;
    if (!report.assuming.empty()) report.conventions = {"as without assumptions, above"};
    text += report_text(report, ReportStyle::markdown);
  }
  return text;
}

}  // namespace

std::vector<Report> all_reports() {
  std::vector<Assumptions> examples;
  for (const std::string& name : config_names("papers/assume")) examples.push_back(find_assumptions(name));
  Study study;
  std::vector<Report> reports;
  for (const commands::PaperTable& table : commands::kPaperTables) {
    study.assumed = nullptr;
    reports.push_back(reproduce(table.name, study));
    for (const Assumptions& example : examples) {
      if (!example.applies_to_table(table.name)) continue;
      study.assumed = &example;
      reports.push_back(reproduce(table.name, study));
    }
  }
  study.assumed = nullptr;
  reports.push_back(fsmoe_audit(study));
  return reports;
}

TextTable summary_of(const std::vector<Report>& reports) {
  TextTable table{"", {"table", "printed", "computed", "closest convention", "median difference"}, {}};
  for (const Report& report : reports)
    for (const Comparison& c : report.comparisons)
      if (c.comparison_table && !c.figures.empty()) table.rows.push_back(summary_row(report, c));
  return table;
}

std::vector<MarkdownPage> pages_of(const std::vector<Report>& reports, const std::filesystem::path& file,
                                   const std::filesystem::path& folder) {
  const auto link = [](const std::filesystem::path& to, const std::filesystem::path& from) {
    return to.lexically_relative(from.parent_path()).generic_string();
  };
  std::vector<MarkdownPage> pages{{file, first_page(reports)}};
  std::string contents = "## Comparisons by paper\n\n";
  for (const Topic& topic : kTopics) {
    std::vector<const Report*> members;
    std::vector<std::string_view> keys;
    for (const Report& report : reports) {
      if (&topic_of(report) != &topic) continue;
      members.push_back(&report);
      if (report.assuming.empty()) keys.push_back(report.key);
    }
    if (members.empty()) continue;
    const std::filesystem::path path = folder / fmt::format("{}.md", topic.name);
    contents += wrapped(fmt::format("[{}]({}): {}", topic.title, link(path, file), fmt::join(keys, ", ")), "- ");
    pages.push_back({path, topic_text(topic, members, link(file, path))});
  }
  pages.front().text += contents + '\n' + comparisons_text(reports) + readings_text();
  for (MarkdownPage& page : pages)
    while (page.text.ends_with("\n\n")) page.text.pop_back();
  return pages;
}

namespace {

// One printed number: the report that compares it, and what our value depends on besides the paper's coefficients.
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

constexpr std::array<std::string_view, 6> kDiffers{
    "FSMoE comes out better than printed from its coefficients alone: they contain no slowdown of one network by the "
    "other, so a simulation is an upper limit of what could be measured.",
    "DeepSpeed-MoE ran up to 2.3 times as long as the plain sequence would (Figure 6), and the paper does not say with "
    "which settings. Its documented rule, by which every rank's AlltoAll carries all tokens where experts are sharded "
    "(monta-baseline), brings fsmoe's and tutel's speedups over it in Figures 6 to 8 to between -5 and +39 % of the "
    "printed ones, with an AllReduce inside a node assumed. What remains is mostly on the side of fsmoe's own excess.",
    "MoNTA's printed ratios divide by different baselines: each by an AlltoAll at the strategy's own efficiency.",
    "Lina's steps are printed faster than its AlltoAll's speedup explains, and priority and partition alone at up to "
    "1.42x, where AlltoAlls that AllReduce slows as much as the paper measured explain 1.15x.",
    "Lina's inference is printed faster than its AlltoAll's share of a batch (Table 1) explains: with 4 experts a "
    "batch "
    "without any AlltoAll would be 1.38x as fast, and 1.54x is printed.",
    "Coefficients that no paper prints leave numbers open ('-'): an AllReduce inside a node, most of Parm's and "
    "Lina's."};

constexpr std::array<std::string_view, 3> kNoEvidence{
    "Parm's choice between S1 and S2: Parm's cost model needs the measured time of an AlltoAll beside an AllGather "
    "(row `saa` of a profile, `microbench --op saa`). The assumed profiles have no such row, so the model takes the "
    "time from the same simulation that then ranks S1 and S2, and its choice agrees by construction. On the emulated "
    "testbed B the row was measured and the choice compared with layers that ran (results/README.md).",
    "MoNTA's choice by sequence length: two stalls were fitted to the printed choices. That these choices come out "
    "shows "
    "that two stalls are enough to explain them, and nothing more.",
    "MoNTA's lines of time over volume: they go through two of Table 8's points each (monta-fig13), and the AlltoAll's "
    "share of the baseline's step sets the rate of GEMMs (monta-fig14). Tables of such numbers have the column 'by "
    "construction'."};

constexpr std::array<std::string_view, 4> kNotCompared{
    "FSMoE: the measured points of Figure 5.", "Parm: the measured points of Figure 6.",
    "MoNTA: Figures 11, 12 and 15, and the headline of about 8x in AlltoAll under tensor parallelism of 8 GPUs.",
    "Lina: Tutel as a baseline, and inference on other data (Table 6)."};

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

std::string value_text(std::optional<double> value, const Quantity& quantity) {
  if (!value) return "-";
  return fmt::format("{:.{}f} {}", *value * quantity.scale, quantity.digits, quantity.unit);
}

TextTable headlines_of(const std::vector<Report>& reports) {
  TextTable table{"", {"number", "printed", "ours", "difference", "based on"}, {}};
  for (const Headline& headline : kHeadlines) {
    if (std::ranges::none_of(reports, [&](const Report& r) { return name_of(r) == headline.report; })) continue;
    const Comparison* in = nullptr;
    const Figure& figure = figure_of(reports, headline, in);
    table.rows.push_back({std::string(headline.what), value_text(figure.paper, in->quantity),
                          value_text(figure.ours, in->quantity), difference(figure.ours, figure.paper),
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
