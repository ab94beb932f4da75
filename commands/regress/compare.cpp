#include "commands/regress/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fmt/ranges.h>
#include <tuple>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/files.h"
#include "moe/base/statistics.h"
#include "moe/base/table.h"
#include "moe/base/text.h"
#include "moe/base/units.h"
#include "moe/record/pass_times.h"

namespace moe::regress {
namespace {

bool has(const Comparison& c, Verdict verdict) {
  return std::ranges::find(c.cases, verdict, &ComparedCase::verdict) != c.cases.end();
}

}  // namespace

int run_compare(const CompareOptions& o) {
  CaseFilter filter(o.filter);
  const NoiseFloors floors(o.floor);
  const std::optional<std::string> range = range_of_metric(o.metric);
  require<BadInput>(o.metric.empty() || (range && !range->empty()), "--metric: found {}, expected nsys:RANGE",
                    quoted_text(o.metric));
  const auto read = [&](const std::string& path) { return range ? read_exports(path, *range) : read_side(path); };
  const Side base = read(o.base), head = read(o.head);
  const Comparison c = compare_sides(base, head, filter, o.by, floors);
  if (o.json)
    fmt::print("{}\n", document_text(to_json(base, head, c)));
  else
    fmt::print("{}", comparison_text(base, head, c, {.all = o.all, .markdown = o.markdown}));
  if (c.cases.empty() && c.broken.empty() && c.repaired.empty())
    bad_input(
        "compare: found no case that can be compared in {} and {} ({} measured differently, {} only in BASE, {} only "
        "in "
        "HEAD), expected a case with the same parameters, machine and backend in both",
        o.base, o.head, c.refused.size(), c.only_in_base.size(), c.only_in_head.size());
  if (!c.broken.empty() || has(c, Verdict::slower)) return kRegression;
  return o.strict && has(c, Verdict::ambiguous) ? kDoubtful : kOk;
}

namespace {

constexpr double kSameMemory = 0.01;  // relative; how much memory a kernel reserves varies
constexpr double kSameDilation = 8;   // a factor; disturbed passes are repeated at up to four times their dilation

std::string text_or_none(const Scalar* value) { return value ? scalar_text(*value) : "none"; }

Difference difference(std::string_view name, const std::string& a, const std::string& b) {
  if (a == b) return std::nullopt;
  return fmt::format("{}: {} against {}", name, a, b);
}

Difference difference(std::string_view name, const Fields& a, const Fields& b) {
  return difference(name, text_or_none(a.find(name)), text_or_none(b.find(name)));
}

Difference first_of(std::initializer_list<Difference> all) {
  for (const Difference& one : all)
    if (one) return one;
  return std::nullopt;
}

Difference memory_difference(const Fields& a, const Fields& b) {
  const std::optional<double> bytes_a = a.find_number("memory_bytes"), bytes_b = b.find_number("memory_bytes");
  if (bytes_a && bytes_b && std::abs(*bytes_a - *bytes_b) <= kSameMemory * *bytes_a) return {};
  return difference("memory_bytes", a, b);
}

Difference dilation_difference(double a, double b) {
  if (a == b || (a != 1 && b != 1 && std::max(a, b) <= kSameDilation * std::min(a, b))) return std::nullopt;
  return fmt::format("dilation: {:.4g} against {:.4g}", a, b);
}

Difference ranks_difference(const RunHeader& a, const RunHeader& b) {
  for (const char* name : {"threads", "backend", "ranks", "nodes", "ranks_per_node", "device", "attention"})
    if (const Difference found = difference(name, a.ranks, b.ranks)) return found;
  if (a.ranks.has("threads")) return std::nullopt;
  return difference("OMP_NUM_THREADS", a.environment, b.environment);
}

}  // namespace

MainTime main_time(const CaseRecord& record) {
  for (const char* name : {"total_s", "seconds"})
    for (const Samples& samples : record.samples) {
      if (samples.name != name) continue;
      MainTime time{name, 0, {}};
      const auto usable = [](double s) { return std::isfinite(s) && s > 0; };
      if (samples.values.empty() || std::ranges::any_of(samples.values, &std::vector<double>::empty))
        time.fault = fmt::format("{}: found an iteration without samples, expected at least one in each", name);
      else if (!std::ranges::all_of(samples.values, [&](const auto& v) { return std::ranges::all_of(v, usable); }))
        time.fault = fmt::format("{}: found a sample that is not above 0, expected seconds", name);
      else
        time.seconds = median(max_over_ranks(samples.values));
      return time;
    }
  return {{}, 0, record.backend == "none" ? "nothing was measured" : "found no samples of total_s or seconds"};
}

std::optional<std::string> value_of(const CaseRecord& record, std::string_view name) {
  if (name == "key") return record.key;
  if (name == "family") return family_of(record);
  if (name == "backend") return record.backend;
  if (!record.schedule.empty()) {
    if (name == "schedule") return record.schedule;
    if (name == "degree_forward") return fmt::format("{}", record.degree_forward);
    if (name == "degree_backward") return fmt::format("{}", record.degree_backward);
  }
  if (const Scalar* found = record.parameters.find(name)) return scalar_text(*found);
  return std::nullopt;
}

std::string family_of(const CaseRecord& record) {
  std::string start = record.key.substr(0, record.key.find('/'));
  for (const char* name : {"schedule", "name", "op", "kernel"})
    if (const auto found = value_of(record, name)) return fmt::format("{} {}", start, *found);
  return start;
}

Difference case_difference(const CaseRecord& a, const CaseRecord& b) {
  for (const char* name : {"dtype", "algorithm"})
    if (const Difference found = difference(name, a.parameters, b.parameters)) return found;
  for (const auto& [name, value] : a.parameters)
    if (b.parameters.has(name))
      if (const Difference found = difference(name, a.parameters, b.parameters)) return found;
  const auto degree = [](int d) { return fmt::format("{}", d); };
  return first_of({difference("schedule", a.schedule, b.schedule),
                   difference("degree_forward", degree(a.degree_forward), degree(b.degree_forward)),
                   difference("degree_backward", degree(a.degree_backward), degree(b.degree_backward))});
}

Difference machine_difference(const Fields& a, const Fields& b) {
  if (a.has("fingerprint") && b.has("fingerprint")) return difference("fingerprint", a, b);
  return first_of(
      {difference("cpu", a, b), difference("cores", a, b), memory_difference(a, b), difference("architecture", a, b)});
}

Difference measured_difference(const RunHeader& run_a, const CaseRecord& a, const RunHeader& run_b,
                               const CaseRecord& b) {
  return first_of(
      {difference("measurement", fmt::format("{}", run_a.measurement), fmt::format("{}", run_b.measurement)),
       machine_difference(run_a.machine, run_b.machine), ranks_difference(run_a, run_b),
       difference("backend", a.backend, b.backend),
       difference("emulated", a.emulated ? "yes" : "no", b.emulated ? "yes" : "no"),
       dilation_difference(a.dilation, b.dilation)});
}

CaseFilter::CaseFilter(const std::vector<std::string>& items) {
  std::string key;
  for (const std::string& item : items) {
    const size_t equals = item.find('=');
    if (equals != std::string::npos) key = item.substr(0, equals);
    require<BadInput>(!key.empty(), "--filter: found {}, expected KEY=VALUE", quoted_text(item));
    wanted_[key].insert(equals == std::string::npos ? item : item.substr(equals + 1));
  }
}

bool CaseFilter::keeps(const CaseRecord& record) {
  bool kept = true;
  for (const auto& [key, values] : wanted_) {
    const auto found = value_of(record, key);
    if (found) seen_.insert(key);
    kept = kept && found && values.contains(*found);
  }
  return kept;
}

void CaseFilter::require_known() const {
  for (const auto& [key, values] : wanted_)
    require<BadInput>(seen_.contains(key),
                      "--filter: found {}, which no case has, expected a parameter, schedule or family",
                      quoted_text(key));
}

namespace {

struct Candidate {
  const CaseRecord* record;
  const RunHeader* run;
};
using CandidatesByKey = std::map<std::string, std::vector<Candidate>>;

CandidatesByKey candidates_by_key(const Side& side, CaseFilter& filter) {
  CandidatesByKey found;
  for (const Side::FileRun& file : side.files)
    for (const CaseRecord& record : file.run.cases)
      if (!is_regression_gate_launch(record) && !is_repeat(record) && filter.keeps(record))
        found[record.key].push_back({&record, &file.run.header});
  return found;
}

using Launches = std::vector<Candidate>;  // launches of one case, sorted by start

// Removes from `from` the launches of the same case as `like`, and returns them sorted by start.
Launches take_launches(std::vector<Candidate>& from, const CaseRecord& like) {
  Launches launches;
  std::erase_if(from, [&](const Candidate& one) {
    if (case_difference(like, *one.record)) return false;
    launches.push_back(one);
    return true;
  });
  std::ranges::stable_sort(launches, {}, [](const Candidate& one) { return one.run->started; });
  return launches;
}

// Returns the first launch that is not ok; if all are, the first one.
const Candidate& representative_launch(const Launches& launches) {
  const auto bad = std::ranges::find_if(launches, [](const auto& one) { return one.record->status != CaseStatus::ok; });
  return bad == launches.end() ? launches.front() : *bad;
}

// Returns whether the pairs of launches do not overlap in time: each begins after the one before.
bool launches_alternate(const Launches& base, const Launches& head, size_t pairs) {
  for (size_t i = 0; i + 1 < pairs; ++i)
    if (std::max(base[i].run->started, head[i].run->started) >
        std::min(base[i + 1].run->started, head[i + 1].run->started))
      return false;
  return true;
}

std::optional<double> peak_bytes(const CaseRecord& record) {
  const double bytes = record.summary.find_number("peak_bytes").value_or(0);
  return std::isfinite(bytes) && bytes > 0 ? std::optional(bytes) : std::nullopt;
}

std::string status_text(const CaseRecord& a, const CaseRecord& b) {
  return fmt::format("{} -> {}{}{}", name_of(a.status), name_of(b.status), b.reason.empty() ? "" : ": ", b.reason);
}

// Returns why no launch of the base matches one of the head: the first difference of a launch in `alone` from the
// head's first launch. Launches of one case may differ from each other, because only parameters that both have are
// compared.
Difference first_difference(const std::vector<Launches>& alone, const std::vector<Candidate>& head) {
  if (head.empty()) return std::nullopt;
  for (const Launches& of_base : alone)
    for (const Candidate& one : of_base)
      if (const Difference why = case_difference(*one.record, *head.front().record)) return why;
  return std::nullopt;
}

class Matcher {
 public:
  Matcher(const std::string& by, const NoiseFloors& floors) : by_(by), floors_(floors) {}

  /// Compares all cases of a key that both sides have.
  void match(const std::string& key, std::vector<Candidate> base, std::vector<Candidate> head) {
    std::vector<Launches> alone;
    while (!base.empty()) {
      const CaseRecord& like = *base.front().record;
      Launches of_base = take_launches(base, like);
      if (const Launches of_head = take_launches(head, like); !of_head.empty())
        compare(of_base, of_head);
      else
        alone.push_back(std::move(of_base));
    }
    if (const Difference why = first_difference(alone, head)) {
      out_.refused.push_back({key, *why});
      return;
    }
    for (size_t i = 0; i < alone.size(); ++i) out_.only_in_base.push_back(key);
    while (!head.empty()) take_launches(head, *head.front().record), out_.only_in_head.push_back(key);
  }

  Comparison take() {
    require<BadInput>(out_.cases.empty() || grouped_,
                      "--by: found {}, which no case has, expected a parameter, schedule or family", quoted_text(by_));
    judge_pairs();
    std::ranges::stable_sort(out_.cases, std::greater(), &ComparedCase::ratio);
    std::map<std::tuple<Metric, std::string>, std::pair<int, double>> sums;
    for (const ComparedCase& c : out_.cases) {
      auto& [cases, logs] = sums[{c.metric, c.group}];
      ++cases;
      logs += std::log(c.ratio());
    }
    for (const auto& [name, sum] : sums)
      out_.groups.push_back({std::get<1>(name), std::get<0>(name), sum.first, std::exp(sum.second / sum.first)});
    return std::move(out_);
  }

  Comparison& out() { return out_; }

 private:
  struct Paired {
    size_t of_case;
    Evidence evidence;
    bool launches_alternate;
  };

  // Judges all cases with several pairs together, as one gate.
  void judge_pairs() {
    Rule rule;
    std::vector<Evidence> evidence;
    for (Paired& paired : pairs_) {
      rule.delta = std::max(rule.delta, out_.cases[paired.of_case].floor.value_or(0));
      evidence.push_back(paired.evidence);
    }
    for (Evidence& one : evidence) {  // the first pairs select suspects, further pairs confirm them
      const auto first = std::min(one.first.size(), static_cast<size_t>(rule.first_pairs));
      std::vector<Pair> rest(one.first.begin() + static_cast<ptrdiff_t>(first), one.first.end());
      one.first.resize(first);
      if (!is_suspect(one.first, rule)) continue;
      rest.resize(std::min(rest.size(), static_cast<size_t>(rule.max_pairs)));
      one.second = std::move(rest);
    }
    const std::vector<CaseJudgement> judged = judge(evidence, rule);
    for (size_t i = 0; i < pairs_.size(); ++i) {
      ComparedCase& c = out_.cases[pairs_[i].of_case];
      c.interval = judged[i].interval;
      c.verdict = judged[i].verdict;
      c.pairs_needed = judged[i].pairs_needed;
      const bool differs = c.verdict == Verdict::slower || c.verdict == Verdict::faster;
      if (differs && !c.floor && !pairs_[i].launches_alternate) c.verdict = Verdict::ambiguous;
    }
  }

  void compare(const Launches& of_base, const Launches& of_head) {
    const Candidate &b = representative_launch(of_base), &h = representative_launch(of_head);
    const CaseRecord &base = *b.record, &head = *h.record;
    const auto is_one_of = [](CaseStatus status, auto... any) { return ((status == any) || ...); };
    const bool was_bad = is_one_of(base.status, CaseStatus::wrong, CaseStatus::error);
    if (!was_bad && is_one_of(head.status, CaseStatus::wrong, CaseStatus::error)) {
      out_.broken.push_back({base.key, status_text(base, head)});
      return;
    }
    for (const Launches* launches : {&of_base, &of_head})
      for (const Candidate& one : *launches)
        if (const Difference why = measured_difference(*b.run, base, *one.run, *one.record)) {
          out_.refused.push_back({base.key, *why});
          return;
        }
    if (was_bad && head.status == CaseStatus::ok) {
      out_.repaired.push_back({base.key, status_text(base, head)});
      return;
    }
    const bool was_ok = base.status == CaseStatus::ok;
    if (was_ok && is_one_of(head.status, CaseStatus::oom, CaseStatus::unsupported))
      out_.broken.push_back({base.key, status_text(base, head)});
    else if (!was_ok || head.status != CaseStatus::ok)
      out_.refused.push_back({base.key, fmt::format("status: {}", status_text(base, head))});
    else
      compare_ok(of_base, of_head, floors_.floor(b.run->machine).between_sessions);
  }

  void compare_ok(const Launches& base, const Launches& head, std::optional<double> floor) {
    const std::string& key = base.front().record->key;
    const std::string sample = main_time(*base.front().record).sample;
    std::vector<double> seconds[2], bytes[2];
    for (const Launches* launches : {&base, &head})
      for (const Candidate& one : *launches) {
        const MainTime time = main_time(*one.record);
        if (time.fault) {
          out_.refused.push_back({key, fmt::format("{}: {}", launches == &base ? "BASE" : "HEAD", *time.fault)});
          return;
        }
        if (time.sample != sample) {
          out_.refused.push_back({key, fmt::format("samples: {} against {}", sample, time.sample)});
          return;
        }
        seconds[launches == &head].push_back(time.seconds);
        if (const auto peak = peak_bytes(*one.record)) bytes[launches == &head].push_back(*peak);
      }
    const auto value = value_of(*base.front().record, by_);
    grouped_ = grouped_ || value;
    const std::string group = value.value_or("none");
    const size_t pairs = std::min(base.size(), head.size());
    if (pairs > 1) {
      Paired paired{out_.cases.size(), {}, launches_alternate(base, head, pairs)};
      for (size_t i = 0; i < pairs; ++i)
        paired.evidence.first.push_back({std::log(seconds[0][i]), std::log(seconds[1][i])});
      pairs_.push_back(std::move(paired));
    }
    const double was = median(seconds[0]), is = median(seconds[1]);
    out_.cases.push_back(
        {key, group, Metric::time, was, is, floor, time_verdict(is / was, floor), static_cast<int>(pairs)});
    if (bytes[0].empty() || bytes[1].empty()) return;
    const double held = std::ranges::min(bytes[0]), holds = std::ranges::min(bytes[1]);
    out_.cases.push_back({key, group, Metric::memory, held, holds, std::nullopt, memory_verdict(holds / held)});
  }

  const std::string& by_;
  const NoiseFloors& floors_;
  bool grouped_ = false;  // any case has the value that `by` names
  std::vector<Paired> pairs_;
  Comparison out_;
};

}  // namespace

Side read_side(const std::string& path) {
  Side side{path, {}};
  for (const std::string& file : record_files(path, false)) {
    std::vector<Run> runs = read_runs(file);
    if (!runs.empty())
      side.files.push_back({file, std::move(runs.back())});  // a run that was just started may be empty
  }
  require<BadInput>(!side.files.empty(), "{}: found no records, expected at least one run", path);
  return side;
}

Side read_exports(const std::string& path, const std::string& range) {
  namespace fs = std::filesystem;
  std::vector<std::string> files{path};
  if (fs::is_directory(path)) {
    files.clear();
    for (const fs::directory_entry& entry : fs::directory_iterator(path))
      if (without_gz_suffix(entry.path()).ends_with(".sqlite")) files.push_back(entry.path());
    std::ranges::sort(files);
    require<BadInput>(!files.empty(), "{}: found no *.sqlite in the folder, expected exports of Nsight Systems", path);
  }
  Side side{path, {}};
  for (const std::string& file : files) {
    const commands::NsysExport from = commands::read_nsys_export(file);
    CaseRecord record;
    record.key = "nsys/" + range;
    record.where = file;
    record.backend = "nsys";
    record.samples = {{"seconds", range_times(from, range).samples}};
    Run run;
    run.header.started = from.started;
    if (!from.host.empty()) run.header.machine = {{"fingerprint", from.host}};
    run.cases.push_back(std::move(record));
    run.ended = true;
    side.files.push_back({file, std::move(run)});
  }
  return side;
}

std::string_view name_of(Metric metric) { return metric == Metric::time ? "time" : "memory"; }

Verdict time_verdict(double ratio, std::optional<double> floor) {
  const double change = std::log(ratio);
  if (std::abs(change) <= std::max(std::log(kMinRatio), std::log1p(floor.value_or(0)))) return Verdict::same;
  return !floor ? Verdict::ambiguous : change > 0 ? Verdict::slower : Verdict::faster;
}

Comparison compare_sides(const Side& base, const Side& head, CaseFilter& filter, const std::string& by,
                         const NoiseFloors& floors) {
  const CandidatesByKey old_cases = candidates_by_key(base, filter), cases = candidates_by_key(head, filter);
  filter.require_known();
  Matcher matcher(by, floors);
  for (const auto& [key, of_base] : old_cases) {
    const auto found = cases.find(key);
    if (found == cases.end())
      matcher.out().only_in_base.push_back(key);
    else
      matcher.match(key, of_base, found->second);
  }
  for (const auto& [key, of_head] : cases)
    if (!old_cases.contains(key)) matcher.out().only_in_head.push_back(key);
  return matcher.take();
}

namespace {

constexpr size_t kShownNames = 3;
constexpr size_t kShownDigits = 12;  // digits of a commit's hash

std::string commit_of(const RunHeader& run) {
  const std::string* commit = run.git.find_text("commit");
  const Scalar* dirty = run.git.find("dirty");
  if (commit == nullptr) return "unknown";
  return commit->substr(0, kShownDigits) + (dirty != nullptr && *dirty == Scalar(true) ? "-dirty" : "");
}

/// Returns "a, b, c and 2 more".
std::string names(const std::vector<std::string>& all, bool every) {
  const size_t shown = every ? all.size() : std::min(all.size(), kShownNames);
  std::string text = fmt::format("{}", fmt::join(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  return text + (shown < all.size() ? fmt::format(" and {} more", all.size() - shown) : "");
}

std::string value_text(Metric metric, double value) {
  return metric == Metric::time ? human_seconds(value) : human_bytes(value);
}

/// Builds the text from lines and tables.
class Text {
 public:
  explicit Text(ReportFormat look) : look_(look) {}

  void line(const std::string& text) {
    text_ += look_.markdown ? fmt::format("- {}\n", markdown_text(text)) : fmt::format("{}\n", printable(text));
  }
  void table(const Table& table) { text_ += fmt::format("\n{}\n", look_.markdown ? table.markdown() : table.text()); }
  std::string take() { return std::move(text_); }

 private:
  ReportFormat look_;
  std::string text_;
};

void add_side(Text& text, std::string_view name, const Side& side) {
  for (const Side::FileRun& of : side.files)
    text.line(fmt::format("{}: {}, {}, {}{}", name, of.file, of.run.header.started, commit_of(of.run.header),
                          of.run.ended ? "" : "; this run was interrupted"));
}

void add_cases(Text& text, const Comparison& c, bool all) {
  const bool launches = std::ranges::any_of(c.cases, [](const ComparedCase& one) { return one.pairs > 1; });
  std::vector<std::string> columns{"case", "metric", "BASE", "HEAD", "ratio", "verdict"};
  if (launches) columns.insert(columns.end() - 1, {"interval", "pairs"});
  Table table(columns);
  size_t same = 0;
  for (const ComparedCase& one : c.cases) {
    same += one.verdict == Verdict::same;
    if (one.verdict == Verdict::same && !all) continue;
    std::vector<std::string> cells{one.key, std::string(name_of(one.metric)), value_text(one.metric, one.base),
                                   value_text(one.metric, one.head), fmt::format("{:.3f}x", one.ratio())};
    if (launches) {
      const bool bounded = one.interval && std::isfinite(one.interval->max);
      cells.push_back(bounded ? fmt::format("{:.3f}x to {:.3f}x", one.interval->min, one.interval->max) : "-");
      cells.push_back(one.metric == Metric::time ? fmt::format("{}", one.pairs) : "-");
    }
    cells.emplace_back(name_of(one.verdict));
    table.add(std::move(cells));
  }
  if (!table.empty()) text.table(table);
  text.line(fmt::format("SAME: {} of {}{}", same, c.cases.size(), same && !all ? " (--all shows them)" : ""));
}

void add_groups(Text& text, const Comparison& c) {
  Table table({"geometric mean", "metric", "cases", "ratio"});
  for (const GroupRatio& group : c.groups)
    table.add({group.group, std::string(name_of(group.metric)), fmt::format("{}", group.cases),
               fmt::format("{:.3f}x", group.ratio)});
  text.table(table);
}

void add_refused(Text& text, const Comparison& c, bool all) {
  std::map<std::string, std::vector<std::string>> keys;  // keys by reason
  for (const CaseRemark& one : c.refused) keys[one.why].push_back(one.key);
  for (const auto& [why, of] : keys)
    text.line(fmt::format("not compared: {} ({}): {}", of.size(), names(of, all), why));
}

void add_ambiguous(Text& text, const Comparison& c) {
  int needed = 0;
  bool by_floor = false;
  for (const ComparedCase& one : c.cases)
    if (one.verdict == Verdict::ambiguous) {
      needed = std::max(needed, one.pairs_needed);
      by_floor = by_floor || one.pairs_needed == 0;
    }
  if (needed > 0) text.line(fmt::format("AMBG: about {} launches on each side would decide every case", needed));
  if (by_floor)
    text.line(
        "AMBG: without the noise floor of this machine, no time is called SLOW; moetune self-test, run twice, measures "
        "it");
}

Json remarks(const std::vector<CaseRemark>& all) {
  Json json = Json::array();
  for (const CaseRemark& one : all) json.push_back({{"key", one.key}, {"reason", one.why}});
  return json;
}

Json side_json(const Side& side) {
  Json json{{"path", side.path}, {"runs", Json::array()}};
  for (const Side::FileRun& of : side.files)
    json["runs"].push_back({{"file", of.file},
                            {"started", of.run.header.started},
                            {"commit", commit_of(of.run.header)},
                            {"ended", of.run.ended}});
  return json;
}

}  // namespace

std::string comparison_text(const Side& base, const Side& head, const Comparison& c, ReportFormat look) {
  Text text(look);
  for (const CaseRemark& one : c.broken) text.line(fmt::format("broken: {}: {}", one.key, one.why));
  for (const CaseRemark& one : c.repaired) text.line(fmt::format("repaired: {}: {}", one.key, one.why));
  add_side(text, "BASE", base);
  add_side(text, "HEAD", head);
  if (!c.cases.empty()) {
    add_cases(text, c, look.all);
    add_groups(text, c);
  }
  add_ambiguous(text, c);
  add_refused(text, c, look.all);
  for (const auto& [name, keys] : {std::pair("BASE", &c.only_in_base), std::pair("HEAD", &c.only_in_head)})
    if (!keys->empty()) text.line(fmt::format("only in {}: {} ({})", name, keys->size(), names(*keys, look.all)));
  return text.take();
}

Json to_json(const Side& base, const Side& head, const Comparison& c) {
  Json json{{"base", side_json(base)},         {"head", side_json(head)},        {"broken", remarks(c.broken)},
            {"repaired", remarks(c.repaired)}, {"cases", Json::array()},         {"groups", Json::array()},
            {"refused", remarks(c.refused)},   {"only_in_base", c.only_in_base}, {"only_in_head", c.only_in_head}};
  for (const ComparedCase& one : c.cases)
    json["cases"].push_back({{"key", one.key},
                             {"group", one.group},
                             {"metric", name_of(one.metric)},
                             {"base", one.base},
                             {"head", one.head},
                             {"ratio", one.ratio()},
                             {"floor", one.floor ? Json(*one.floor) : Json()},
                             {"verdict", name_of(one.verdict)},
                             {"pairs", one.pairs},
                             {"least", one.interval ? Json(one.interval->min) : Json()},
                             {"most", one.interval ? Json(one.interval->max) : Json()},
                             {"pairs_needed", one.pairs_needed}});
  for (const GroupRatio& group : c.groups)
    json["groups"].push_back(
        {{"group", group.group}, {"metric", name_of(group.metric)}, {"cases", group.cases}, {"ratio", group.ratio}});
  return json;
}

}  // namespace moe::regress
