#pragma once
// What self-test found, as text and as JSON.
#include <string>
#include <vector>

#include "regress/floor.h"
#include "regress/recorded_launches.h"
#include "regress/rule_study.h"

namespace moe::regress {

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
