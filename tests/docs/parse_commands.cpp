// Prints for every command line on stdin (words separated by tabs, the verb first) why it can't be parsed, or "ok".
#include <fmt/core.h>
#include <iostream>
#include <sstream>

#include "commands/cli/flags.h"

namespace {

std::string fault_of(const std::string& line) {
  std::vector<std::string> words{"moetune"};
  std::istringstream in(line);
  for (std::string word; std::getline(in, word, '\t');) words.push_back(word);
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  try {
    moe::cli::parse_command_line(static_cast<int>(argv.size()), argv.data());
  } catch (const std::exception& error) {
    return error.what();
  }
  return "ok";
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) fmt::print("{}\n", fault_of(line));
}
