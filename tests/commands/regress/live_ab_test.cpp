// `ab` with layers that really run: minutes, on a quiet machine.
#include <nlohmann/json.hpp>
#include <sstream>

#include "moe/base/check.h"
#include "tests/commands/cli/program_test.h"

namespace moe::regress {
namespace {

using Json = nlohmann::json;

class LiveAb : public ProgramTest {
 protected:
  Printed ab(const std::string& head_flags, const std::string& before) {
    std::istringstream words(
        before +
        "layerbench --no-predict --schedule fsmoe --degree-forward 2 --degree-backward 2 --batch 2 "
        "--seq 256 --model-dim 256 --hidden 1024 --heads 4 --iterations 21");
    std::vector<std::string> argv{"ab", "--head-flags", head_flags, "--json", "--quiet", "--"};
    argv.insert(argv.end(), std::istream_iterator<std::string>(words), {});
    if (before.empty()) argv.insert(argv.end(), {"--cluster", "host"});
    return run(argv);
  }
};

TEST_F(LiveAb, SlowExpertsAreFound) {
  const Printed printed = ab("--slow expert:1.6", "");
  ASSERT_EQ(printed.exit_code, 1) << printed.out << printed.err;
  const Json slow = Json::parse(printed.out)["cases"][0];
  EXPECT_GT(slow["ratio"], 1.05);
  EXPECT_LE(slow["p"], 0.005);
}

TEST_F(LiveAb, OneRankOfTwoProcessesIsFound) {
  EXPECT_EQ(ab("--slow expert:1.6:1", "launch --ranks 2 -- ").exit_code, 1);
}

TEST_F(LiveAb, ProcessesThatTheHeadCannotStartAreFour) {
  const Printed printed = ab("--slow nothing:2", "launch --ranks 2 -- ");
  EXPECT_EQ(printed.exit_code, 4);
  EXPECT_NE(printed.err.find("unknown task 'nothing'"), std::string::npos) << printed.err;
}

TEST_F(LiveAb, EqualProgramsAreNotSlower) {
  const Printed printed = ab("", "launch --ranks 2 -- ");
  EXPECT_EQ(printed.exit_code, 0) << printed.out;
}

}  // namespace
}  // namespace moe::regress
