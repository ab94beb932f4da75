#include "commands/cli/verbs.h"

#include <algorithm>
#include <array>

#include "commands/cli/flag_kinds.h"
#include "moe/base/version.h"

namespace moe::cli {
namespace {

using enum ProgramKind;

constexpr bool kStartsAnother = true;

// `./moetune` reads the verbs from these rows before anything is built: one line each.
// clang-format off
constexpr std::array kVerbs{
    Verb{"list", plans, "list schedules, clusters, grids, layers, models, gates and other parts", add_list},
    Verb{"doctor", plans, "report what disturbs measurements on this machine; changes nothing", add_doctor},
    Verb{"tune", runs, "find the best schedule and degrees of a layer, model or grid; verify them by runs", add_tune},
    Verb{"simulate", plans, "simulate a layer or a model: timeline, lane loads, bounds, memory", add_simulate},
    Verb{"fit", plans, "fit records of microbench to a cluster profile (alpha, beta, r^2, held-out error)", add_fit},
    Verb{"memory", plans, "estimate the memory of a layer or a model on one rank, and whether it fits", add_memory},
    Verb{"model", plans, "print a model's file as moetune reads it: layers, parameters, FLOPs", add_model_verb},
    Verb{"placement", plans, "place context-parallel and expert-parallel groups by MoNTA's rule", add_placement},
    Verb{"plannerbench", plans, "measure speed and memory of tuning and simulation", add_plannerbench},
    Verb{"microbench", runs, "time alltoall, allgather, reducescatter, allreduce and gemm", add_microbench},
    Verb{"layerbench", runs, "run MoE layers under schedules, and compare times with predictions", add_layerbench},
    Verb{"modelbench", runs, "train an MoE model under schedules, and compare steps with predictions", add_modelbench},
    Verb{"launch", runs, "start N processes of tune or a bench on this machine", add_launch, kStartsAnother},
    Verb{"reproduce", plans, "compare a paper's table or figure with our numbers", add_reproduce},
    Verb{"ab", runs, "find out whether one build, or one set of flags, is slower", add_ab, kStartsAnother},
    Verb{"self-test", runs, "measure how often ab is wrong on this machine", add_self_test, kStartsAnother},
    Verb{"compare", plans, "compare records that were measured before and after a change", add_compare},
    Verb{"history", plans, "find the changes in records of many commits", add_history},
    Verb{"export", plans, "write a profile, records or a plan in other formats, or settings of frameworks", add_export},
    Verb{"import", plans, "read measurements of other tools as records for fit", add_import},
    Verb{"report", plans, "write records as one HTML page that opens offline", add_report},
};
// clang-format on

void add_log(CLI::App& verb, LogLevel& log) {
  const auto shows = [&](const std::string& flag, LogLevel level, const std::string& help) {
    return verb.add_flag_callback(
        flag, [&log, level] { log = level; }, help);
  };
  CLI::Option* quiet = shows("--quiet", LogLevel::errors, "print only errors on stderr: no progress, no warnings");
  CLI::Option* verbose = shows("--verbose", LogLevel::decisions, "also print the decisions of each step on stderr");
  verbose->excludes(quiet);
}

// Adds the flags that all verbs have. They come last, in the group of output flags.
void add_common(CLI::App& verb, Command& c) {
  begin_group(verb, kOutput);
  verb.add_flag("--wide", c.wide,
                "print tables with all columns and rows; default: limited to the width of COLUMNS or the terminal");
  add_log(verb, c.log);
  add_bytes(verb, "--max-input", c.max_input, "largest size of an input file, uncompressed; default: 512M");
  verb.set_help_flag();
  verb.set_help_flag("-h,--help", "print this help");
  verb.get_help_ptr()->group(kOutput);
}

}  // namespace

std::span<const Verb> all_verbs() { return kVerbs; }

const Verb* find_verb(std::string_view name) {
  const auto found = std::ranges::find(kVerbs, name, &Verb::name);
  return found == kVerbs.end() ? nullptr : &*found;
}

std::vector<VerbCall> add_verbs(CLI::App& app, Command& command) {
  app.require_subcommand(1);
  app.set_version_flag("--version", "moetune " + std::string(version()));
  app.formatter(help_formatter());
  std::vector<VerbCall> calls;
  for (const Verb& verb : kVerbs) {
    CLI::App& flags = *app.add_subcommand(std::string(verb.name), std::string(verb.summary));
    begin_group(flags, kWhatHeading);
    calls.push_back(verb.add(flags, command));
  }
  for (CLI::App* verb : app.get_subcommands(nullptr)) add_common(*verb, command);
  return calls;
}

}  // namespace moe::cli
