#pragma once
// The verb `self-test`: how often the gate's rule is wrong on this machine, and what it can see.
#include <string>
#include <vector>

#include "commands/regress/noise_floors.h"
#include "commands/regress/resampling.h"
#include "commands/regress/rule.h"
#include "moe/record/record.h"

namespace moe::regress {

struct SelfTestOptions {
  std::string base;                  // a tree with a built moetune; empty: this program's
  std::string cases;                 // configs/ci/, or a file; empty: `command`
  std::vector<std::string> command;  // a verb that writes records, with its flags; with `metric` any command
  std::string metric, unit;          // as AbOptions has them
  std::string launcher;
  double delta_percent = 3;
  double timeout_s = 0;      // of a launch; 0: by the first one
  int gates = 10;            // of equal programs, for real; each has six pairs, and fresh ones of its suspects
  int64_t resamples = 2000;  // gates made of the launches recorded, a row
  bool simulate = false;     // no launches: the rule beside others' on made-up machines
  uint64_t seed = 1;
  std::string out;  // records; empty: results/self-test.jsonl
  bool json = false;
  Asked asked;
};

/// Returns 0; throws as ab does.
int run_self_test(const SelfTestOptions& options);

// The gate's rule beside three that others use, over many gates of made-up machines.

/// ours     pairs, two stages (rule.h)
/// rank_sum Mann and Whitney's test at 5 %, on arms one after the other
/// ratio    of the arms' medians, above 1.05
/// welch    Welch's t at 5 %
enum class GateRule : uint8_t { ours, rank_sum, ratio, welch };
inline constexpr int kGateRules = 4;
std::string_view name_of(GateRule rule);

struct StudyRow {
  std::string_view noise;
  GateRule rule = GateRule::ours;
  double slowdown = 0;           // of one case of each gate; 0: of none
  int64_t gates = 0, found = 0;  // with a SLOW: of the slowed case, where there is one
  double pairs = 0;              // a gate, in the mean
};

/// Judges gates on every made-up machine by every rule. `slowdowns`: shares. The other rules have kBlockedLaunches
/// launches of each arm.
inline constexpr int kBlockedLaunches = 12;
std::vector<StudyRow> study_rules(const Rule& rule, size_t cases, int64_t gates, const std::vector<double>& slowdowns,
                                  uint64_t seed);

/// What self-test found, as text and as JSON.
struct SelfTestedCase {
  std::string name;
  double median_s = 0;
  double launch_deviation = 0;  // of log seconds
};

struct SelfTestResults {
  std::string program;
  Rule rule;
  std::vector<SelfTestedCase> cases;
  int live_gates = 0, live_slow = 0, live_fast = 0, live_pairs = 0;  // slow, fast: gates with any
  struct Row {
    Injection injection;
    ResampledGates gates;
  };
  std::vector<Row> rows;
  Floor floor;
  int sessions = 1;  // of this build on this machine, with this one
  double wall_s = 0;
  std::string records;
};

std::string text_of(const SelfTestResults& results);
std::string json_of(const SelfTestResults& results);
/// Returns a table with a row for each machine and slowdown, and a column for each rule.
std::string text_of(const std::vector<StudyRow>& rows);
std::string json_of(const std::vector<StudyRow>& rows);

}  // namespace moe::regress
