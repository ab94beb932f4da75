#pragma once
// The records of measurements: JSON Lines of five kinds, which are appended and never rewritten.
//
//   {"kind": "run", ...}     RunHeader: the command line, program and machine of the run
//   {"kind": "case", ...}    CaseRecord: one measured (or refused) case
//   {"kind": "cases", ...}   CaseGroup: cases that share parameters (record_json.h)
//   {"kind": "resume", ...}  the run was interrupted and continues here
//   {"kind": "end", ...}     the run is complete
//
// Names contain their unit: `bytes`, `flops`, or `_s` at the end for seconds; shapes and counts have none. A number
// that is not finite is written as null and read back as NaN.
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace moe {

inline constexpr int kRecordSchema = 2;  // version 1 had no lines of kind "cases"
/// The version of the timing methods. It is increased when a change of the methods (warm-up, what a sample covers, what
/// is excluded) changes the measured numbers. Numbers of different versions are not compared.
inline constexpr int64_t kMeasurement = 1;

using Scalar = std::variant<bool, int64_t, double, std::string>;

std::string scalar_text(const Scalar& value);

/// Named values in the order in which they were set.
class Fields {
 public:
  using Row = std::pair<std::string, Scalar>;
  Fields() = default;
  Fields(std::initializer_list<Row> rows);

  /// Adds a value or replaces the one of that name.
  void set(std::string_view name, Scalar value);
  const Scalar* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// These return the value if it exists and has the type, else nothing; a whole number is also a number.
  std::optional<double> find_number(std::string_view name) const;
  const std::string* find_text(std::string_view name) const;

  /// These return the value or throw BadInput "WHERE: NAME: found ..., expected ...".
  double number(std::string_view name, std::string_view where) const;
  int64_t whole(std::string_view name, std::string_view where) const;
  const std::string& text(std::string_view name, std::string_view where) const;

  bool empty() const { return rows_.empty(); }
  auto begin() const { return rows_.begin(); }
  auto end() const { return rows_.end(); }
  bool operator==(const Fields&) const = default;

 private:
  std::vector<Row> rows_;
};

/// The outcome of a case.
/// ok          verified and timed
/// wrong       the result disagrees with the reference; never timed
/// invalid     timed, but the measurement exceeded its limits (for example too many overruns)
/// oom, error  a rank ran out of memory, or failed
/// unsupported can't be planned, priced or run with these flags
enum class CaseStatus : uint8_t { ok, wrong, invalid, oom, unsupported, error };
std::string_view name_of(CaseStatus status);

/// The raw samples of one quantity, values[iteration][rank]; seconds are already divided by the dilation.
struct Samples {
  std::string name;  // "forward_s"
  std::vector<std::vector<double>> values;
  bool operator==(const Samples&) const = default;
};

/// The times of one task of a plan. Names are those of the plan.
struct TaskTimes {
  std::string name;               // "backward dispatch 2/4 of layer 0"
  std::string kind, phase, lane;  // "dispatch", "backward", "inter"
  int layer = 0;
  int chunk = 0, chunks = 1;      // chunk counts from 0
  double start_s = 0, end_s = 0;  // from the start of the plan's first task
  bool operator==(const TaskTimes&) const = default;
};

/// The measured and simulated times of a task of a layer's plan on one rank in one pass, in seconds from the start of
/// the pass, divided by the dilation.
struct MeasuredTask {
  std::string kind, phase, lane;
  int chunk = 0, chunks = 1;
  double start_s = 0, end_s = 0;
  double predicted_start_s = 0, predicted_end_s = 0;
  bool operator==(const MeasuredTask&) const = default;
};

struct MeasuredTimeline {
  int rank = 0;
  bool predicted = false;           // false: the predicted times are 0 and not written
  std::vector<MeasuredTask> tasks;  // in issue order; empty: not recorded
  bool operator==(const MeasuredTimeline&) const = default;
};

/// A part of an answer as it is printed: a label such as "WHY", sentences, and a table.
struct AnswerPart {
  std::string label;
  std::vector<std::string> items;
  std::vector<std::vector<std::string>> table;  // rows of cells, the header first; empty: no table
  bool operator==(const AnswerPart&) const = default;
};

struct CaseRecord {
  std::string key;  // unique in its run
  CaseStatus status = CaseStatus::ok;
  std::string reason;  // explanation if the status is not ok
  Fields parameters;
  std::string schedule;  // empty, with degrees 0, if the case has no schedule
  int degree_forward = 0, degree_backward = 0;
  std::string backend;  // local, gloo, nccl, nccl-one-gpu; "none": nothing ran
  bool emulated = false;
  double dilation = 1;
  std::vector<Samples> samples;
  Fields summary;     // statistics of the maximum over ranks: median_s, ...
  Fields prediction;  // simulated values, with the same names
  std::optional<double> bound_s;
  std::vector<TaskTimes> timeline;     // predicted, in issue order; empty: not recorded
  MeasuredTimeline measured_timeline;  // of a layer that ran
  std::vector<AnswerPart> answer;      // of `tune`, in the order of its text; empty: not recorded
  std::string where;                   // "FILE:LINE" if it was read from a file; not part of the record
};

/// Returns the samples of that name; null if there are none or they have no iteration.
const Samples* find_samples(const CaseRecord& record, std::string_view name);
/// Returns whether the record is a launch of one of the two programs that a gate or self-test compares.
bool is_regression_gate_launch(const CaseRecord& record);
/// Returns whether the record repeats an operation because its first time was off the line of its series.
bool is_repeat(const CaseRecord& record);
/// Throws WrongResult "KEY: REASON" if the case's status is `wrong`.
void require_right(const CaseRecord& record);

/// Cases that are written as one line, for example those of one layer, so that shared values are written only once.
/// They are read back as ordinary cases. They must not have their own parameters, samples or timelines.
struct CaseGroup {
  Fields parameters;  // parameters that all cases share
  std::vector<CaseRecord> cases;
};

/// The command line of a run, and the handling of its records file.
struct Invocation {
  std::vector<std::string> argv;   // the command line as shown to people
  std::vector<std::string> flags;  // the flags that the records depend on, in any fixed order: "tune", "--seed=3"
  bool has_named_file = false;     // the user named the records file; then it may only contain records of one question
  bool overwrite = false;          // the contents of the records file are replaced
  std::string alternative = {};    // advice for another question, for messages
  Fields built_from = {{"commit", std::string("unknown")}};  // RunHeader's git
};

/// Everything that determines a run's records, except the program, the machine and the environment: its command line,
/// input files and ranks.
struct RunInputs {
  Invocation invocation;
  std::vector<std::string> files;  // files that the run read: profile, grid, layer, trace; empty names are ignored
  Fields ranks;                    // RunHeader::ranks of a run with several processes
};

/// The description of a run in its records. It contains no host name or user, paths only in argv, and only environment
/// variables of an allow-list.
struct RunHeader {
  int schema = kRecordSchema;
  int64_t measurement = kMeasurement;  // 0: a record from before this field existed
  std::string started;                 // UTC, ISO 8601
  std::vector<std::string> argv;
  /// Digest of everything that determines the records (machine.h); a run can be resumed if it is equal.
  std::string config_digest;
  std::string version;  // version of the program; empty: unknown
  Fields git;           // commit, dirty
  std::string build;    // build id of the program; empty: unknown
  std::string compiler;
  Fields libraries;   // name -> version
  Fields machine;     // constant properties (machine_of): cpu, cores, memory_bytes, ..., fingerprint
  Fields conditions;  // changing properties (conditions_of), not in the digest: load1, ...
  Fields environment;
  Fields ranks;  // threads per rank; for processes also backend, ranks, nodes and network interface
};

}  // namespace moe
