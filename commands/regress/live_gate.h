#pragma once
// Pairs of real launches: what a gate measures.
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "commands/regress/launches.h"
#include "commands/regress/rule.h"
#include "moe/record/writer.h"

namespace moe::regress {

/// Measures pairs by launches and records each as soon as it is known: a gate that was broken off goes on with what its
/// writer has.
class LiveGate {
 public:
  struct Setup {
    Arm base, head;
    std::vector<LaunchLine> lines;
    std::vector<std::string> launcher;
    double timeout_s = 0;  // of a launch; 0: by the first one
    uint64_t seed = 1;
    std::string key = "ab";  // what the keys of the records begin with
    // Told of every launch that is part of a pair.
    std::function<void(int pair, bool head, size_t of_case, const CaseTimes& times)> tell = {};
  };
  LiveGate(Setup setup, RecordWriter& writer);

  /// Launches each line once with each program, which is not judged: it finds the cases, and how long a launch takes.
  /// Leaves out lines whose hardware neither finds (exit code 77), unless they demand it. Throws RankFailure where a
  /// launch fails or hangs.
  void warm_up();

  /// Returns the cases that both programs measured, in the order of their names.
  const std::vector<std::string>& cases() const { return cases_; }
  const std::vector<std::string>& only_in_base() const { return only_in_base_; }
  const std::vector<std::string>& only_in_head() const { return only_in_head_; }
  /// Returns by case why the head refused or got wrong what the base measured.
  const std::map<std::string, std::string>& broken() const { return broken_; }
  const std::vector<std::string>& absent() const { return absent_; }  // lines without their hardware
  double launch_s() const { return launch_s_; }                       // of one launch of every line
  /// How many launches of a pair had no time of a case, and why the last one had none.
  struct Missing {
    int launches = 0;
    std::string why = {};
  };
  Missing missing(bool head, const std::string& name) const;
  double peak_bytes(bool head, const std::string& name) const;

  /// Launches both programs once for each line with a wanted case: lines in a random order, and the programs of each.
  std::vector<Pair> pair(int number, const std::vector<bool>& wanted);

 private:
  using Times = std::map<std::string, CaseTimes>;
  LaunchEnd checked(const Arm& arm, const LaunchLine& line) const;
  Times measured(const Arm& arm, const LaunchLine& line, int number, const std::set<std::string>& wanted);
  std::vector<LaunchLine> shuffled(int number) const;
  LaunchLine with_these_alone(LaunchLine line, const std::set<std::string>& wanted) const;
  std::set<std::string> of_line(const LaunchLine& line, const std::vector<bool>& wanted) const;

  Setup setup_;
  RecordWriter& writer_;
  Launcher launcher_;
  double launch_s_ = 0;
  std::map<std::string, double> timeouts_s_;  // of a line
  std::vector<std::string> cases_, only_in_base_, only_in_head_, absent_;
  std::map<std::string, std::string> broken_;
  std::map<std::string, std::string> line_of_;                 // of a case
  std::map<std::pair<bool, std::string>, Missing> missing_;    // of head or base
  std::map<std::pair<bool, std::string>, double> peak_bytes_;  // the least of all launches, of head or base
};

}  // namespace moe::regress
