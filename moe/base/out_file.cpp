#include "moe/base/out_file.h"

#include <filesystem>
#include <fstream>

#include "moe/base/check.h"

namespace fs = std::filesystem;

namespace moe {

void require_other_file(const std::string& out, const std::vector<std::string>& inputs) {
  std::error_code missing;
  if (!fs::is_regular_file(out, missing)) return;
  for (const std::string& input : inputs)
    require<BadInput>(!fs::equivalent(out, input, missing),
                      "{}: found a file to write that is read too, expected another", out);
}

void require_kind(const std::string& out, std::string_view beginning, std::string_view kind) {
  const std::string found = beginning_of(out, beginning.size());
  require<BadInput>(found.empty() || found == beginning,
                    "{}: found a file that is no {}, expected a new one, or a {} to replace", out, kind, kind);
}

std::string beginning_of(const std::string& path, size_t bytes) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return "";
  std::string found(bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(found.data(), static_cast<std::streamsize>(bytes));
  found.resize(static_cast<size_t>(file.gcount()));
  return found;
}

void make_folders_above(const std::string& file) {
  const fs::path folder = fs::path(file).parent_path();
  if (folder.empty()) return;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error == std::errc::permission_denied || error == std::errc::read_only_file_system)
    throw Unwritable(fmt::format("{}: cannot be made ({}), expected a folder for {}", folder.string(), error.message(),
                                 fs::path(file).filename().string()));
}

}  // namespace moe
