// What the shell is offered: all that the program has, and nothing that it refuses.
#include "commands/cli/completion.h"

#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <iterator>

#include "commands/cli/flag_kinds.h"
#include "tests/commands/cli/program.h"

namespace moe::cli {
namespace {

using Words = std::vector<std::string>;

TEST(Completion, OffersVerbsFlagsAndValues) {
  EXPECT_EQ(completions("moetune s"), (Words{"simulate", "self-test"}));
  EXPECT_EQ(completions("moetune --yes si"), Words{"simulate"}) << "the script's own flag";
  EXPECT_EQ(completions("moetune --v"), Words{"--version"});
  EXPECT_EQ(completions("moetune memory --mi"), Words{"--micro-batches"});
  EXPECT_EQ(completions("moetune memory --recompute "), (Words{"none", "selective", "full"}));
  EXPECT_EQ(completions("moetune simulate --cluster fsmoe"), Words{"fsmoe-optimiser"});
  EXPECT_EQ(completions("moetune tune --cluster=ho"), Words{"--cluster=host"});
  EXPECT_EQ(completions("moetune simulate --schedule fsmoe,parm-s1,tutel-"), Words{"fsmoe,parm-s1,tutel-improved"});
  EXPECT_EQ(completions("moetune layerbench --workload "), (Words{"gate", "balanced", "zipf:", "hot", "trace:"}));
  EXPECT_EQ(completions("moetune modelbench --text "), (Words{"markov", "bytes"}));
  EXPECT_EQ(completions("moetune modelbench --model tiny-"), (Words{"tiny-bert", "tiny-gpt", "tiny-mixtral"}));
  EXPECT_EQ(completions("moetune reproduce monta-t"), Words{"monta-table8"});
  EXPECT_EQ(completions("moetune export google"), Words{"google-benchmark"});
  EXPECT_EQ(completions("moetune import csv-"), Words{"csv-profile"});
  EXPECT_EQ(completions("moetune launch --ranks 4 -- "), (Words{"tune", "microbench", "layerbench", "modelbench"}));
  EXPECT_EQ(completions("moetune launch -- layerbench --gate sw"), Words{"switch"});
  EXPECT_EQ(completions("moetune ab --base x -- m"), (Words{"microbench", "modelbench"}));
  EXPECT_EQ(completions("moetune ab -- la"), (Words{"layerbench", "launch"}));
  EXPECT_EQ(completions("moetune ab -- launch --ranks 2 -- layerbench --gate sw"), Words{"switch"});
  EXPECT_EQ(completions("moetune self-test --cases t"), Words{"tiny"});
  EXPECT_EQ(completions("moetune memory --rec").size(), 1U);
  for (const char* anything : {"moetune simulate --batch ", "moetune simulate --trace ", "moetune dance --"})
    EXPECT_EQ(completions(anything), Words{}) << anything;
}

// Where a value is one of a few, the line that refuses another lists them.
TEST(Completion, OffersNothingThatIsRefused) {
  const std::string folder = testing::TempDir();
  int tried = 0;
  for (const std::string verb : {"memory", "simulate"}) {
    for (const std::string& flag : completions("moetune " + verb + " --")) {
      for (const std::string& value : completions(fmt::format("moetune {} {} ", verb, flag))) {
        const Printed printed = run_program(MOETUNE_PROGRAM, {verb, flag, value, "--json"}, folder);
        EXPECT_EQ(printed.err.find("expected one of"), std::string::npos) << printed.err;
        EXPECT_EQ(printed.err.find("expected a file"), std::string::npos) << printed.err;
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 100);
  for (const std::string verb : {"tune", "microbench", "layerbench", "modelbench"})
    for (const std::string flag : {"--backend", "--device", "--cluster", "--schedule", "--dtype"})
      for (const std::string& value : completions(fmt::format("moetune {} {} ", verb, flag))) {
        const char* argv[] = {"moetune", verb.c_str(), flag.c_str(), value.c_str()};
        EXPECT_NO_THROW(parse_command_line(4, argv)) << verb << " " << flag << " " << value;
      }
}

// Bash cuts words at `=`, `:` and `@`, and is given what stands behind.
TEST(Completion, BashIsGivenWhatItAsksFor) {
  const auto offered = [](const std::string& line) {
    const std::string ask = fmt::format(
        "source {}/commands/cli/completion.bash; compopt() {{ :; }}; COMP_LINE='{}'; COMP_POINT=${{#COMP_LINE}}; "
        "_moetune {}; echo \"${{COMPREPLY[@]}}\"",
        MOETUNE_SOURCE_DIR, line, MOETUNE_PROGRAM);
    const Printed printed = run_program("/bin/bash", {"-c", ask}, testing::TempDir());
    EXPECT_EQ(printed.err, "");
    return printed.out;
  };
  EXPECT_EQ(offered("./moetune sim"), "simulate\n");
  EXPECT_EQ(offered("./moetune tune --cluster=ho"), "host\n");
  EXPECT_EQ(offered("./moetune memory --model mixtral-7b@"), "fsmoe\n");
  EXPECT_EQ(offered("./moetune memory --recompute "), "none selective full\n");
  EXPECT_EQ(offered("./moetune memory --batch "), "\n");
}

}  // namespace
}  // namespace moe::cli
