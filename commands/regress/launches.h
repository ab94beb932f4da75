#pragma once
// The two programs that a gate compares, and the results of their launches.
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

// The command lines that a gate runs: configs/ci/NAME.toml.

/// A command line. Each case that it measures successfully is a case of the gate.
struct LaunchLine {
  std::string name;                         // prefix of its cases' names; empty: the command on the command line
  std::vector<std::string> words;           // a verb that writes records, with its flags; with a metric: any command
  bool demanded = false;                    // true: the gate fails without the hardware, instead of skipping this line
  std::optional<OutputMetric> metric = {};  // how to read times in the output; none: records are read
};

/// Permission for a case to be slower until a date.
struct Waiver {
  std::string name;  // name of the case
  std::string reason;
  std::chrono::year_month_day until;  // last valid day
};

struct CaseList {
  std::string path;  // file; empty: the list is one command on the command line
  std::vector<LaunchLine> launches;
  std::vector<Waiver> waivers;
};

/// Returns the launches and waivers of `cases` (a name in configs/ci/, or a file) or, if `cases` is empty, a list of
/// `command` alone, whose output is read by `metric`. Throws BadInput "FILE:LINE: KEY: found ..., expected ..." for a
/// bad file, and if both or neither of `cases` and `command` are given to `verb`.
CaseList case_list_of(const std::string& verb, const std::string& cases, const std::vector<std::string>& command,
                      std::optional<OutputMetric> metric = {});

/// One of the two programs that are compared.
struct Arm {
  std::string name;                // "base", "head"
  std::string program;             // path of moetune; empty: all lines are other commands
  std::string folder;              // folder in which other commands run; empty: the current one
  std::vector<std::string> flags;  // flags that are appended to every command line
};

/// Returns the arm for the lines of a list. `dir` is a checkout or folder; empty: this program and the current folder.
/// Throws BadInput "WHAT: ..." if `dir` has no moetune for the verbs (program_in_checkout), or is no folder for other
/// commands.
Arm arm_in_checkout(const std::string& name, const std::string& dir, std::vector<std::string> flags,
                    const CaseList& list, const std::string& what);
/// Returns the arm as text: its program or folder, and its flags.
std::string text_of(const Arm& arm);
/// Returns the path of moetune: `dir` itself if it is an executable file, else the program that was built or installed
/// in this folder. Throws BadInput "WHAT: ..." if it is not found.
std::string program_in_checkout(const std::string& dir, const std::string& what);
/// Returns the path of the running program.
std::string current_program();

/// Returns the files on which the records of a program depend: itself, and PROGRAM-run beside it if that exists.
std::vector<std::string> files_of_program(const std::string& program);
/// Returns the metric of the flags --metric and --unit; none if both are empty.
std::optional<OutputMetric> metric_of(const std::string& metric, const std::string& unit);
/// Adds the current time to the question if a line has a metric, so that an interrupted gate starts again instead of
/// resuming: the files that other commands depend on are unknown, and may have changed.
void prevent_resume(const CaseList& list, Invocation& invocation);

/// The result of a launch. A launch that failed or wrote no records has no cases.
struct LaunchResult {
  int code = 0;
  bool timed_out = false;
  double wall_s = 0;
  std::string last_line;
  std::map<std::string, CaseTimes> cases;     // by name
  std::map<std::string, std::string> not_ok;  // reasons by name: "wrong: ..."
};

/// Names of the samples that are judged: passes of layers and models, and samples of operations and kernels.
inline constexpr std::string_view kLayerTimeField = "total_s", kOpTimeField = "seconds";
/// Returns the samples of that name; none if the record lacks them, is not ok, or is a repeat (is_repeat).
std::optional<CaseTimes> times_of(const CaseRecord& record, std::string_view sample);

/// A temporary folder, which is removed with this object.
class ScratchFolder {
 public:
  /// Throws BadInput if no folder can be created.
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string file(std::string_view name) const { return fmt::format("{}/{}", path_, name); }

 private:
  std::string path_;
};

/// Runs launches, whose records go to a temporary folder.
class Launcher {
 public:
  /// `before`: the words of a launcher such as "mpirun -np 2", which precede the program.
  explicit Launcher(std::vector<std::string> before) : before_(std::move(before)) {}
  /// Returns the command line of a launch for messages, with the launcher and the arm's flags.
  std::string command_text(const Arm& arm, const LaunchLine& line) const;
  /// Runs the line. If a launch has passes of layers, the operations that it timed to predict them are not cases.
  LaunchResult run(const Arm& arm, const LaunchLine& line, double timeout_s) const;

 private:
  std::vector<std::string> argv(const Arm& arm, const LaunchLine& line) const;
  LaunchResult run_other(const Arm& arm, const LaunchLine& line, double timeout_s) const;

  std::vector<std::string> before_;
  ScratchFolder folder_;
};

}  // namespace moe::regress
