#pragma once
// The records that a measurement writes: JSON Lines of five kinds, appended and never rewritten.
//
//   {"kind": "run", ...}     RunHeader: what was asked, by which program, on which machine
//   {"kind": "case", ...}    CaseRecord: one measured (or refused) case
//   {"kind": "cases", ...}   CaseGroup: cases that share parameters (record_json.h)
//   {"kind": "resume", ...}  the run was interrupted and continues here
//   {"kind": "end", ...}     the run is complete
//
// Names carry their unit: `bytes`, `flops`, `_s` at the end (seconds); shapes and counts have none.
// A number that is not finite is written as null and read back as NaN.
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace moe {

inline constexpr int kRecordSchema = 2;  // 1 had no "cases"
/// The version of the timing methods. It is raised when the same program on the same machine would give other numbers
/// because the method changed (what is warmed up, what a sample covers, what is left out). Figures of two versions are
/// not compared.
inline constexpr int64_t kMeasurement = 1;

using Scalar = std::variant<bool, int64_t, double, std::string>;

std::string scalar_text(const Scalar& value);

/// Named values in the order in which they were set.
class Fields {
 public:
  using Row = std::pair<std::string, Scalar>;
  Fields() = default;
  Fields(std::initializer_list<Row> rows);

  /// Adds a value, or replaces the value of that name.
  void set(std::string_view name, Scalar value);
  const Scalar* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// These return the value if there is one of the type; a whole number is a number too.
  std::optional<double> find_number(std::string_view name) const;
  const std::string* find_text(std::string_view name) const;

  /// The same for values that must be there. Throws BadInput "WHERE: NAME: found ..., expected ...".
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

/// How a case ended.
/// ok          verified and timed
/// wrong       the result disagrees with the reference; never timed
/// invalid     timed, but the measurement violated its own limits (e.g. too many overruns)
/// oom, error  a rank ran out of memory, or failed
/// unsupported can't be planned, priced or run with these flags
enum class CaseStatus : uint8_t { ok, wrong, invalid, oom, unsupported, error };
std::string_view name_of(CaseStatus status);

/// One quantity's raw samples, seconds already divided by the dilation: values[iteration][rank].
struct Samples {
  std::string name;  // "forward_s"
  std::vector<std::vector<double>> values;
  bool operator==(const Samples&) const = default;
};

/// When one task of a plan ran; names are the plan's.
struct TaskTimes {
  std::string name;               // "backward dispatch 2/4 of layer 0"
  std::string kind, phase, lane;  // "dispatch", "backward", "inter"
  int layer = 0;
  int chunk = 0, chunks = 1;      // chunk counts from 0
  double start_s = 0, end_s = 0;  // from the start of the plan's first task
  bool operator==(const TaskTimes&) const = default;
};

/// A task of a layer's plan as one rank ran it in one pass, with its simulated times. Seconds from the start of the
/// pass, divided by the dilation.
struct MeasuredTask {
  std::string kind, phase, lane;
  int chunk = 0, chunks = 1;
  double start_s = 0, end_s = 0;
  double predicted_start_s = 0, predicted_end_s = 0;
  bool operator==(const MeasuredTask&) const = default;
};

struct MeasuredTimeline {
  int rank = 0;
  bool predicted = false;           // whether the tasks have predicted times; else these are 0 and not written
  std::vector<MeasuredTask> tasks;  // in issue order; empty: not recorded
  bool operator==(const MeasuredTimeline&) const = default;
};

/// A part of an answer as terminals print it: a label such as "WHY", sentences, and a table.
struct AnswerPart {
  std::string label;
  std::vector<std::string> items;
  std::vector<std::vector<std::string>> table;  // cells by row, the header first; empty: no table
  bool operator==(const AnswerPart&) const = default;
};

struct CaseRecord {
  std::string key;  // unique in its run
  CaseStatus status = CaseStatus::ok;
  std::string reason;  // why the status is not ok
  Fields parameters;
  std::string schedule;  // empty, with degrees 0, if the case has no schedule
  int degree_forward = 0, degree_backward = 0;
  std::string backend;  // local, gloo, nccl, nccl-one-gpu; "none": nothing ran
  bool emulated = false;
  double dilation = 1;
  std::vector<Samples> samples;
  Fields summary;     // statistics of the maximum over ranks: median_s, ...
  Fields prediction;  // simulated values under the same names
  std::optional<double> bound_s;
  std::vector<TaskTimes> timeline;     // predicted, in issue order; empty: not recorded
  MeasuredTimeline measured_timeline;  // of a layer that ran
  std::vector<AnswerPart> answer;      // of `tune`, in the order of its text; empty: not recorded
  std::string where;                   // "FILE:LINE" from which it was read; not part of the record
};

/// Returns the samples of that name, at least one iteration's; null if there are none.
const Samples* find_samples(const CaseRecord& record, std::string_view name);
/// Returns whether the record is one of many launches of a gate or a self-test, of either compared program.
bool is_of_gate(const CaseRecord& record);
/// Returns whether the record repeats an operation whose time was off the line of its series, which happens by chance.
bool is_repeat(const CaseRecord& record);
/// Throws WrongResult "KEY: REASON" if the case is wrong.
void require_right(const CaseRecord& record);

/// Cases, for example of one layer, that are written as one line, which contains shared values only once. They are read
/// back as ordinary cases. They have no parameters of their own, no samples and no timeline.
struct CaseGroup {
  Fields parameters;  // parameters that all cases share
  std::vector<CaseRecord> cases;
};

/// The command line of a run and how it treats its records file.
struct Asked {
  std::vector<std::string> argv;   // the command line, for people
  std::vector<std::string> flags;  // the flags that the records depend on, in any fixed order: "tune", "--seed=3"
  bool named_file = false;         // the user named the records file, so it must hold only answers to one question
  bool overwrite = false;          // replaces the contents of the records file
  std::string otherwise = {};      // how to get an answer to another question, for messages
  Fields built_from = {{"commit", std::string("unknown")}};  // RunHeader's git
};

/// Everything that determines a run's records, except the program, the machine and the environment.
struct Question {
  Asked asked;
  std::vector<std::string> files;  // files that the run read: profile, grid, layer, trace; empty names are ignored
  Fields ranks;                    // ranks of a run of processes, see RunHeader
};

/// The description of a run in its records. It has no host name, user or path except in argv, and only environment
/// variables of an allow-list.
struct RunHeader {
  int schema = kRecordSchema;
  int64_t measurement = kMeasurement;  // 0: the record is older than this number
  std::string started;                 // UTC, ISO 8601
  std::vector<std::string> argv;
  std::string config_digest;  // digest of all that decides the records (machine.h); equal ones can be resumed
  std::string version;        // version of the program; empty: unknown
  Fields git;                 // commit, dirty
  std::string build;          // the program's build id, from its linker; empty: unknown
  std::string compiler;
  Fields libraries;   // name -> version
  Fields machine;     // what stays the same: cpu, cores, memory_bytes, ..., fingerprint (machine.h)
  Fields conditions;  // what changes and is not in the digest: load1, free_memory_bytes, ... (machine.h)
  Fields environment;
  Fields ranks;  // threads of each; for processes also the backend, ranks, nodes and the network interface
};

}  // namespace moe
