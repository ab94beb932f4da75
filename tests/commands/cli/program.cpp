#include "tests/commands/cli/program.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

namespace moe {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

Printed run_program(const std::string& program, const std::vector<std::string>& arguments, const std::string& folder) {
  // Tests that run beside each other may share a folder.
  const std::filesystem::path out = std::filesystem::path(folder) / ("stdout-" + std::to_string(getpid())),
                              err = out.parent_path() / ("stderr-" + std::to_string(getpid()));
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (chdir(folder.c_str()) != 0 || !std::freopen(out.c_str(), "w", stdout) ||
        !std::freopen(err.c_str(), "w", stderr))
      _exit(126);
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  Printed printed{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), contents(out), contents(err)};
  std::filesystem::remove(out), std::filesystem::remove(err);
  return printed;
}

}  // namespace moe
