#include "moe/base/config_files.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/ranges.h>
#include <optional>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/log.h"
#include "moe/base/text.h"

namespace fs = std::filesystem;

namespace moe {
namespace {

bool holds_configs(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_directory(folder / "clusters", ignored);
}

// Returns the folder above the program's own file, or the one set when the program was built.
std::optional<fs::path> installed_configs() {
  std::error_code error;
  fs::path above = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (; !error && above.has_relative_path(); above = above.parent_path())
    for (const char* here : {"configs", "share/moetune/configs"})  // in a checkout; installed
      if (holds_configs(above / here)) return above / here;
  if (holds_configs(MOETUNE_CONFIG_DIR)) return MOETUNE_CONFIG_DIR;
  return std::nullopt;
}

constexpr std::string_view kEnding = ".toml";

// Returns the word for a file of the folder in messages: "cluster" for "clusters".
std::string_view kind_of_folder(std::string_view folder) {
  if (folder == "ci") return "cases";
  if (folder == "papers/assume") return "assumptions";
  return folder.ends_with('s') ? folder.substr(0, folder.size() - 1) : folder;
}

}  // namespace

std::string config_dir() {
  if (const char* chosen = std::getenv("MOETUNE_CONFIG_DIR"); chosen && *chosen) {
    require<BadInput>(holds_configs(chosen), "MOETUNE_CONFIG_DIR: found {}, expected a folder with clusters/ in it",
                      quoted_text(chosen));
    return chosen;
  }
  if (const std::optional<fs::path> found = installed_configs()) return *found;
  bad_input("configs: found no such folder at {} or above the program, expected it there or in MOETUNE_CONFIG_DIR",
            quoted_text(MOETUNE_CONFIG_DIR));
}

std::string program_command() {
  static const bool in_checkout = [] {  // computed once, although the help of each command asks
    const std::optional<fs::path> configs = installed_configs();
    return configs && fs::is_regular_file(configs->parent_path() / "moetune");
  }();
  return in_checkout ? "./moetune" : "moetune";
}

std::vector<std::string> config_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(fs::path(config_dir()) / folder, error))
    if (entry.path().extension() == kEnding) names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<std::string> known_config(const std::string& folder, const std::string& name_or_path) {
  const bool path = name_or_path.find('/') != std::string::npos || name_or_path.ends_with(kEnding);
  if (path) return name_or_path;
  const fs::path named = fs::path(config_dir()) / folder / fmt::format("{}{}", name_or_path, kEnding);
  std::error_code error;
  if (!name_or_path.empty() && fs::is_regular_file(named, error)) {
    log_decision(fmt::format("{} {} is {}", kind_of_folder(folder), name_or_path, named.string()));
    return named.string();
  }
  if (fs::is_regular_file(name_or_path, error)) return name_or_path;
  return std::nullopt;
}

std::string find_config(const std::string& folder, const std::string& name_or_path,
                        const std::vector<std::string>& besides) {
  if (auto known = known_config(folder, name_or_path)) return *std::move(known);
  std::vector<std::string> names = config_names(folder);
  names.insert(names.end(), besides.begin(), besides.end());
  std::ranges::sort(names);
  const std::vector<std::string_view> known(names.begin(), names.end());
  bad_input("{}: found {}, expected a file or one of: {}{}", kind_of_folder(folder), quoted_text(name_or_path),
            fmt::join(known, ", "), suggestion(name_or_path, known));
}

bool is_preset(const std::string& folder, const std::string& name, const std::string& file) {
  std::error_code missing;
  return fs::equivalent(fs::path(config_dir()) / folder / fmt::format("{}{}", name, kEnding), file, missing);
}

}  // namespace moe
