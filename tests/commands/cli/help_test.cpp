// How --help shows flags: in three groups, and those that verbs have in common in the same order.
#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <sstream>

#include "commands/cli/flag_kinds.h"
#include "commands/cli/verbs.h"

namespace moe::cli {
namespace {

using Flags = std::vector<std::string>;

// By verb, as --help shows them: by group, then as they were added.
std::map<std::string, Flags> flags_as_shown() {
  CLI::App app;
  Command command;
  const auto calls = add_verbs(app, command);
  std::map<std::string, Flags> shown;
  for (const CLI::App* verb : app.get_subcommands(nullptr))
    for (const std::string& group : verb->get_groups())
      for (const CLI::Option* option : verb->get_options())
        if (option->get_group() == group && option->nonpositional())
          shown[verb->get_name()].push_back(option->get_lnames().front());
  return shown;
}

TEST(Help, FlagsOfOneNameStandInOneOrderEverywhere) {
  const auto shown = flags_as_shown();
  int compared = 0;
  for (const auto& [verb, flags] : shown)
    for (const auto& [other, of_other] : shown) {
      Flags mine, theirs;
      const auto in = [](const Flags& all) {
        return [&all](const std::string& flag) { return std::ranges::find(all, flag) != all.end(); };
      };
      std::ranges::copy_if(flags, std::back_inserter(mine), in(of_other));
      std::ranges::copy_if(of_other, std::back_inserter(theirs), in(flags));
      EXPECT_EQ(mine, theirs) << verb << " and " << other;
      compared += verb < other ? static_cast<int>(mine.size()) : 0;
    }
  EXPECT_GT(compared, 200);
}

// Flags that another verb has too are handed over to the command that an answer ends with, as they were given.
TEST(FlagsOfTheNextCommand, AreThoseThatWereGiven) {
  const auto given_to = [](const std::string& verb, const std::vector<const char*>& words) {
    const auto command = parse_command_line(static_cast<int>(words.size()), words.data());
    std::string text;
    for (const tuner::GivenFlag& flag : command.value().options<tuner::TuneOptions>().given_for.at(verb))
      text += flag.name + ' ' + flag.value + ';';
    return text;
  };
  EXPECT_EQ(given_to("layerbench", {"moetune",   "tune",   "--ranks-per-node", "2",           "--threads", "3",
                                    "--timeout", "9",      "--zero",           "1",           "--bias",    "--json",
                                    "--top",     "3",      "--schedule",       "fsmoe,tutel", "--batch",   "2",
                                    "--backend", "gloo",   "--rank",           "0",           "--ranks",   "4",
                                    "--current", "tutel:2"}),
            "--schedule fsmoe,tutel;--batch 2;--bias ;--backend gloo;--threads 3;--ranks-per-node 2;--timeout 9;");
  EXPECT_EQ(given_to("modelbench", {"moetune", "tune", "--model", "tiny-gpt", "--zero", "1", "--threads", "2"}),
            "--model tiny-gpt;--zero 1;--threads 2;");
  EXPECT_EQ(given_to("simulate", {"moetune", "tune", "--no-verify", "--nodes", "16", "--node-limit", "2", "--out",
                                  "r.jsonl", "--max-input", "1G", "--strict", "--batch", "2"}),
            "--nodes 16;--batch 2;--node-limit 2;--max-input 1G;");
}

TEST(Help, GroupsAreWhatHowAndOutput) {
  CLI::App app;
  Command command;
  const auto calls = add_verbs(app, command);
  const Flags known{kWhatHeading, kHowHeading, kOutput};
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    Flags groups = verb->get_groups(), in_order;
    std::ranges::copy_if(known, std::back_inserter(in_order),
                         [&](const std::string& group) { return std::ranges::find(groups, group) != groups.end(); });
    EXPECT_EQ(groups, in_order) << verb->get_name();
    EXPECT_EQ(groups.back(), kOutput) << verb->get_name();
    const std::string help = verb->help();
    EXPECT_EQ(help.find("\n\n\n"), std::string::npos) << help;
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line);)
      EXPECT_TRUE(line.size() <= 120 || line.starts_with("  ./moetune")) << line;
    for (const char* never : {"Excludes", "{"}) EXPECT_EQ(help.find(never), std::string::npos) << help;
  }
}

TEST(Help, LaunchSaysWhatStandsBehindIt) {
  CLI::App app;
  Command command;
  const auto calls = add_verbs(app, command);
  const std::string help = app.get_subcommand("launch")->help();
  EXPECT_NE(help.find("launch [OPTIONS] -- VERB [OPTIONS]\n"), std::string::npos) << help;
}

}  // namespace
}  // namespace moe::cli
