#pragma once
// The verbs of the command line. Each has a row in commands/cli/verbs.cpp and a function that adds its flags.
#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <string_view>

#include "commands/cli/flags.h"

namespace moe::cli {

/// The executable that a verb needs: the one that plans, or the one with LibTorch too.
enum class ProgramKind { plans, runs };

struct Verb {
  std::string_view name;
  ProgramKind half;
  std::string_view summary;
  /// Adds the verb's flags and returns the call that holds their values after parsing. Flags of all verbs go to
  /// `command`.
  VerbCall (*add)(CLI::App& verb, Command& command);
  bool starts_other_programs = false;  // the verb starts another command line, which follows --

  /// Returns whether the verb itself runs layers, on ranks that can be processes.
  bool runs_layers() const { return half == ProgramKind::runs && !starts_other_programs; }
};

/// Returns all verbs in the order of --help.
std::span<const Verb> all_verbs();

/// Returns the verb of this name; null if there is none.
const Verb* find_verb(std::string_view name);

/// Adds every verb with its flags and returns the calls of all verbs, in the order of all_verbs(). `app` and `command`
/// must outlive them.
std::vector<VerbCall> add_verbs(CLI::App& app, Command& command);

VerbCall add_list(CLI::App& verb, Command& command);
VerbCall add_doctor(CLI::App& verb, Command& command);
VerbCall add_tune(CLI::App& verb, Command& command);
VerbCall add_simulate(CLI::App& verb, Command& command);
VerbCall add_fit(CLI::App& verb, Command& command);
VerbCall add_memory(CLI::App& verb, Command& command);
VerbCall add_model_verb(CLI::App& verb, Command& command);
VerbCall add_placement(CLI::App& verb, Command& command);
VerbCall add_plannerbench(CLI::App& verb, Command& command);
VerbCall add_microbench(CLI::App& verb, Command& command);
VerbCall add_layerbench(CLI::App& verb, Command& command);
VerbCall add_modelbench(CLI::App& verb, Command& command);
VerbCall add_launch(CLI::App& verb, Command& command);
VerbCall add_reproduce(CLI::App& verb, Command& command);
VerbCall add_ab(CLI::App& verb, Command& command);
VerbCall add_self_test(CLI::App& verb, Command& command);
VerbCall add_compare(CLI::App& verb, Command& command);
VerbCall add_history(CLI::App& verb, Command& command);
VerbCall add_export(CLI::App& verb, Command& command);
VerbCall add_import(CLI::App& verb, Command& command);
VerbCall add_report(CLI::App& verb, Command& command);

/// Returns the call of a verb that only plans.
template <class Options>
VerbCall planning(const std::shared_ptr<Options>& options, int (*run)(const Options&)) {
  VerbCall call;
  call.options = options;
  call.run = [options, run] { return run(*options); };
  if constexpr (requires { options->invocation; }) call.invocation = &options->invocation;
  return call;
}

/// Returns the call of a verb that runs layers; `cluster` is one of its options.
template <class Options>
VerbCall running(const std::shared_ptr<Options>& options, int (*RunVerbs::*run)(const Options&, World*),
                 std::string& cluster) {
  VerbCall call;
  call.options = options;
  call.run_layers = [options, run](const RunVerbs& half, World* processes) { return (half.*run)(*options, processes); };
  call.invocation = &options->invocation;
  call.layers = options.get();
  call.cluster = &cluster;
  return call;
}

}  // namespace moe::cli
