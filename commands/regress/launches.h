#pragma once
// The two programs of a gate, and what their launches measured.
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "commands/regress/output_metric.h"
#include "commands/regress/rule.h"
#include "moe/base/random.h"
#include "moe/record/record.h"

namespace moe::regress {

// What a gate runs: configs/ci/NAME.toml.

/// A command line. Each case that it measures and that is ok is a case of the gate.
struct LaunchLine {
  std::string name;                         // empty: the only one
  std::vector<std::string> words;           // a verb that writes records, with its flags; of a metric: any command
  bool demanded = false;                    // without its hardware the gate fails, in the place of leaving this out
  std::optional<OutputMetric> metric = {};  // reads what the command prints
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
  LaunchEnd run_other(const Arm& arm, const LaunchLine& line, double timeout_s) const;

  std::vector<std::string> before_;
  std::string folder_;
};

// Launches of equal programs that were recorded, and gates made of them: how often the rule is wrong on this machine.

/// What is done to the head's times of one case of a gate.
struct Injection {
  std::string_view name;
  double slowdown = 0;           // a share; 0: nothing is done
  bool one_rank = false;         // to one rank of each launch, not to all
  double share_of_launches = 1;  // 0.25: a slow mode that a quarter of the launches is in
};
const std::vector<Injection>& injections();

/// One pair of launches of every case; empty: the case has none in this round.
struct Round {
  std::vector<std::optional<CaseTimes>> base, head;
};

struct ResampledGates {
  int64_t gates = 0;
  int64_t any_slow = 0;  // gates with any SLOW
  int64_t found = 0;     // gates where the slowed case is
  int64_t unsure = 0;    // where it is ambiguous
};

/// Draws gates from blocks of neighbouring rounds, which keeps what drifts, with the programs' names drawn anew.
/// Without an injection equal programs are judged.
ResampledGates resample(const std::vector<Round>& rounds, const Rule& rule, const Injection& injection, int64_t gates,
                        uint64_t seed);

/// Returns how far one launch of a case deviates: the deviation of its pairs' log ratios over the root of 2.
double launch_deviation(const std::vector<Round>& rounds, size_t of_case);

/// Returns the log ratio that 99 % of resamples stay within: of each the largest mean of any case over so many pairs of
/// equal programs.
double floor_of(const std::vector<Round>& rounds, int pairs, int64_t samples, uint64_t seed);

// What self-test measured on a machine: how far apart equal programs may lie.

inline constexpr const char* kSelfTestRecords = "results/self-test.jsonl";
inline constexpr const char* kFloorKey = "self-test/floor";

/// Relative deviations; empty: not measured.
struct Floor {
  std::optional<double> within_session;    // 99 % of cases' means over a stage's pairs stay within it
  std::optional<double> between_sessions;  // the largest of a case's medians in two sessions
};

/// The floors of all machines in a file of self-tests.
class NoiseFloors {
 public:
  /// `path`: empty for kSelfTestRecords, which need not be there. Throws BadInput where a named file can't be read, and
  /// for a floor that is no number from 0.
  explicit NoiseFloors(const std::string& path);
  /// Returns the last floors of a machine like this one.
  Floor of(const Fields& machine) const;

 private:
  struct OfMachine {
    Fields machine;
    Floor floor;
  };
  std::vector<OfMachine> floors_;
};

// Launches of a made-up machine, to learn how often a rule is wrong.

/// How a machine's launches scatter, in shares of their time. A launch's cases share what the machine does then.
struct MachineNoise {
  std::string_view name;
  double launch = 0.015;  // normal deviation of a case's launch
  double drift = 0;       // deviation of a step of a random walk, a launch
  double spikes = 0;      // share of launches that something disturbs: longer by 20 % in the mean, exponentially
  double slow_mode = 0;   // share of launches of a case that lie in a mode 12 % slower
  double neighbour = 0;   // slower while a neighbour is busy, which comes and goes every 20 launches or so
};
const std::vector<MachineNoise>& machine_noises();

/// Makes launches in the order of time; the same seed and gate give the same ones.
class NoisyLaunches {
 public:
  NoisyLaunches(const MachineNoise& noise, size_t cases, uint64_t seed, uint64_t gate);
  /// Returns every case's log seconds of the next launch, about 0.
  const std::vector<double>& next();
  /// Returns a number uniform in [0, 1), for decisions by lot.
  double uniform() { return random_uniform(seed_, stream_, index_++); }

 private:
  const MachineNoise& noise_;
  uint64_t seed_, stream_, index_ = 0;
  double level_ = 0;  // of the random walk
  bool busy_ = false;
  std::vector<double> times_;
};

}  // namespace moe::regress
