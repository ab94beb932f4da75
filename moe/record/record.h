#pragma once
// The records that a measurement leaves behind: JSON Lines of five kinds, appended and never rewritten.
//
//   {"kind": "run", ...}     RunHeader: what was asked, by which program, on which machine
//   {"kind": "case", ...}    CaseRecord: one measured (or refused) case
//   {"kind": "cases", ...}   CaseGroup: cases that have their parameters in common (record_json.h)
//   {"kind": "resume", ...}  the run was broken off and goes on here
//   {"kind": "end", ...}     the run is complete
//
// Names carry their unit: `bytes`, `flops`, anything ending in `_s` (seconds); shapes and counts have none.
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
/// The version of how things are timed: raised when the same program on the same machine would give other numbers
/// because of how they are measured (what is warmed up, what a sample spans, what is left out). Figures of two versions
/// are not compared.
inline constexpr int64_t kMeasurement = 1;

using Scalar = std::variant<bool, int64_t, double, std::string>;

std::string scalar_text(const Scalar& value);

/// Named values in the order in which they were set.
class Fields {
 public:
  using Row = std::pair<std::string, Scalar>;
  Fields() = default;
  Fields(std::initializer_list<Row> rows);

  /// Adds, or replaces the value of that name.
  void set(std::string_view name, Scalar value);
  const Scalar* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }

  /// These return typed values; a whole number is a number too. Throws BadInput "WHERE: NAME: found ..., expected ...".
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
/// wrong       the result disagrees with the reference: never a number
/// invalid     timed, but the measurement broke its own rules (e.g. too many overruns)
/// oom, error  a rank ran out of memory, or failed
/// unsupported can't be planned, priced or run as asked
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

/// A task of a layer's plan as one rank ran it in one pass, seconds over the dilation from the start of the
/// pass, and when the simulator said that it would run.
struct MeasuredTask {
  std::string kind, phase, lane;
  int chunk = 0, chunks = 1;
  double start_s = 0, end_s = 0;
  double predicted_start_s = 0, predicted_end_s = 0;
  bool operator==(const MeasuredTask&) const = default;
};

struct MeasuredTimeline {
  int rank = 0;
  bool predicted = false;           // else the tasks' predicted times are 0 and not written
  std::vector<MeasuredTask> tasks;  // in issue order; empty: none is kept
  bool operator==(const MeasuredTimeline&) const = default;
};

/// A part of an answer as terminals print it: a label such as "WHY", sentences, and a table.
struct AnswerPart {
  std::string label;
  std::vector<std::string> items;
  std::vector<std::vector<std::string>> table;  // cells by row, the heads first; empty: it has none
  bool operator==(const AnswerPart&) const = default;
};

struct CaseRecord {
  std::string key;  // unique in its run
  CaseStatus status = CaseStatus::ok;
  std::string reason;  // why it is not ok
  Fields parameters;
  std::string schedule;  // empty where none is involved, with degrees 0
  int degree_forward = 0, degree_backward = 0;
  std::string backend;  // local, gloo, nccl, nccl-one-gpu; "none": nothing ran
  bool emulated = false;
  double dilation = 1;
  std::vector<Samples> samples;
  Fields summary;     // over max over ranks: median_s, ...
  Fields prediction;  // what the simulator said, under the same names
  std::optional<double> bound_s;
  std::vector<TaskTimes> timeline;     // predicted, in issue order; empty: none is kept
  MeasuredTimeline measured_timeline;  // of a layer that ran
  std::vector<AnswerPart> answer;      // of `tune`, in the order of its text; empty: none is kept
  std::string where;                   // "FILE:LINE" where it was read; not part of the record
};

/// Returns whether the record is of one launch of a gate or of a self-test: one of many, of either program.
bool is_of_gate(const CaseRecord& record);
/// Returns whether an operation was measured again there, its time being off its series' line: chance decides which.
bool is_repeat(const CaseRecord& record);
/// Throws WrongResult "KEY: REASON" where the case is wrong.
void require_right(const CaseRecord& record);

/// Cases, of one layer, say, that are written at once: their line has once what they share. Read back they are
/// cases as any others. They have no parameters of their own, no samples and no timeline.
struct CaseGroup {
  Fields parameters;  // of each
  std::vector<CaseRecord> cases;
};

/// How a run was asked for.
struct Asked {
  std::vector<std::string> argv;   // the command line, for people
  std::vector<std::string> flags;  // of it what the records depend on, in any fixed order: "tune", "--seed=3"
  bool named_file = false;         // the records file by its name: it is to hold the answers to one question
  bool overwrite = false;          // and what it holds makes room
  std::string otherwise = {};      // what lets another question be answered, as messages name it
  Fields built_from = {{"commit", std::string("unknown")}};  // RunHeader's git
};

/// Everything that decides a run's records, but for the program, the machine and the environment.
struct Question {
  Asked asked;
  std::vector<std::string> files;  // that it read: profile, grid, layer, trace; empty names count as no file
  Fields ranks;                    // of a run of processes, see RunHeader
};

/// Everything that a run is stamped with: no host name, user or path beside argv, and of the environment an
/// allow-list alone.
struct RunHeader {
  int schema = kRecordSchema;
  int64_t measurement = kMeasurement;  // 0: of a record from before it was counted
  std::string started;                 // UTC, ISO 8601
  std::vector<std::string> argv;
  std::string config_digest;  // of all that decides the records (machine.h): runs of one digest can be resumed
  std::string version;        // of the program; empty: unknown
  Fields git;                 // commit, dirty
  std::string build;          // the program's build id, of its linker; empty: unknown
  std::string compiler;
  Fields libraries;   // name -> version
  Fields machine;     // what stays: cpu, cores, memory_bytes, ..., fingerprint (machine.h)
  Fields conditions;  // what changes, and is not in the digest: load1, free_memory_bytes, ... (machine.h)
  Fields environment;
  Fields ranks;  // threads of each; of processes: backend, how many, on how many nodes, over which interface
};

}  // namespace moe
