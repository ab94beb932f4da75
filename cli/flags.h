#pragma once
// The command line: verbs, flags that mean the same everywhere, help with examples.
#include <optional>
#include <string>
#include <vector>

#include "cli/launch.h"
#include "doctor/doctor.h"
#include "exchange/exchange.h"
#include "layerbench/layerbench.h"
#include "microbench/microbench.h"
#include "modelbench/modelbench.h"
#include "moe/base/files.h"
#include "moe/base/log.h"
#include "planner/list.h"
#include "planner/memory.h"
#include "planner/model.h"
#include "planner/placement.h"
#include "planner/plannerbench.h"
#include "planner/simulate.h"
#include "regress/ab.h"
#include "regress/compare.h"
#include "regress/history.h"
#include "regress/self_test.h"
#include "report/report.h"
#include "reproduce/reproduce.h"
#include "tuner/fit.h"
#include "tuner/tune.h"

namespace moe::cli {

/// How the ranks of a verb that runs layers come to be: threads of one process, or processes from outside.
struct RanksFlags {
  std::string backend = "local";
  std::optional<int> rank, ranks;  // none: by the environment
  double timeout_s = 60;
  std::string rendezvous;          // HOST:PORT of rank 0; empty: by the environment
  int ranks_per_node = 0;          // 0: by the machines' names
  int min_ctas = 0, max_ctas = 0;  // of an NCCL communicator; 0: its choice
  bool implicit_launch_order = false;
};

struct Command {
  std::string verb;
  LogLevel log = LogLevel::progress;
  bool wide = false;
  std::vector<OutTarget> targets;          // what it writes beside records
  int64_t most_input = kDefaultMostInput;  // bytes of a file, unpacked
  RanksFlags ranks;
  LaunchOptions launch;
  planner::ListOptions list;
  doctor::DoctorOptions doctor;
  planner::SimulateOptions simulate;
  tuner::FitOptions fit;
  planner::MemoryOptions memory;
  planner::ModelOptions model;
  planner::PlacementOptions placement;
  planner::PlannerbenchOptions plannerbench;
  tuner::TuneOptions tune;
  reproduce::ReproduceOptions reproduce;
  regress::AbOptions ab;
  regress::SelfTestOptions self_test;
  regress::CompareOptions compare;
  regress::HistoryOptions history;
  exchange::ExportOptions export_out;
  exchange::ImportOptions import_in;
  report::ReportOptions report;
  microbench::MicrobenchOptions microbench;
  layerbench::LayerbenchOptions layerbench;
  modelbench::ModelbenchOptions modelbench;
};

/// Returns the command, or nothing after help or version was printed (exit 0). Throws BadInput naming the flag, what
/// was found and what was expected.
std::optional<Command> parse_command_line(int argc, const char* const* argv);

/// Returns what the command's verb was told of its ranks; null of a verb that never runs layers.
verbs::RunOptions* run_options(Command& command);

/// Returns whether the verb runs layers, and so belongs to the executable that has LibTorch.
bool runs_layers(const Command& command);

}  // namespace moe::cli
