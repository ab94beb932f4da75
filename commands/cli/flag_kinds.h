#pragma once
// Kinds of flags that verbs share, and their groups in --help.
//
// A flag's type describes its values, and completion (completion.h) reads it: `gpt|mixtral` are the words themselves;
// CLUSTER, GRID, LAYER, MODEL, SCHEDULE, GATE and the like are names that `list` prints; FILE is a path.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <fmt/ranges.h>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "commands/cli/flags.h"
#include "commands/shared/chosen_model.h"
#include "commands/shared/plan_file.h"
#include "commands/shared/serving.h"
#include "moe/base/check.h"
#include "tuner/tune.h"

namespace moe::cli {

struct NumberRange {
  double min = 0, max = 1e12;
};

/// Throws BadInput naming the flag, the value found and the values expected.
template <class Number>
Number number(const std::string& flag, const std::string& text, const NumberRange& range) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = std::is_integral_v<Number>;
  if (error != std::errc{} || end != text.data() + text.size() || !(static_cast<double>(value) >= range.min) ||
      static_cast<double>(value) > range.max)
    bad_input("{}: found '{}', expected a {} from {} to {}", flag, text, whole ? "whole number" : "number", range.min,
              range.max);
  return value;
}

// Adds a number flag whose errors report the value found and the values expected.
template <class Target>
void add_number(CLI::App& verb, const std::string& flag, Target& target, const std::string& help,
                const NumberRange& range) {
  verb.add_option_function<std::string>(
          flag,
          [flag, &target, range](const std::string& text) {
            if constexpr (requires { typename Target::value_type; })
              target = number<typename Target::value_type>(flag, text, range);
            else
              target = number<Target>(flag, text, range);
          },
          help)
      ->type_name("N");
}

/// Returns "HELP; default: VALUE".
std::string with_default(std::string_view help, const auto& value) {
  return fmt::format("{}; default: {}", help, value);
}

/// Refuses an empty text, naming the flag and its type.
void refuse_empty(CLI::Option& option);

/// Adds a flag that takes values of `type`. Help shows the initial value of its target as the default.
template <class Target>
CLI::Option* add_text(CLI::App& verb, const std::string& flag, const char* type, Target& target,
                      const std::string& help) {
  CLI::Option* option = verb.add_option(flag, target, help)->type_name(type);
  if (std::string_view(type) != "FLAGS" && std::string_view(type) != "WORDS") refuse_empty(*option);
  if constexpr (std::is_same_v<Target, std::string>)
    if (!target.empty()) option->capture_default_str();
  return option;
}

/// Adds a flag that takes one of a few words, each of which has a value.
template <class Target>
void add_choice(CLI::App& verb, const std::string& flag, Target& target,
                const std::vector<std::pair<std::string, Target>>& choices, const std::string& help) {
  std::vector<std::string> words;
  for (const auto& [word, value] : choices) words.push_back(word);
  verb.add_option_function<std::string>(
          flag,
          [=, &target](const std::string& word) {
            const auto chosen = std::ranges::find(choices, word, &std::pair<std::string, Target>::first);
            require<BadInput>(chosen != choices.end(), "{}: unknown '{}', expected one of: {}", flag, word,
                              fmt::join(words, ", "));
            target = chosen->second;
          },
          help)
      ->type_name(fmt::format("{}", fmt::join(words, "|")));
}

/// Adds a flag of an enum's values, by the names that name_of() gives them.
template <class Enum>
requires std::is_enum_v<Enum>
void add_choice(CLI::App& verb, const std::string& flag, Enum& target, const std::vector<Enum>& choices,
                const std::string& help) {
  std::vector<std::pair<std::string, Enum>> named;
  for (const Enum choice : choices) named.emplace_back(name_of(choice), choice);
  add_choice(verb, flag, target, named, help);
}

/// Adds a flag of names that `from` reads; it throws BadInput for others.
template <class Value>
void add_named(CLI::App& verb, const std::string& flag, const char* type,
               Value (*from)(std::string_view name, std::string_view where), std::optional<Value>& target,
               const std::string& help) {
  refuse_empty(*verb.add_option_function<std::string>(
                        flag, [=, &target](const std::string& name) { target = from(name, flag); }, help)
                    ->type_name(type));
}

/// Adds a flag that takes a number of at least `least` (0 or 1), or "all", which sets the largest int.
void add_number_or_all(CLI::App& verb, const std::string& flag, std::optional<int>& target, const std::string& help,
                       int least);
/// Adds --trace (a timeline's file) and the flags for its content. An existing file that is not a timeline is refused
/// at once, because it would be overwritten.
void add_trace(CLI::App& verb, commands::TraceFlags& target, const std::string& help);

/// The three groups in which --help shows a verb's flags, in this order. begin_group puts the flags that are added
/// after it into `group`.
inline constexpr const char *kWhatHeading = "What to run", *kHowHeading = "How", *kOutput = "Output";
void begin_group(CLI::App& verb, const char* group);

/// Adds a flag for bytes, with the suffix K, M or G for powers of 1024.
void add_bytes(CLI::App& verb, const std::string& flag, int64_t& target, const std::string& help);
/// Adds --model and the flags of add_stack.
void add_model(CLI::App& verb, commands::ModelFlags& m);
/// Adds --nodes: the number of nodes of the cluster's kind that a plan is for.
void add_nodes(CLI::App& verb, commands::Selection& s);
/// Adds --layers and the flags of add_micro_batches; `layers` is the help text of --layers.
void add_stack(CLI::App& verb, commands::ModelFlags& m, const std::string& layers);
/// Adds --micro-batches, --pipeline and --virtual-stages.
void add_micro_batches(CLI::App& verb, commands::ModelFlags& m);
/// Adds the layer's own flags, including --batch, and those of add_groups.
void add_layer(CLI::App& verb, commands::Selection& s);
/// Adds only --batch.
void add_batch(CLI::App& verb, commands::Selection& s);
void add_groups(CLI::App& verb, commands::Selection& s);
/// Adds the flags of the fields that say how many layers the first and the last pipeline stage have.
void add_stage_layers(CLI::App& verb, commands::Selection& s);
/// Adds --global-batch.
void add_global_batch(CLI::App& verb, std::optional<int64_t>& samples);
/// Adds --recompute: what a backward recomputes.
void add_recompute(CLI::App& verb, commands::Selection& s);
/// Adds --offload: what the host's memory keeps.
void add_offload(CLI::App& verb, commands::Selection& s);
/// Adds --zero, --recompute and --offload: what a rank does not keep.
void add_states(CLI::App& verb, commands::Selection& s);
/// Adds --framework.
void add_framework(CLI::App& verb, commands::ModelFlags& m);
/// Adds the flags of fields that only planning reads.
void add_planned_fields(CLI::App& verb, commands::Selection& s);
/// Adds --schedule: the schedules to plan or run.
void add_schedule(CLI::App& verb, commands::Selection& s);
void add_degrees(CLI::App& verb, commands::Selection& s);
/// Add --overwrite, alone or with --out, to a verb that appends records; RecordWriter describes their meaning.
void add_overwrite(CLI::App& verb);
void add_records(CLI::App& verb, std::string& out, const std::string& help);
void add_json(CLI::App& verb, bool& json);
/// Sets the example below --help: the verb and `words`.
void set_example(CLI::App& verb, const std::string& words);
/// Returns the formatter of --help: flags in their groups, lines of the terminal's width.
std::shared_ptr<CLI::FormatterBase> help_formatter();

/// Refuses all other flags of the verb together with `flag`, which makes them meaningless, except those in `kept`.
void forbid_other_flags(CLI::App& verb, const std::string& flag, const std::vector<std::string>& kept);
/// Adds --save-plan.
void add_save_plan(CLI::App& verb, std::string& file);
/// Adds --plan; of the flags added before it, only those in `kept` may be given with it.
void add_plan(CLI::App& verb, std::string& plan, const std::vector<std::string>& kept);
/// Adds --serve and its flags. `cluster`: set to one that has prices for serving, unless a flag sets it; `batches`: the
/// default number of batches; `others`: flags that are meaningless with --serve.
void add_serve(CLI::App& verb, commands::ServeFlags& s, std::string& cluster, int batches,
               const std::vector<std::string>& others);
/// Refuses `flag` if one of `others` is missing.
void needs(CLI::App& verb, const std::string& flag, const std::vector<std::string>& others);

/// Returns "; 'WORD' is 'FLAG' here", or a suggestion, for a word that is no flag of the verb.
std::string suggestion_for(const std::string& word, const CLI::App& verb);

/// Returns the flags given to `verb` that `other` has too, except those for the place and form of results.
std::vector<tuner::GivenFlag> shared_flags(const CLI::App& other, const CLI::App& verb);

/// Reads --current: words that describe the user's layout, or a framework's file followed by words. Throws BadInput
/// naming the flag, and the word or the file.
tuner::CurrentLayout current_layout(const std::string& text);
/// Reads --measured: seconds of a step, or a training's log. Throws BadInput naming the flag and the file.
tuner::MeasuredSteps measured_steps(const std::string& text);

/// Refuses options of one backend together with another backend. Throws BadInput naming the flag.
void check_backend(const CLI::App& verb, const RanksFlags& ranks);

}  // namespace moe::cli
