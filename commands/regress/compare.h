#pragma once
// The verb `compare`: compares earlier records of two programs, BASE and HEAD, case by case.
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
  std::string base, head;           // each a file or a folder of *.jsonl; with `metric`, of *.sqlite
  std::string metric;               // "nsys:RANGE": times of an NVTX range in exports of Nsight Systems; empty: records
  std::vector<std::string> filter;  // KEY=VALUE
  std::string by = "family";        // name of the value by which cases are grouped for the table of means
  std::string floor;                // file with records of self-test; empty: its default file
  bool strict = false;
  bool all = false, markdown = false, json = false;
};

/// Prints the comparison. Returns 1 if a case is slower, takes more memory or is broken, else 5 if `strict` and a case
/// is ambiguous, else 0. If no case can be compared, prints the reasons and throws BadInput.
int run_compare(const CompareOptions& options);

// A case in a record: its time, its parameters, and the machine on which it was measured.

/// The time of a case: the median over iterations of the maximum over ranks. The samples are `total_s` for layers and
/// models, and `seconds` for other cases. As in records, times are divided by the dilation.
struct MainTime {
  std::string sample;
  double seconds = 0;
  std::optional<std::string> fault;  // why the time is unknown; none: it is known
};
MainTime main_time(const CaseRecord& record);

/// Returns a value of the case as text: a parameter, or one of key, family, schedule, degree_forward, degree_backward
/// and backend. None if the case has no value of that name.
std::optional<std::string> value_of(const CaseRecord& record, std::string_view name);

/// Returns the family of a case: the first part of its key, and its schedule or, without one, the name of its task,
/// module, op or kernel.
std::string family_of(const CaseRecord& record);

/// A difference as text, "NAME: A against B"; none: the two sides agree.
using Difference = std::optional<std::string>;
/// Returns the first difference between two cases: in dtype, algorithm, a parameter that both have, schedule or
/// degrees.
Difference case_difference(const CaseRecord& a, const CaseRecord& b);
/// Returns the first difference between two machines. Machines with fingerprints are compared by these, others by
/// processor, cores, memory (within 1 %) and architecture.
Difference machine_difference(const Fields& a, const Fields& b);
/// Returns the first difference in the conditions of two measurements: version of the measurement, machine, ranks,
/// threads, backend, whether the cluster was emulated, and its dilation. Equal dilations agree, and so do two dilations
/// other than 1 within a factor of 8.
Difference measured_difference(const RunHeader& run_a, const CaseRecord& a, const RunHeader& run_b,
                               const CaseRecord& b);

/// The "KEY=VALUE" items of --filter: a case is kept if, for every KEY, its value is one of those given. An item
/// without '=' is another value of the previous KEY.
class CaseFilter {
 public:
  /// Throws BadInput if the first item has no KEY.
  explicit CaseFilter(const std::vector<std::string>& items);
  bool keeps(const CaseRecord& record);
  /// Throws BadInput if one of the KEYs is in none of the cases that keeps() was called with.
  void require_known() const;

 private:
  std::map<std::string, std::set<std::string>> wanted_;
  std::set<std::string> seen_;
};

// Matches the cases of two sides and compares each pair.

/// The records of one program: the last run of every file. A case that several files contain was launched several
/// times.
struct Side {
  struct FileRun {
    std::string file;
    Run run;
  };
  std::string path;
  std::vector<FileRun> files;
};

/// Reads a file, or all *.jsonl of a folder. Throws BadInput if a file does not contain records.
Side read_side(const std::string& path);
/// Reads an export of Nsight Systems, or all *.sqlite of a folder. Each is one launch of the case "nsys/RANGE".
Side read_exports(const std::string& path, const std::string& range);

/// Judges the ratio head / base of two times. Changes up to 3 %, or up to `floor` if that is larger, are Verdict::same.
/// `floor` is Floor::between_sessions, a share; without one, a larger change is ambiguous.
inline constexpr double kMinRatio = 1.03;
Verdict time_verdict(double ratio, std::optional<double> floor);

enum class Metric : uint8_t { time, memory };
std::string_view name_of(Metric metric);

/// One metric of a case that both sides have: seconds (main_time; the median of several launches) or peak_bytes (the
/// least of several launches).
struct ComparedCase {
  std::string key, group;
  Metric metric = Metric::time;
  double base = 0, head = 0;
  std::optional<double> floor;  // noise floor of the machine, a share; none: unknown, or memory
  Verdict verdict = Verdict::same;
  int pairs = 1;                          // pairs of launches
  std::optional<Interval> interval = {};  // interval of the ratio; none unless there are several pairs
  int pairs_needed = 0;                   // pairs that would decide an ambiguous case; 0: no number of pairs does
  double ratio() const { return head / base; }
};

/// A case of both sides that is broken or repaired in HEAD, or that cannot be compared, with the reason.
struct CaseRemark {
  std::string key, why;
};

/// The geometric mean of the ratios of a group's cases.
struct GroupRatio {
  std::string group;
  Metric metric = Metric::time;
  int cases = 0;
  double ratio = 0;
};

struct Comparison {
  std::vector<ComparedCase> cases;   // worst first
  std::vector<CaseRemark> repaired;  // cases that are wrong or an error in BASE, and ok in HEAD
  std::vector<CaseRemark> broken;    // cases that only HEAD gets wrong, fails with an error, or can no longer run
  std::vector<CaseRemark> refused;   // cases that cannot be compared, because they were measured differently
  std::vector<std::string> only_in_base, only_in_head;  // keys of cases that only one side has
  std::vector<GroupRatio> groups;                       // groups of time, then of memory, each sorted by name
};

/// Compares the cases that `filter` keeps. Launches of a case are paired in the order of their starts and judged by the
/// gate's rule (rule.h), with a delta of at least the floor. If no floor is known and the two sides were not launched
/// alternately, cases are AMBG instead of SLOW or FAST. `by` names the value by which cases are grouped for means
/// (value_of). Throws BadInput if no case has this value.
Comparison compare_sides(const Side& base, const Side& head, CaseFilter& filter, const std::string& by,
                         const NoiseFloors& floors);

/// Options of comparison_text.
struct ReportFormat {
  bool all = false;       // also lists unchanged cases, and all names
  bool markdown = false;  // Markdown for a comment on a pull request
};

/// Returns the text of a comparison: broken cases, a table of cases, a table of means, and cases that were not
/// compared.
std::string comparison_text(const Side& base, const Side& head, const Comparison& comparison, ReportFormat look);
/// Returns an object with the keys:
/// base, head = {path, runs[] = {file, started, commit, ended}};
/// broken[], repaired[], refused[] = {key, reason};
/// cases[] = {key, group, metric, base, head, ratio, floor, verdict, pairs, least, most, pairs_needed}; groups[] =
/// {group, metric, cases, ratio}; only_in_base, only_in_head: keys. The base and head of a time are in seconds, of
/// memory in bytes.
Json to_json(const Side& base, const Side& head, const Comparison& comparison);

}  // namespace moe::regress
