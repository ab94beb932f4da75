#pragma once
// Flags of one kind, as every verb has them.
#include <CLI/CLI.hpp>
#include <charconv>
#include <string>
#include <type_traits>

#include "cli/flags.h"
#include "moe/base/check.h"

namespace moe {

/// Throws BadInput naming the flag, what was found and what was expected.
template <class Number>
Number number(const std::string& flag, const std::string& text, double least, double most) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = std::is_integral_v<Number>;
  if (error != std::errc{} || end != text.data() + text.size() || !(static_cast<double>(value) >= least) ||
      static_cast<double>(value) > most)
    bad_input("{}: found '{}', expected a {} from {} to {}", flag, text, whole ? "whole number" : "number", least,
              most);
  return value;
}

// Adds a number flag that reports what was found and what was expected.
template <class Target>
void add_number(CLI::App& verb, const std::string& flag, Target& target, const std::string& help, double least,
                double most = 1e12) {
  verb.add_option_function<std::string>(
          flag,
          [flag, &target, least, most](const std::string& text) {
            if constexpr (requires { typename Target::value_type; })
              target = number<typename Target::value_type>(flag, text, least, most);
            else
              target = number<Target>(flag, text, least, most);
          },
          help)
      ->type_name("N");
}

/// Bytes, with K, M or G for powers of 1024.
void add_bytes(CLI::App& verb, const std::string& flag, int64_t& target, const std::string& help);
void add_selection(CLI::App& verb, Selection& s, bool with_grid);
void add_layer(CLI::App& verb, Selection& s);
/// --out and --overwrite of a verb that appends records; what they mean is RecordWriter's.
void add_records(CLI::App& verb, std::string& out, const std::string& help);
CLI::App* add_verb(CLI::App& app, const std::string& name, const std::string& what, const std::string& example);

/// Every verb with its flags, each bound to its place in the command, and what excludes or needs what.
void add_verbs(CLI::App& app, Command& c);
/// A flag that leaves no meaning to the verb's others, but those `kept`.
void stands_alone(CLI::App& verb, const std::string& flag, const std::vector<std::string>& kept);
/// Flags that mean something beside another alone.
void needs(CLI::App& verb, const std::string& flag, const std::vector<std::string>& others);

/// The verbs that run layers, and launch, which starts them.
void add_running_verbs(CLI::App& app, Command& c);
void add_launch(CLI::App& app, Command& c);
/// What an option of one backend alone finds beside another. Throws BadInput naming the flag.
void check_backend(const CLI::App& verb, const RanksFlags& ranks);
/// The command that launch starts: with a backend of processes, and right by itself.
void complete_launch(Command& c, std::vector<std::string> words);

}  // namespace moe
