#pragma once
// The two programs of a gate, and what their launches measured.
#include <chrono>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands/regress/output_metric.h"
#include "commands/regress/rule.h"
#include "moe/record/record.h"

namespace moe::regress {

// What a gate runs: configs/ci/NAME.toml.

/// A command line. Each case that it measures and that is ok is a case of the gate.
struct LaunchLine {
  std::string name;                         // empty: the only one
  std::vector<std::string> words;           // a verb that writes records, with its flags; with a metric: any command
  bool demanded = false;                    // true: the gate fails without the hardware, instead of skipping this line
  std::optional<OutputMetric> metric = {};  // number to read from the command's output
};

/// A case that may be slower for a while.
struct Waiver {
  std::string name;  // of the case
  std::string reason;
  std::chrono::year_month_day until;  // the last day on which it holds
};

struct CaseList {
  std::string path;  // empty: of a command line
  std::vector<LaunchLine> launches;
  std::vector<Waiver> waivers;
};

/// Returns the launches and waivers of configs/ci/NAME.toml or a file, or the one command line, read by `metric`.
/// Throws BadInput "FILE:LINE: KEY: found ..., expected ...", and where both or neither are given to `verb`.
CaseList case_list_of(const std::string& verb, const std::string& cases, const std::vector<std::string>& command,
                      std::optional<OutputMetric> metric = {});

/// One of the two programs that are compared.
struct Arm {
  std::string name;                // "base", "head"
  std::string program;             // moetune; empty: no line is of its verbs
  std::string folder;              // in which commands of a metric run; empty: this one
  std::vector<std::string> flags;  // behind the command line's own
};

/// Returns the arm of a tree (`dir`; empty: this program and folder) for the lines of a list. Throws BadInput
/// "WHAT: ..." where it lacks what they need: moetune (program_in), of metrics a folder to run in.
Arm arm_in(const std::string& name, const std::string& dir, std::vector<std::string> flags, const CaseList& list,
           const std::string& what);
/// Returns what a person reads of it: the program or the folder, and its flags.
std::string text_of(const Arm& arm);
/// Returns the program of a tree: DIR itself where it is one, else what ./moetune and cmake build into it, or what was
/// installed there. Throws BadInput "WHAT: ..." where there is none.
std::string program_in(const std::string& dir, const std::string& what);
/// Returns the program that runs.
std::string own_program();

/// Returns the program and the one beside it that runs layers: what records depend on. None where it is empty.
std::vector<std::string> files_of_program(const std::string& program);
/// Returns the metric of flags; none: both are empty.
std::optional<OutputMetric> metric_of(const std::string& metric, const std::string& unit);
/// Adds to a question that it is asked now where lines are of metrics: it is not known on what they depend, so a gate
/// that was broken off begins again.
void ask_anew(const CaseList& list, Asked& asked);

/// How a launch ended. One that failed or left no records has no cases.
struct LaunchEnd {
  int code = 0;
  bool timed_out = false;
  double wall_s = 0;
  std::string last_line;
  std::map<std::string, CaseTimes> cases;     // by name
  std::map<std::string, std::string> not_ok;  // "wrong: ..."
};

/// Name the samples that are judged: passes of layers and models, all samples of operations and kernels.
inline constexpr std::string_view kOfLayers = "total_s", kOfOps = "seconds";
/// Returns these samples of a record; none where it is not ok, a repeat (compare.h) or lacks them.
std::optional<CaseTimes> times_of(const CaseRecord& record, std::string_view sample);

/// A temporary folder, which is removed with this object.
class ScratchFolder {
 public:
  /// Throws BadInput where no folder can be made.
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string file(std::string_view name) const { return fmt::format("{}/{}", path_, name); }

 private:
  std::string path_;
};

/// Starts launches; what they write lies in a folder of its own.
class Launcher {
 public:
  /// `before`: the words of a launcher such as "mpirun -np 2", which stand before the program.
  explicit Launcher(std::vector<std::string> before) : before_(std::move(before)) {}
  /// Returns the line that `run` starts, as a person would type it.
  std::string shown(const Arm& arm, const LaunchLine& line) const;
  /// Runs the line. Where a launch has passes of layers, the operations that it timed to predict them are no cases.
  LaunchEnd run(const Arm& arm, const LaunchLine& line, double timeout_s) const;

 private:
  std::vector<std::string> argv(const Arm& arm, const LaunchLine& line) const;
  LaunchEnd run_other(const Arm& arm, const LaunchLine& line, double timeout_s) const;

  std::vector<std::string> before_;
  ScratchFolder folder_;
};

}  // namespace moe::regress
