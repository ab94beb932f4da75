#include "reproduce/page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/base/statistics.h"
#include "moe/base/units.h"
#include "reproduce/first_page.h"
#include "reproduce/study.h"
#include "verbs/paper_tables.h"

namespace moe::reproduce {
namespace {

// Returns by convention how far each of a comparison's numbers is off, where it has both.
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

// Lists formulas that a paper prints otherwise than they are computed here.
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

// Lists what changed on this page since its last edition, and why.
constexpr std::array<std::string_view, 5> kChanges{
    "Degrees, gradient splits and orders are exact under contention now; before, they were up to 9 % slower than the "
    "best. With the slowdowns that Table 5 fits, FSMoE's Figure 6 is 7.2 % off in the median (was 9.1 %): fsmoe over "
    "tutel 1.178x where 1.19x is printed (was 1.138x). Figure 8 is further off (12.2 %, was 10.3 %).",
    "lina-training replays three whole models, embeddings' gradients among them; an expert's time follows from the "
    "printed AlltoAll share. The former coefficients contradicted that share. MoE layers and AlltoAlls are closer to "
    "print, steps are further off: 25.3 % in the median (was 24.7 %). What print itself rules out stands under "
    "'unexplained'.",
    "Lina sends gradients beside attention too, holds them only from an i-order to the AlltoAll behind it, cuts the "
    "gradients of packed experts, and packs experts only as far as the replay gains.",
    "monta-fig14 replays the plans of monta's schedules. Kernels that begin side by side stall each other, as the "
    "paper "
    "says: with two fitted stalls monta chooses as printed at every length. Figures 16 and 17 and the MFU are new.",
    "parm-table4 has Figure 1's share of communication, the least speedup, and SAA over AAS; the AlltoAlls of S1 and "
    "S2 "
    "count the same sums."};

std::string changes_text() {
  std::string text = "## What changed since the last edition, and why\n\n";
  for (const std::string_view change : kChanges) text += wrapped(change, "- ");
  return text + '\n';
}

std::string readings_text() {
  std::string text = "## Formulas, where the code takes another than is printed\n\n";
  for (const std::string_view reading : kReadings) text += wrapped(reading, "- ");
  return text + '\n';
}

}  // namespace

std::vector<Report> all_reports() {
  std::vector<Assumptions> examples;
  for (const std::string& name : config_names("papers/assume")) examples.push_back(find_assumptions(name));
  Study study;
  std::vector<Report> reports;
  for (const verbs::PaperTable& table : verbs::kPaperTables) {
    study.assumed = nullptr;
    reports.push_back(reproduce(table.name, study));
    for (const Assumptions& example : examples) {
      if (!example.is_for(table.name)) continue;
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
      if (c.drawn && !c.figures.empty()) table.rows.push_back(summary_row(report, c));
  return table;
}

std::string page_of(const std::vector<Report>& reports) {
  std::string text = first_page(reports);
  text += "## Every comparison in one row\n\n";
  text += wrapped(
      "How many numbers the paper prints, how many of them we compute, and by how much the convention that comes "
      "closest "
      "is off in the median. Written by `./moetune reproduce --all --write docs/reproduction.md`; a test holds it to "
      "what "
      "the command computes. The papers' numbers are those of configs/papers/. What rests on a coefficient that no "
      "paper "
      "prints is left open ('-'), or computed from an example of configs/papers/assume/, whose rows are listed under "
      "'assumed'.",
      "");
  text += '\n';
  Report summary;
  summary.tables = {summary_of(reports)};
  text += tables_text(summary, ReportStyle::markdown);
  text += changes_text();
  text += readings_text();
  for (Report report : reports) {
    if (!report.assuming.empty()) report.conventions = {"as without assumptions, above"};
    text += report_text(report, ReportStyle::markdown);
  }
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

}  // namespace moe::reproduce
