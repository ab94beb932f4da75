#pragma once
// Measures a gate's pairs of launches.
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "commands/regress/launches.h"
#include "commands/regress/rule.h"
#include "moe/record/writer.h"

namespace moe::regress {

/// Measures pairs by launches and records each launch at once, so that an interrupted gate resumes from the records of
/// its writer.
class PairedRuns {
 public:
  struct Setup {
    Arm base, head;
    std::vector<LaunchLine> lines;
    std::vector<std::string> launcher;
    double timeout_s = 0;  // timeout of a launch; 0: a multiple of the first launch's time
    uint64_t seed = 1;
    std::string key = "ab";  // first part of the records' keys
    // Called for every case of a launch that belongs to a pair.
    std::function<void(int pair, bool head, size_t of_case, const CaseTimes& times)> tell = {};
  };
  PairedRuns(Setup setup, RecordWriter& writer);

  /// Launches each line once with each program, to find the cases and the duration of a launch; these times are not
  /// judged. Leaves out a line if the hardware that it needs is missing (exit code 77 from both programs), unless the
  /// line demands it. Throws RankFailure if a launch fails or hangs.
  void warm_up();

  /// Returns the cases that both programs measured, in the order of their names.
  const std::vector<std::string>& cases() const { return cases_; }
  const std::vector<std::string>& only_in_base() const { return only_in_base_; }
  const std::vector<std::string>& only_in_head() const { return only_in_head_; }
  /// Returns the cases that the base measured and the head failed, each with the reason.
  const std::map<std::string, std::string>& broken() const { return broken_; }
  const std::vector<std::string>& absent() const { return absent_; }  // lines whose hardware is missing
  double launch_s() const { return launch_s_; }                       // seconds to launch every line once
  /// Number of launches that gave no time for a case, and the reason of the last one.
  struct Missing {
    int launches = 0;
    std::string why = {};
  };
  Missing missing(bool head, const std::string& name) const;
  double peak_bytes(bool head, const std::string& name) const;

  /// Launches both programs once for each line with a wanted case. The order of the lines is random, and so is which
  /// program runs first.
  std::vector<Pair> pair(int number, const std::vector<bool>& wanted);

 private:
  using Times = std::map<std::string, CaseTimes>;
  LaunchResult run_launch(const Arm& arm, const LaunchLine& line) const;
  Times measured(const Arm& arm, const LaunchLine& line, int number, const std::set<std::string>& wanted);
  std::vector<LaunchLine> shuffled(int number) const;
  LaunchLine with_these_alone(LaunchLine line, const std::set<std::string>& wanted) const;
  std::set<std::string> line_cases(const LaunchLine& line, const std::vector<bool>& wanted) const;

  Setup setup_;
  RecordWriter& writer_;
  Launcher launcher_;
  double launch_s_ = 0;
  std::map<std::string, double> timeouts_s_;  // by name of the line
  std::vector<std::string> cases_, only_in_base_, only_in_head_, absent_;
  std::map<std::string, std::string> broken_;
  std::map<std::string, std::string> line_of_;                 // line's name by case
  std::map<std::pair<bool, std::string>, Missing> missing_;    // by arm (true: head) and case
  std::map<std::pair<bool, std::string>, double> peak_bytes_;  // least of all launches, by arm and case
};

}  // namespace moe::regress
