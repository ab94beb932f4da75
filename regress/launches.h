#pragma once
// The two programs of a gate, and what their launches measured.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "moe/record/record.h"
#include "regress/case_list.h"

namespace moe::regress {

/// One of the two programs that are compared.
struct Arm {
  std::string name;                // "base", "head"
  std::string program;             // moetune
  std::vector<std::string> flags;  // behind the command line's own
};

/// Returns the program of a tree: DIR itself where it is one, else what ./moetune and cmake build into it, or what was
/// installed there. Throws BadInput "WHAT: ..." where there is none.
std::string program_in(const std::string& dir, const std::string& what);
/// Returns the program that runs.
std::string own_program();

/// Returns the program and the one beside it that runs layers: what records depend on.
std::vector<std::string> files_of_program(const std::string& program);

/// Holds what one launch measured of a case.
struct CaseTimes {
  std::vector<std::vector<double>> samples;  // seconds[iteration][rank]
  double peak_bytes = 0;                     // of the tensors; 0: not counted
  /// The median over iterations of the maximum over ranks.
  double seconds() const;
};

/// Says how a launch ended. One that failed or left no records has no cases.
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
/// Returns these samples of a record; none where it is not ok, a repeat (compare_records.h) or lacks them.
std::optional<CaseTimes> times_of(const CaseRecord& record, std::string_view sample);

/// Starts launches; what they write lies in a folder of its own, which is removed with it.
class Launcher {
 public:
  /// `before`: the words of a launcher such as "mpirun -np 2", which stand before the program.
  explicit Launcher(std::vector<std::string> before);
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  /// Returns the line that `run` starts, as a person would type it.
  std::string shown(const Arm& arm, const LaunchLine& line) const;
  /// Runs the line. Where a launch has passes of layers, the operations that it timed to predict them are no cases.
  LaunchEnd run(const Arm& arm, const LaunchLine& line, double timeout_s) const;

 private:
  std::vector<std::string> argv(const Arm& arm, const LaunchLine& line) const;

  std::vector<std::string> before_;
  std::string folder_;
};

}  // namespace moe::regress
