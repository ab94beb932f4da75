#pragma once
// The parsed command line: a verb, the values of its flags, and the flags that all verbs have.
#include <any>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "commands/shared/run_options.h"
#include "moe/base/files.h"
#include "moe/base/log.h"
#include "moe/record/record.h"

namespace moe {
class World;
}
namespace moe::microbench {
struct MicrobenchOptions;
}
namespace moe::layerbench {
struct LayerbenchOptions;
}
namespace moe::modelbench {
struct ModelbenchOptions;
}
namespace moe::tuner {
struct TuneOptions;
}

namespace moe::cli {

/// What carries collectives: the memory of one process, whose threads are the ranks, or a library between processes.
enum class Backend : uint8_t { local, gloo, nccl };
std::string_view name_of(Backend backend);

/// How the ranks of a verb that runs layers come to be: threads of one process, or processes from outside.
struct RanksFlags {
  Backend backend = Backend::local;
  std::optional<int> rank, ranks;  // none: from the launcher's variables
  double timeout_s = 60;
  std::string rendezvous;          // HOST:PORT of rank 0; empty: taken from the environment
  int ranks_per_node = 0;          // 0: derived from the machines' names
  int min_ctas = 0, max_ctas = 0;  // thread blocks of an NCCL communicator; 0: NCCL's choice
  bool implicit_launch_order = false;
};

/// The verbs that run layers, in the executable that has LibTorch. `processes`: null if ranks are threads.
struct RunVerbs {
  int (*microbench)(const microbench::MicrobenchOptions& options, World* processes);
  int (*layerbench)(const layerbench::LayerbenchOptions& options, World* processes);
  int (*modelbench)(const modelbench::ModelbenchOptions& options, World* processes);
  int (*tune)(const tuner::TuneOptions& options, World* processes);
};

/// The parsed flags of a verb, without those that all verbs have.
struct VerbCall {
  std::any options;                  // a std::shared_ptr of the verb's own options
  std::function<int()> run;          // runs the verb and returns the exit code; empty: the verb always runs layers
  Invocation* invocation = nullptr;  // the question of the verb's records; null: it writes none
  /// For a verb that starts another command line: receives the words after the --.
  std::function<void(std::vector<std::string> words)> take_command;

  // For a verb that runs layers.
  std::function<int(const RunVerbs& half, World* processes)> run_layers;
  std::function<bool()> plans_only;  // returns whether this call only plans; empty: it runs layers
  commands::RunOptions* layers = nullptr;
  std::string* cluster = nullptr;  // the option --cluster; if ranks are processes, only the host's is allowed
};

struct Command {
  std::string verb;
  LogLevel log = LogLevel::progress;
  bool wide = false;
  std::vector<OutTarget> targets;             // files and folders that the verb writes, besides records
  int64_t max_input = kDefaultMaxInputBytes;  // largest size of an input file, in bytes after decompression
  RanksFlags ranks;
  VerbCall call;

  /// Returns whether the command runs layers and so needs the executable that has LibTorch.
  bool runs_layers() const { return call.run_layers && !(call.plans_only && call.plans_only()); }
  /// Returns the verb's own options; `Options` is their type.
  template <class Options>
  const Options& options() const {
    return *std::any_cast<const std::shared_ptr<Options>&>(call.options);
  }
};

/// Returns the command, or none after printing help or the version (exit code 0). Throws BadInput naming the flag, the
/// value found and the values expected.
std::optional<Command> parse_command_line(int argc, const char* const* argv);

}  // namespace moe::cli
