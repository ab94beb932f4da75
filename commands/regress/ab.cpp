#include "commands/regress/ab.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/ranges.h>
#include <set>

#include "commands/regress/launches.h"
#include "commands/regress/live_gate.h"
#include "commands/regress/noise_floors.h"
#include "commands/regress/process.h"
#include "moe/base/check.h"
#include "moe/base/json.h"
#include "moe/base/log.h"
#include "moe/base/statistics.h"
#include "moe/base/table.h"
#include "moe/base/terminal.h"
#include "moe/base/units.h"
#include "moe/record/machine.h"

namespace moe::regress {
namespace {

using Clock = std::chrono::steady_clock;

std::chrono::year_month_day today() { return std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now()); }

double median_seconds(const std::vector<Pair>& pairs, double Pair::*of) {
  std::vector<double> seconds;
  for (const Pair& pair : pairs) seconds.push_back(std::exp(pair.*of));
  return seconds.empty() ? 0 : median(seconds);
}

class Ab {
 public:
  explicit Ab(const AbOptions& options)
      : options_(options),
        list_(case_list_of("ab", options.cases, options.command, metric_of(options.metric, options.unit))),
        setup_(setup()),
        writer_(options.out.empty() ? "results/ab.jsonl" : options.out, inputs()),
        gate_(setup_, writer_) {
    rule_.delta = options.delta_percent / 100;
    const double floor = NoiseFloors(options.floor).floor(stamp_run({}).machine).within_session.value_or(0);
    if (floor > rule_.delta) delta_from_ = ", the noise floor that self-test measured here";
    rule_.delta = std::max(rule_.delta, floor);
  }

  int run() {
    const auto start = Clock::now();
    gate_.warm_up();
    if (!gate_.absent().empty() && gate_.absent().size() == list_.launches.size()) {
      log_info(fmt::format("nothing to run: this machine lacks the hardware for {}", fmt::join(gate_.absent(), ", ")));
      return kNoHardware;
    }
    require<BadInput>(!gate_.cases().empty() || !gate_.broken().empty() || !gate_.only_in_base().empty() ||
                          !gate_.only_in_head().empty(),
                      "nothing was compared: the command measured no case, expected a verb that runs layers or "
                      "operations, such as layerbench");
    require<BadInput>(!gate_.cases().empty() || !gate_.broken().empty(),
                      "nothing was compared: found {} cases of the base and {} of the head, expected a case of both",
                      gate_.only_in_base().size(), gate_.only_in_head().size());
    AbResults results = judged();
    writer_.end();
    results.wall_s = std::chrono::duration<double>(Clock::now() - start).count();
    if (options_.json)
      fmt::print("{}\n", json_of(results));
    else
      fmt::print("{}\n", options_.markdown ? markdown_of(results) : text_of(results));
    return results.code(options_.strict);
  }

 private:
  PairedRuns::Setup setup() const {
    const auto arm = [&](const std::string& name, const std::string& dir, const std::string& flags) {
      return arm_in_checkout(name, dir, words_of(flags, fmt::format("--{}-flags", name)), list_, "--" + name);
    };
    return {arm("base", options_.base, options_.base_flags),
            arm("head", options_.head.empty() ? options_.base : options_.head, options_.head_flags),
            list_.launches,
            words_of(options_.launcher, "--launcher"),
            options_.timeout_s,
            options_.seed};
  }

  RunInputs inputs() const {
    std::vector<std::string> files{list_.path};
    for (const Arm* arm : {&setup_.base, &setup_.head})
      for (const std::string& file : files_of_program(arm->program)) files.push_back(file);
    Invocation invocation = options_.invocation;
    invocation.flags.insert(invocation.flags.end(), options_.command.begin(), options_.command.end());
    prevent_resume(list_, invocation);
    return {invocation, files, {}};
  }

  AbResults judged() {
    const double pair_s = 2 * gate_.launch_s();
    log_info(fmt::format("{} cases, {} pairs of launches: about {}; up to {} more pairs if a case is then suspect",
                         gate_.cases().size(), rule_.first_pairs, human_seconds(rule_.first_pairs * pair_s),
                         rule_.max_pairs));
    std::optional<Progress> progress;
    progress.emplace("first pairs", rule_.first_pairs * pair_s);
    int before = 0, stage = rule_.first_pairs;
    const auto measure = [&](int pair, const std::vector<bool>& wanted) {
      auto pairs = gate_.pair(pair, wanted);
      progress->at(static_cast<double>(pair + 1 - before) / stage);
      return pairs;
    };
    const auto second = [&](int pairs, const std::vector<bool>& suspects) {
      progress->finish();
      log_info(
          fmt::format("suspect cases: {}; measuring {} more pairs of them", std::ranges::count(suspects, true), pairs));
      before = stage;
      stage = pairs;
      progress.emplace("fresh pairs of the suspects", pairs * pair_s);
    };
    const GateOutcome outcome = run_gate(gate_.cases().size(), rule_, measure, second);
    progress->finish();
    AbResults results;
    results.base = text_of(setup_.base);
    results.head = text_of(setup_.head);
    results.rule = rule_;
    results.delta_from = delta_from_;
    results.only_in_head = gate_.only_in_head();
    results.absent = gate_.absent();
    results.pairs = outcome.pairs;
    results.records = writer_.path();
    for (const auto& [name, why] : gate_.broken()) add_broken(name, why, results);
    for (const std::string& name : gate_.only_in_base()) add_broken(name, "it is no longer run", results);
    for (size_t i = 0; i < gate_.cases().size(); ++i) add(gate_.cases()[i], outcome, i, results);
    for (const Waiver& waiver : list_.waivers)
      if (today() > waiver.until)
        results.remarks.push_back(fmt::format("{}: its waiver has expired ({})", waiver.name, waiver.reason));
      else if (!used_waivers_.contains(waiver.name))
        results.remarks.push_back(
            fmt::format("{}: its waiver is unused, because there is no case of this name", waiver.name));
    return results;
  }

  std::optional<Waiver> waiver_of(const std::string& name) {
    for (const Waiver& waiver : list_.waivers)
      if (waiver.name == name && today() <= waiver.until) {
        used_waivers_.insert(name);
        return waiver;
      }
    return std::nullopt;
  }

  void add_broken(const std::string& name, const std::string& why, AbResults& results) {
    if (const auto waiver = waiver_of(name))
      results.remarks.push_back(fmt::format("{}: the head fails: {}; waived: {}", name, why, waiver->reason));
    else
      results.broken.emplace_back(name, why);
  }

  // Adds a case. It is broken if most launches of the head gave no time, and not judged if it has fewer than two pairs.
  void add(const std::string& name, const GateOutcome& outcome, size_t i, AbResults& results) {
    const Evidence& evidence = outcome.evidence[i];
    const std::vector<Pair>& pairs = evidence.second.empty() ? evidence.first : evidence.second;
    const PairedRuns::Missing base = gate_.missing(false, name), head = gate_.missing(true, name);
    if (2 * static_cast<size_t>(head.launches) > evidence.first.size() + evidence.second.size())
      return add_broken(name, fmt::format("{} launches gave no time: {}", head.launches, head.why), results);
    if (pairs.size() < 2) {
      results.remarks.push_back(fmt::format("{}: not judged, because {} launches of the base gave no time: {}", name,
                                            base.launches, base.why));
      return;
    }
    results.cases.push_back({name, outcome.judged[i], median_seconds(pairs, &Pair::base),
                             median_seconds(pairs, &Pair::head), static_cast<int>(pairs.size()),
                             gate_.peak_bytes(false, name), gate_.peak_bytes(true, name), waiver_of(name)});
    record_verdict(name, outcome.judged[i], pairs.size());
  }

  void record_verdict(const std::string& name, const CaseJudgement& judged, size_t pairs) {
    CaseRecord record;
    record.key = fmt::format("ab/verdict/{}", name);
    if (writer_.find(record.key) != nullptr) return;
    record.backend = "none";
    record.parameters = {{"case", name}};
    record.summary = {{"verdict", std::string(name_of(judged.verdict))},
                      {"ratio", judged.ratio},
                      {"least", judged.interval.min},
                      {"most", judged.interval.max},
                      {"p", judged.p},
                      {"pairs", static_cast<int64_t>(pairs)}};
    writer_.append(record);
  }

  const AbOptions& options_;
  CaseList list_;
  PairedRuns::Setup setup_;
  RecordWriter writer_;
  PairedRuns gate_;
  Rule rule_;
  std::string delta_from_;
  std::set<std::string> used_waivers_;
};

}  // namespace

int run_ab(const AbOptions& options) {
  return run_interruptibly([&] { return Ab(options).run(); });
}

namespace {

constexpr double kMiB = 1 << 20;

std::string change(double ratio) { return fmt::format("{:+.1f} %", 100 * (ratio - 1)); }

std::string interval_of(const CaseJudgement& judged) {
  if (!std::isfinite(judged.interval.max)) return "-";
  return fmt::format("{} to {}", change(judged.interval.min), change(judged.interval.max));
}

std::string why_of(const GatedCase& c) {
  const CaseJudgement& judged = c.judged;
  std::vector<std::string> why;
  if (judged.bimodal)
    why.push_back(
        fmt::format("BIMODAL: slow in {} launches of the base and {} of the head", judged.slow_base, judged.slow_head));
  if (judged.verdict == Verdict::ambiguous) why.push_back(fmt::format("needs about {} pairs", judged.pairs_needed));
  if (judged.verdict == Verdict::slower || judged.verdict == Verdict::faster)
    why.push_back(fmt::format("p = {:.1g}", judged.p));
  if (c.memory() != Verdict::same)
    why.push_back(
        fmt::format("memory {}: {:.1f} -> {:.1f} MiB", name_of(c.memory()), c.base_bytes / kMiB, c.head_bytes / kMiB));
  if (c.waiver && c.slower()) why.push_back(fmt::format("waived: {}", c.waiver->reason));
  return fmt::format("{}", fmt::join(why, "; "));
}

// Returns the cases to show, worst first: all except those with unchanged time and memory.
std::vector<const GatedCase*> reported_cases(const AbResults& results) {
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
  for (const GatedCase* c : reported_cases(results)) table.add(cells_of(*c));
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
    lines.push_back(fmt::format("only in the head: {}", fmt::join(results.only_in_head, ", ")));
  if (!results.absent.empty())
    lines.push_back(
        fmt::format("left out, because this machine lacks the hardware: {}", fmt::join(results.absent, ", ")));
  lines.insert(lines.end(), results.remarks.begin(), results.remarks.end());
  std::vector<double> visible;
  for (const GatedCase& c : results.cases) visible.push_back(c.judged.visible);
  if (!visible.empty())
    lines.push_back(
        fmt::format("about 19 of 20 such gates find a slowdown of {:.1f} % (of the noisiest case: {:.1f} %)",
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
              {"least", c.judged.interval.min},
              {"most", c.judged.interval.max},
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
