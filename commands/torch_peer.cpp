#include "commands/torch_peer.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <unistd.h>
#include <vector>

#include "commands/shared/sweep.h"
#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/formats/plan_json.h"

namespace moe::commands {
namespace {

namespace fs = std::filesystem;

// Returns the folder of the Python package: in a checkout, or in the wheel that contains the configurations.
fs::path package_folder() {
  fs::path above = fs::path(config_dir()).parent_path();
  for (; above.has_relative_path(); above = above.parent_path())
    for (const fs::path& folder : {above / "python", above})
      if (fs::is_regular_file(folder / "moetune" / "torch_bench.py")) return folder;
  bad_input("--against torch: found no Python package moetune above {}, expected a checkout's or a wheel's",
            config_dir());
}

// Sets the variables by which the package finds itself, this program, and a library built beside it.
void set_environment() {
  std::string path = package_folder().string();
  if (const char* others = std::getenv("PYTHONPATH"); others && *others) path += fmt::format(":{}", others);
  ::setenv("PYTHONPATH", path.c_str(), 1);
  const fs::path program = fs::read_symlink("/proc/self/exe");
  ::setenv("MOETUNE_PROGRAM", program.c_str(), 0);
  for (const auto& file : fs::directory_iterator(program.parent_path()))
    if (file.path().filename().string().starts_with("libmoetune_torch-"))
      ::setenv("MOETUNE_TORCH_LIBRARY", file.path().c_str(), 0);
}

std::string word_of(const Json& value) {
  if (value.is_null()) return "none";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

int run_beside_torch(const TorchPeerOptions& options) {
  const Selection& selection = options.selection;
  const char* chosen = std::getenv("MOETUNE_PYTHON");
  std::vector<std::string> words{chosen && *chosen ? chosen : "python3", "-m", "moetune.torch_bench"};
  const auto add = [&](std::string flag, std::string value) {
    words.push_back(std::move(flag));
    words.push_back(std::move(value));
  };
  const Json layer = layer_json(chosen_case(selection, 1, 1).layer);
  for (const auto& [key, value] : layer.items()) add("--" + key, word_of(value));
  if (!selection.schedules.empty()) {
    const auto schedules = chosen_schedules(selection);
    require<BadInput>(schedules.size() == 1, "--schedule: found {} schedules, expected one with --against",
                      schedules.size());
    add("--schedule", std::string(schedules.front()->name));
  }
  const DegreeChoice& degrees = selection.degrees;
  add("--degrees", fmt::format("{},{}", std::max(degrees.forward, 1), std::max(degrees.backward, 1)));
  if (options.iterations) add("--rounds", fmt::format("{}", *options.iterations));
  if (options.threads > 0) add("--threads", fmt::format("{}", options.threads));
  add("--out", records_path(options.out, "layerbench", "torch"));
  set_environment();
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv.front(), argv.data());
  bad_input("--against torch: {}: {}, expected Python with torch; MOETUNE_PYTHON names another", words.front(),
            std::strerror(errno));
}

}  // namespace moe::commands
