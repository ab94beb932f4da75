#pragma once
// The verb `compare`: records of BASE beside records of HEAD, measured apart, case by case.
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "commands/regress/noise_floors.h"
#include "commands/regress/output_metric.h"
#include "commands/regress/rule.h"
#include "moe/base/json.h"
#include "moe/record/reader.h"

namespace moe::regress {

struct CompareOptions {
  std::string base, head;           // a file or a folder of *.jsonl each; with `metric` of *.sqlite
  std::string metric;               // nsys:RANGE, of exports of Nsight Systems; empty: records
  std::vector<std::string> filter;  // KEY=VALUE
  std::string by = "family";        // what groups of means share
  std::string floor;                // records of a self-test; empty: where it leaves them
  bool strict = false;
  bool all = false, markdown = false, json = false;
};

/// Prints the comparison. Returns 1 where a case is slower, takes more memory or is broken, else 5 where `strict` and a
/// case is ambiguous, else 0. Throws BadInput where nothing can be compared, after what was refused is printed.
int run_compare(const CompareOptions& options);

// Cases as records hold them: what they took, what was asked for, and on what they were measured.

/// What a case took: the median over iterations of the maximum over ranks of its main sample, `total_s` of layers
/// and models, else `seconds`. Seconds are divided by the dilation, as records have them.
struct MainTime {
  std::string sample;
  double seconds = 0;
  std::optional<std::string> fault;  // why there is no such number
};
MainTime main_time(const CaseRecord& record);

/// Returns a parameter as text, or what stands beside parameters: key, family, schedule, degree_forward,
/// degree_backward, backend. Nothing where the case has none of that name.
std::optional<std::string> value_of(const CaseRecord& record, std::string_view name);

/// Returns what a case is of: the first part of its key, and its schedule, else its name (a task's, a module's), its op
/// or its kernel.
std::string family_of(const CaseRecord& record);

/// "NAME: A against B"; none: there is no difference.
using Difference = std::optional<std::string>;
/// Returns the first difference in what decides a case: parameters that both have, dtype, algorithm, schedule, degrees.
Difference asked_difference(const CaseRecord& a, const CaseRecord& b);
/// Returns the same for machines: their fingerprint where both have one, else processor, cores, memory (within 1 %) and
/// architecture.
Difference machine_difference(const Fields& a, const Fields& b);
/// Returns the same for what else times depend on: version of the measurement, machine, ranks and threads of each;
/// backend, whether the cluster was emulated, and its dilation: as modelled (1) or slower, and then within a factor of
/// 8.
Difference measured_difference(const RunHeader& run_a, const CaseRecord& a, const RunHeader& run_b,
                               const CaseRecord& b);

/// The "KEY=VALUE" items of a flag: a case is kept if, of every KEY, it has one of the values. An item without
/// '=' is one more value of the KEY before.
class CaseFilter {
 public:
  /// Throws BadInput naming --filter.
  explicit CaseFilter(const std::vector<std::string>& items);
  bool keeps(const CaseRecord& record);
  /// Throws BadInput where no case that was looked at has one of the KEYs.
  void require_known() const;

 private:
  std::map<std::string, std::set<std::string>> wanted_;
  std::set<std::string> seen_;
};

// Which cases of two sides answer the same question, and what became of each.

/// Records of one program: the last run of every file. Files with the same case are launches of it.
struct Side {
  struct OfFile {
    std::string file;
    Run run;
  };
  std::string path;
  std::vector<OfFile> files;
};

/// Reads a file, or the *.jsonl of a folder. Throws BadInput where a file is none of records.
Side read_side(const std::string& path);
/// Reads a file, or the *.sqlite of a folder: exports of Nsight Systems, each a launch of one case, a range.
Side read_exports(const std::string& path, const std::string& range);

/// Judges a change of time: it counts from 3 % on, or from what sessions of the same code differ by where that is more
/// (`floor`, a share: Floor::between_sessions). Without a floor it is ambiguous.
inline constexpr double kLeastRatio = 1.03;
Verdict time_verdict(double ratio, std::optional<double> floor);

enum class Metric : uint8_t { time, memory };
std::string_view name_of(Metric metric);

/// One metric of a case that both sides have: seconds (main_time), of several launches their median, or peak_bytes, of
/// several their least.
struct ComparedCase {
  std::string key, group;
  Metric metric = Metric::time;
  double base = 0, head = 0;
  std::optional<double> floor;  // of the time, on this machine
  Verdict verdict = Verdict::same;
  int pairs = 1;                          // of launches
  std::optional<Interval> interval = {};  // of the ratio, where pairs were judged
  int pairs_needed = 0;                   // pairs that would decide an ambiguous case; 0: no number of pairs does
  double ratio() const { return head / base; }
};

/// A case that both sides have and that can't be compared, or is broken in HEAD, and why.
struct CaseRemark {
  std::string key, why;
};

/// The geometric mean of ratios.
struct GroupRatio {
  std::string group;
  Metric metric = Metric::time;
  int cases = 0;
  double ratio = 0;
};

struct Comparison {
  std::vector<ComparedCase> cases;   // worst first
  std::vector<CaseRemark> repaired;  // BASE: wrong or error, HEAD: ok
  std::vector<CaseRemark> broken;    // BASE has a result, HEAD: wrong, error; or, measured alike, oom, unsupported
  std::vector<CaseRemark> refused;
  std::vector<std::string> only_in_base, only_in_head;  // keys
  std::vector<GroupRatio> groups;                       // of time, then of memory, each sorted by name
};

/// Compares what `filter` keeps. Launches of a case are paired in the order of their starts and judged as the gate
/// judges its pairs (rule.h); delta is at least the floor. If no floor is known and the sides were not started in
/// turns, cases are AMBG instead of SLOW or FAST. `by` names the value by which cases are grouped for means (value_of).
/// Throws BadInput if no case has it.
Comparison compare_sides(const Side& base, const Side& head, CaseFilter& filter, const std::string& by,
                         const NoiseFloors& floors);

/// How comparison_text shows a comparison.
struct ReportLook {
  bool all = false;       // cases that are the same too, and every name
  bool markdown = false;  // for the comment of a pull request
};

/// Returns what is broken first, then shows a table of cases, one of means, and what was not compared.
std::string comparison_text(const Side& base, const Side& head, const Comparison& comparison, ReportLook look);
/// Returns base, head: path, runs[] = {file, started, commit, dirty, ended}; broken[], repaired[], refused[] =
/// {key, reason};
/// cases[] = {key, group, metric, base, head, ratio, floor, verdict, pairs, least, most, pairs_needed}; groups[] =
/// {group, metric, cases, ratio}; only_in_base, only_in_head: keys. The base and head of a time are in seconds, of
/// memory in bytes.
Json to_json(const Side& base, const Side& head, const Comparison& comparison);

}  // namespace moe::regress
