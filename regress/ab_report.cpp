#include "regress/ab_report.h"

#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>

#include "moe/base/exit_code.h"
#include "moe/base/json.h"
#include "moe/base/statistics.h"
#include "moe/base/table.h"
#include "moe/base/units.h"

namespace moe::regress {
namespace {

constexpr double kMiB = 1 << 20;

std::string change(double ratio) { return fmt::format("{:+.1f} %", 100 * (ratio - 1)); }

std::string interval_of(const Judged& judged) {
  if (!std::isfinite(judged.interval.most)) return "-";
  return fmt::format("{} to {}", change(judged.interval.least), change(judged.interval.most));
}

std::string why_of(const GatedCase& c) {
  const Judged& judged = c.judged;
  std::vector<std::string> why;
  if (judged.bimodal)
    why.push_back(fmt::format("BIMODAL: slow in {} launches of base, {} of head", judged.slow_base, judged.slow_head));
  if (judged.verdict == Verdict::ambiguous) why.push_back(fmt::format("needs about {} pairs", judged.pairs_needed));
  if (judged.verdict == Verdict::slower || judged.verdict == Verdict::faster)
    why.push_back(fmt::format("p = {:.1g}", judged.p));
  if (c.memory() != Verdict::same)
    why.push_back(
        fmt::format("memory {}: {:.1f} -> {:.1f} MiB", name_of(c.memory()), c.base_bytes / kMiB, c.head_bytes / kMiB));
  if (c.waiver && c.slower()) why.push_back(fmt::format("waived: {}", c.waiver->reason));
  return fmt::format("{}", fmt::join(why, "; "));
}

// Lists what is not the same, worst first.
std::vector<const GatedCase*> told(const AbResults& results) {
  std::vector<const GatedCase*> rows;
  for (const GatedCase& c : results.cases)
    if (c.judged.verdict != Verdict::same || c.memory() != Verdict::same) rows.push_back(&c);
  const auto rank = [](const GatedCase* c) {
    return std::pair(c->slower() ? 0 : c->judged.verdict == Verdict::ambiguous ? 1 : 2, -c->judged.ratio);
  };
  std::ranges::stable_sort(rows, {}, rank);
  return rows;
}

std::vector<std::string> cells_of(const GatedCase& c) {
  return {c.name,
          fmt::format("{:.3f}", 1e3 * c.base_s),
          fmt::format("{:.3f}", 1e3 * c.head_s),
          change(c.judged.ratio),
          interval_of(c.judged),
          fmt::format("{}", c.pairs),
          std::string(name_of(c.slower() ? Verdict::slower : c.judged.verdict)),
          why_of(c)};
}

Table table_of(const AbResults& results) {
  Table table({"case", "base ms", "head ms", "head", "interval", "pairs", "verdict", "why"});
  for (const GatedCase* c : told(results)) table.add(cells_of(*c));
  return table;
}

std::string counts_of(const AbResults& results) {
  std::string text;
  for (const Verdict verdict : {Verdict::slower, Verdict::ambiguous, Verdict::faster, Verdict::same}) {
    const auto count = std::ranges::count_if(results.cases, [&](const GatedCase& c) {
      return (c.slower() ? Verdict::slower : c.judged.verdict) == verdict;
    });
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name_of(verdict));
  }
  return text.empty() ? "no case" : text;
}

std::vector<std::string> remarks_of(const AbResults& results) {
  std::vector<std::string> lines;
  for (const auto& [name, why] : results.broken) lines.push_back(fmt::format("{}: the head fails: {}", name, why));
  if (!results.only_in_head.empty())
    lines.push_back(fmt::format("in the head alone: {}", fmt::join(results.only_in_head, ", ")));
  if (!results.absent.empty())
    lines.push_back(fmt::format("left out, their hardware is not here: {}", fmt::join(results.absent, ", ")));
  lines.insert(lines.end(), results.remarks.begin(), results.remarks.end());
  std::vector<double> visible;
  for (const GatedCase& c : results.cases) visible.push_back(c.judged.visible);
  if (!visible.empty())
    lines.push_back(
        fmt::format("about 19 of 20 such gates find a case that is {:.1f} % slower, of the noisiest case {:.1f} %",
                    100 * median(visible), 100 * quantile(visible, 1)));
  return lines;
}

std::string head_line(const AbResults& results) {
  return fmt::format("{}: delta {:.1f} %{}, {} pairs of launches, {}", counts_of(results), 100 * results.rule.delta,
                     results.delta_from, results.pairs, human_seconds(results.wall_s));
}

}  // namespace

Verdict GatedCase::memory() const {
  return base_bytes > 0 && head_bytes > 0 ? memory_verdict(head_bytes / base_bytes) : Verdict::same;
}

int AbResults::code(bool strict) const {
  if (!broken.empty()) return kRankFailure;
  bool ambiguous = false;
  for (const GatedCase& c : cases) {
    if (c.slower() && !c.waiver) return kRegression;
    ambiguous = ambiguous || (c.judged.verdict == Verdict::ambiguous && !c.waiver);
  }
  return strict && ambiguous ? kDoubtful : kOk;
}

std::string text_of(const AbResults& results) {
  const Table table = table_of(results);
  std::string text = fmt::format("base  {}\nhead  {}\n\n", results.base, results.head);
  if (!table.empty()) text += fmt::format("{}\n", table.text());
  text += head_line(results) + "\n";
  for (const std::string& line : remarks_of(results)) text += fmt::format("{}\n", line);
  return text + fmt::format("records  {}", results.records);
}

std::string markdown_of(const AbResults& results) {
  const Table table = table_of(results);
  std::string text = fmt::format("**{}**\n", markdown_text(head_line(results)));
  if (!table.empty()) text += fmt::format("\n{}", table.markdown());
  for (const std::string& line : remarks_of(results)) text += fmt::format("\n- {}", markdown_text(line));
  return text;
}

std::string json_of(const AbResults& results) {
  Json cases = Json::array();
  for (const GatedCase& c : results.cases) {
    Json json{{"case", c.name},
              {"verdict", name_of(c.judged.verdict)},
              {"ratio", c.judged.ratio},
              {"least", c.judged.interval.least},
              {"most", c.judged.interval.most},
              {"p", c.judged.p},
              {"pairs", c.pairs},
              {"pairs_needed", c.judged.pairs_needed},
              {"visible", c.judged.visible},
              {"base_s", c.base_s},
              {"head_s", c.head_s},
              {"memory", name_of(c.memory())},
              {"base_bytes", c.base_bytes},
              {"head_bytes", c.head_bytes},
              {"bimodal", c.judged.bimodal}};
    if (c.waiver) json["waived"] = c.waiver->reason;
    cases.push_back(std::move(json));
  }
  Json broken = Json::object();
  for (const auto& [name, why] : results.broken) broken[name] = why;
  return document_text(Json{{"base", results.base},
                            {"head", results.head},
                            {"delta", results.rule.delta},
                            {"pairs", results.pairs},
                            {"wall_s", results.wall_s},
                            {"records", results.records},
                            {"cases", cases},
                            {"broken", broken},
                            {"only_in_head", results.only_in_head},
                            {"absent", results.absent},
                            {"remarks", results.remarks}});
}

}  // namespace moe::regress
