#pragma once
// A fixture of tests that start the program, each in a folder of its own.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/base/scratch.h"
#include "tests/commands/cli/program.h"

namespace moe {

class ProgramTest : public testing::Test {
 protected:
  Printed run(const std::vector<std::string>& arguments) const {
    return run_program(MOETUNE_PROGRAM, arguments, folder_);
  }
  /// Runs with --json; the document is a test failure unless it is all that is printed.
  nlohmann::json json_of(std::vector<std::string> arguments) const {
    arguments.push_back("--json");
    const Printed printed = run(arguments);
    EXPECT_EQ(printed.exit_code, 0) << printed.err;
    EXPECT_TRUE(printed.err.empty()) << printed.err;
    return nlohmann::json::parse(printed.out, nullptr, false);
  }
  /// Writes a file; returns its name, as a flag takes it.
  std::string file(const std::string& name, const std::string& text) const {
    scratch_.write(name, text);
    return "./" + name;
  }

  const Scratch scratch_;
  const std::string folder_ = scratch_.path(".");
};

}  // namespace moe
