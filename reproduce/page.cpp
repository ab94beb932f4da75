#include "reproduce/page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <ranges>
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

// Formulas that are computed otherwise than a paper prints them.
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

// A page of comparisons: its file name without the ending, its title and the beginning of its reports' keys.
struct Topic {
  std::string_view name, title, keys;
};

constexpr std::array<Topic, 6> kTopics{{{"fsmoe", "FSMoE (ASPLOS'25)", "fsmoe-"},
                                        {"fsmoe-audit", "FSMoE: every reading of its conventions", "audit"},
                                        {"parm", "Parm (INFOCOM'24)", "parm-"},
                                        {"monta", "MoNTA (2024)", "monta-"},
                                        {"lina", "Lina (ATC'23)", "lina-"},
                                        {"published", "Measurements that others published", ""}}};

// Returns the first topic that has the report; the last one has all that remain.
const Topic& topic_of(const Report& report) {
  return *std::ranges::find_if(kTopics, [&](const Topic& topic) { return report.key.starts_with(topic.keys); });
}

std::string topic_text(const Topic& topic, const std::vector<const Report*>& reports, std::string_view summary) {
  std::string text = fmt::format("# {}\n\n", topic.title);
  text += wrapped(fmt::format("Printed numbers and what moetune computes for them. [Reproducing the papers]({}) "
                              "summarizes all comparisons.",
                              summary),
                  "") +
          '\n';
  for (Report report : reports | std::views::transform([](const Report* r) { return *r; })) {
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

}  // namespace moe::reproduce
