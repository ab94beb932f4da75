#include "tests/rules/tree.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace moe::rules {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kSourceEndings = {".h", ".cpp", ".cu", ".cuh", ".inl"};
constexpr std::array<std::string_view, 4> kOtherEndings = {".md", ".cmake", ".py", ".txt"};

bool ends_with_any(std::string_view path, auto& endings) {
  return std::ranges::any_of(endings, [&](auto ending) { return path.ends_with(ending); });
}

bool is_written_by_hand(const std::string& path) {
  if (path.starts_with("tests/data/")) return false;
  return path == "moetune" || is_source(path) || ends_with_any(path, kOtherEndings);
}

}  // namespace

std::vector<TreeFile> tree_files() {
  const fs::path root = MOETUNE_SOURCE_DIR;
  std::vector<TreeFile> files;
  for (auto entry = fs::recursive_directory_iterator(root); entry != fs::recursive_directory_iterator(); ++entry) {
    const std::string name = entry->path().filename(), path = fs::relative(entry->path(), root).generic_string();
    if (entry->is_directory() && (name == "build" || name == "results" || (name.starts_with('.') && name != ".ci")))
      entry.disable_recursion_pending();
    if (!entry->is_regular_file() || !is_written_by_hand(path)) continue;
    std::ostringstream text;
    text << std::ifstream(entry->path()).rdbuf();
    files.push_back({path, text.str()});
  }
  return files;
}

bool is_source(std::string_view path) { return ends_with_any(path, kSourceEndings); }

}  // namespace moe::rules
