#pragma once
// The verb `self-test`: how often the gate's rule is wrong on this machine, and which slowdowns it finds.
#include <string>
#include <vector>

#include "commands/regress/noise_floors.h"
#include "commands/regress/resampling.h"
#include "commands/regress/rule.h"
#include "moe/record/record.h"

namespace moe::regress {

struct SelfTestOptions {
  std::string base;                  // checkout with a built moetune; empty: this program
  std::string cases;                 // name of a list in configs/ci/, or a file; empty: `command` is run
  std::vector<std::string> command;  // a verb that writes records, with its flags; with `metric` any command
  std::string metric, unit;          // as in AbOptions
  std::string launcher;
  double delta_percent = 3;
  double timeout_s = 0;      // timeout of a launch; 0: a multiple of the first launch's time
  int gates = 10;            // gates of equal programs to launch
  int64_t resamples = 2000;  // resampled gates for each row of the table
  bool simulate = false;     // compares the rule with others on simulated machines, without launches
  uint64_t seed = 1;
  std::string out;  // file of the records; empty: results/self-test.jsonl
  bool json = false;
  Invocation invocation;
};

/// Returns 0, or 77 if the hardware of all launches is missing. Throws like run_ab.
int run_self_test(const SelfTestOptions& options);

// Compares the gate's rule with three common rules, on many gates of simulated machines.

/// A rule that decides whether the head is slower. All but `ours` see all launches of one program before the other's.
/// ours     pairs in two stages (rule.h)
/// rank_sum Mann and Whitney's test at 5 %
/// ratio    the ratio of the medians is above 1.05
/// welch    Welch's t-test at 5 %
enum class GateRule : uint8_t { ours, rank_sum, ratio, welch };
inline constexpr int kGateRules = 4;
std::string_view name_of(GateRule rule);

struct StudyRow {
  std::string_view noise;
  GateRule rule = GateRule::ours;
  double slowdown = 0;           // slowdown of one case of each gate, a share; 0: equal programs
  int64_t gates = 0, found = 0;  // found: gates that call the slowed case (without one, any case) slower
  double pairs = 0;              // mean pairs per gate
};

/// Judges gates on every simulated machine by every rule; `slowdowns` are shares. Rules other than `ours` get
/// kBlockedLaunches launches of each program.
inline constexpr int kBlockedLaunches = 12;
std::vector<StudyRow> study_rules(const Rule& rule, size_t cases, int64_t gates, const std::vector<double>& slowdowns,
                                  uint64_t seed);

/// One case of a self-test.
struct SelfTestedCase {
  std::string name;
  double median_s = 0;
  double launch_deviation = 0;  // standard deviation of a launch's log seconds
};

struct SelfTestResults {
  std::string program;
  Rule rule;
  std::vector<SelfTestedCase> cases;
  int live_gates = 0, live_slow = 0, live_fast = 0,
      live_pairs = 0;  // live_slow, live_fast: gates with a false SLOW or FAST
  struct Row {
    Injection injection;
    ResampledGates gates;
  };
  std::vector<Row> rows;
  Floor floor;
  int sessions = 1;  // self-tests of this build on this machine, including this one
  double wall_s = 0;
  std::string records;
};

std::string text_of(const SelfTestResults& results);
std::string json_of(const SelfTestResults& results);
/// Returns a table with a row for each machine and slowdown, and a column for each rule.
std::string text_of(const std::vector<StudyRow>& rows);
std::string json_of(const std::vector<StudyRow>& rows);

}  // namespace moe::regress
