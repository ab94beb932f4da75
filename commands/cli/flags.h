#pragma once
// The command line, parsed: a verb, what its flags came to, and the flags that all verbs have.
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
  std::optional<int> rank, ranks;  // none: by the environment
  double timeout_s = 60;
  std::string rendezvous;          // HOST:PORT of rank 0; empty: by the environment
  int ranks_per_node = 0;          // 0: by the machines' names
  int min_ctas = 0, max_ctas = 0;  // of an NCCL communicator; 0: its choice
  bool implicit_launch_order = false;
};

/// The verbs that run layers, as the executable that has LibTorch runs them. `processes`: null where ranks are threads.
struct RunningHalf {
  int (*microbench)(const microbench::MicrobenchOptions& options, World* processes);
  int (*layerbench)(const layerbench::LayerbenchOptions& options, World* processes);
  int (*modelbench)(const modelbench::ModelbenchOptions& options, World* processes);
  int (*tune)(const tuner::TuneOptions& options, World* processes);
};

/// What the flags of a verb came to, beside those that all verbs have.
struct VerbCall {
  std::any options;          // a std::shared_ptr of the verb's own
  std::function<int()> run;  // returns the exit code; none: it always runs layers
  Asked* asked = nullptr;    // of a verb that writes records
  /// Of a verb that starts another command line: takes what stands behind the --.
  std::function<void(std::vector<std::string> words)> take_command;

  // Of a verb that runs layers.
  std::function<int(const RunningHalf& half, World* processes)> run_layers;
  std::function<bool()> plans_only;  // whether it runs none this time; none: never
  commands::RunOptions* layers = nullptr;
  std::string* cluster = nullptr;  // processes have the host's alone
};

struct Command {
  std::string verb;
  LogLevel log = LogLevel::progress;
  bool wide = false;
  std::vector<OutTarget> targets;          // what it writes beside records
  int64_t most_input = kDefaultMostInput;  // bytes of a file, unpacked
  RanksFlags ranks;
  VerbCall call;

  /// Returns whether the verb runs layers, and so belongs to the executable that has LibTorch.
  bool runs_layers() const { return call.run_layers && !(call.plans_only && call.plans_only()); }
  /// Returns the verb's own options, which are of this type.
  template <class Options>
  const Options& options() const {
    return *std::any_cast<const std::shared_ptr<Options>&>(call.options);
  }
};

/// Returns the command, or nothing after help or version was printed (exit 0). Throws BadInput naming the flag, what
/// was found and what was expected.
std::optional<Command> parse_command_line(int argc, const char* const* argv);

}  // namespace moe::cli
