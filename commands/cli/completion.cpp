#include "commands/cli/completion.h"

#include <algorithm>
#include <sstream>

#include "commands/cli/verbs.h"
#include "commands/shared/printed.h"
#include "moe/base/config_files.h"
#include "moe/schedule/schedule.h"

namespace moe::cli {
namespace {

using Words = std::vector<std::string>;

template <class Rows>
Words names_of(const Rows& rows) {
  Words names;
  for (const auto& row : rows) names.emplace_back(row.name);
  return names;
}

// Returns the names of a kind; none for a kind without names (N, FILE), or for an unknown kind.
Words names_of_kind(std::string_view kind) {
  if (kind == "CLUSTER") return config_names("clusters");
  if (kind == "GRID") return config_names("grids");
  if (kind == "LAYER") return config_names("layers");
  if (kind == "MODEL") return config_names("models");
  if (kind == "CASES") return config_names("ci");
  if (kind == "ASSUMPTIONS") return config_names("papers/assume");
  if (kind == "SCHEDULE") return names_of(all_schedules());
  if (kind == "GATE") return names_of(gate_parts());
  if (kind == "ORDER") return names_of(order_parts());
  if (kind == "DISPATCHER") return names_of(dispatcher_parts());
  if (kind == "HOOK") return names_of(hook_parts());
  if (kind == "FFN") return names_of(ffn_parts());
  if (kind == "TABLE") return names_of(commands::kPaperTables);
  return {};
}

// Returns a type's values: for `CLUSTER|host|FILE` the clusters and the word host; for `zipf:S` the prefix `zipf:`.
Words values_of(const std::string& type) {
  Words values;
  std::istringstream parts(type);
  for (std::string part; std::getline(parts, part, '|');) {
    const Words names = names_of_kind(part);
    values.insert(values.end(), names.begin(), names.end());
    const auto free = std::ranges::find_if(part, [](char c) { return c == '[' || (c >= 'A' && c <= 'Z'); });
    if (free != part.begin()) values.emplace_back(part.begin(), free);
  }
  return values;
}

bool takes_value(const CLI::Option& option) { return option.get_type_size() > 0; }

// Returns the words that begin with `typed`.
Words beginning(const std::string& typed, Words words) {
  std::erase_if(words, [&](const std::string& word) { return !word.starts_with(typed); });
  return words;
}

Words values_for(const CLI::Option& option, const std::string& typed) {
  const size_t earlier = option.get_delimiter() == ',' ? typed.find_last_of(',') + 1 : 0;
  Words values = beginning(typed.substr(earlier), values_of(option.get_type_name()));
  for (std::string& value : values) value.insert(0, typed, 0, earlier);
  return values;
}

Words flags_of(const CLI::App& verb) {
  Words flags;
  for (const CLI::Option* option : verb.get_options())
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  return flags;
}

// Returns the values of a verb's positionals by their types, or their names if they have no type.
Words positionals_of(const CLI::App& verb) {
  Words values;
  for (const CLI::Option* option : verb.get_options()) {
    if (!option->get_positional()) continue;
    const std::string type = option->get_type_name();
    const Words of_option = values_of(type.empty() ? option->get_name() : type);
    values.insert(values.end(), of_option.begin(), of_option.end());
  }
  return values;
}

// Returns the verbs that may follow the --: launch starts verbs whose ranks can be processes; a gate starts verbs that
// write records, or launch.
Words verbs_behind(const CLI::App& app, const std::string& starter) {
  Words names;
  for (const Verb& verb : all_verbs()) {
    const bool records = app.get_subcommand(std::string(verb.name))->get_option_no_throw("--overwrite") != nullptr;
    const bool of_gates = verb.name == "launch" || (records && !verb.starts_other_programs);
    if (starter.empty() || (starter == "launch" ? verb.runs_layers() : of_gates)) names.emplace_back(verb.name);
  }
  return names;
}

}  // namespace

Words completions(const std::string& line) {
  std::istringstream in(line + "\n");
  Words words{std::istream_iterator<std::string>(in), {}};
  std::string typed;
  if (!words.empty() && !line.ends_with(' ')) typed = words.back(), words.pop_back();
  if (!words.empty()) words.erase(words.begin());                                       // the program's name
  while (!words.empty() && words.front().starts_with('-')) words.erase(words.begin());  // the script's, such as --yes
  CLI::App app;
  Command command;
  const auto calls = add_verbs(app, command);  // keeps the variables of the flags alive
  std::string starter;
  for (auto behind = words.begin(); (behind = std::ranges::find(words, "--")) != words.end();) {
    if (const Verb* verb = find_verb(words.front()); verb == nullptr || !verb->starts_other_programs) break;
    starter = words.front();
    words.erase(words.begin(), behind + 1);
  }
  if (words.empty())
    return beginning(typed, starter.empty() && typed.starts_with('-') ? flags_of(app) : verbs_behind(app, starter));
  const auto verbs = app.get_subcommands([&](CLI::App* verb) { return verb->get_name() == words.front(); });
  if (verbs.empty()) return {};
  const CLI::App& verb = *verbs.front();
  const CLI::Option* before = verb.get_option_no_throw(words.back());
  if (before != nullptr && takes_value(*before)) return values_for(*before, typed);
  if (!typed.starts_with('-')) return beginning(typed, positionals_of(verb));
  const size_t equals = typed.find('=');
  if (equals == std::string::npos) return beginning(typed, flags_of(verb));
  const CLI::Option* given = verb.get_option_no_throw(typed.substr(0, equals));
  if (given == nullptr) return {};
  Words values = values_for(*given, typed.substr(equals + 1));
  for (std::string& value : values) value.insert(0, typed, 0, equals + 1);
  return values;
}

}  // namespace moe::cli
