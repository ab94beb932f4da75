#include "moe/train/checkpoint_files.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "moe/base/check.h"
#include "moe/base/file_text.h"
#include "moe/base/json_input.h"
#include "moe/base/whole_file.h"

namespace fs = std::filesystem;

namespace moe {
namespace {

using Manifest = Json;

constexpr std::string_view kFormat = "moetune checkpoint 2";

/// Takes a whole number and the character behind it off the text; `end`: 0 where nothing may follow.
bool take(std::string_view& text, int64_t& number, char end) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<size_t>(rest - text.data()));
  if (error != std::errc() || number < 0) return false;
  if (end == 0) return text.empty();
  if (!text.starts_with(end)) return false;
  text.remove_prefix(1);
  return true;
}

template <class T>
T entry_of(const Manifest& manifest, const char* key, T otherwise) {
  const auto found = manifest.find(key);
  if constexpr (std::is_same_v<T, std::string>)
    return found != manifest.end() && found->is_string() ? found->get<T>() : otherwise;
  else
    return found != manifest.end() && found->is_number_unsigned() ? found->get<T>() : otherwise;
}

// Returns the manifest's text without its own checksum, which covers that text.
std::string checked_text(Manifest manifest) {
  manifest.erase("crc32");
  return manifest.dump(-1, ' ', false, Manifest::error_handler_t::replace);
}

}  // namespace

std::string step_folder(const std::string& folder, int64_t step) {
  return (fs::path(folder) / fmt::format("step-{:06}", step)).string();
}
std::string rank_file(const std::string& step_folder, int rank) {
  return fmt::format("{}/rank-{}.safetensors", step_folder, rank);
}
std::string manifest_file(const std::string& step_folder) { return step_folder + "/manifest.json"; }

std::string text_of(const ShardAxes& axes) {
  const auto axis = [](const ShardRange& r) { return fmt::format("{}+{}/{}", r.first, r.count, r.total); };
  return fmt::format("{} {} {}", axis(axes[0]), axis(axes[1]), axis(axes[2]));
}

std::optional<ShardAxes> axes_from(const std::string& text) {
  ShardAxes axes;
  std::string_view rest = text;
  for (size_t i = 0; i < axes.size(); ++i) {
    ShardRange& r = axes[i];
    const char end = i + 1 < axes.size() ? ' ' : '\0';
    if (!take(rest, r.first, '+') || !take(rest, r.count, '/') || !take(rest, r.total, end)) return std::nullopt;
    if (r.count > r.total || r.first > r.total - r.count) return std::nullopt;
  }
  return axes;
}

void write_manifest(const Checkpoint& checkpoint) {
  Manifest files = Manifest::array(), checksums = Manifest::array();
  for (int rank = 0; rank < checkpoint.ranks; ++rank) {
    const std::string file = rank_file(checkpoint.folder, rank);
    std::error_code error;
    const auto bytes = fs::file_size(file, error);
    require<BadInput>(!error, "{}: found no such file ({}), expected one of each of {} ranks", file, error.message(),
                      checkpoint.ranks);
    files.push_back(bytes);
    const auto crc = file_crc(file);
    require<BadInput>(crc.has_value(), "{}: cannot be read back, expected one of each of {} ranks", file,
                      checkpoint.ranks);
    checksums.push_back(*crc);
  }
  Manifest manifest = {{"format", kFormat},   {"step", checkpoint.step}, {"ranks", checkpoint.ranks},
                       {"file_bytes", files}, {"file_crc32", checksums}, {"settings", checkpoint.settings}};
  manifest["crc32"] = crc_of(checked_text(manifest));
  const std::string text = document_text(manifest);
  write_whole_file(manifest_file(checkpoint.folder), "a file for a checkpoint's manifest",
                   [&](std::ostream& out) { out << text << '\n'; });
}

bool is_complete(const std::string& step_folder) {
  std::error_code error;
  return fs::exists(manifest_file(step_folder), error);
}

std::optional<Checkpoint> whole_checkpoint(const std::string& step_folder, Contents contents, std::string& why) {
  const auto none = [&](const std::string& reason) {
    why = reason;
    return std::nullopt;
  };
  std::ifstream in(manifest_file(step_folder), std::ios::binary);
  if (!in) return none("it has no manifest");
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const Manifest manifest = json_if_valid<Manifest>(text).value_or(Manifest());
  if (!manifest.is_object() || entry_of<std::string>(manifest, "format", "") != kFormat)
    return none(fmt::format("its manifest is no '{}'", kFormat));
  if (entry_of<std::string>(manifest, "crc32", "") != crc_of(checked_text(manifest)))
    return none("its manifest has another checksum than when it was written");
  Checkpoint found{.folder = step_folder,
                   .step = entry_of<int64_t>(manifest, "step", -1),
                   .ranks = entry_of<int>(manifest, "ranks", 0),
                   .settings = entry_of<std::string>(manifest, "settings", "")};
  const auto files = manifest.find("file_bytes"), checksums = manifest.find("file_crc32");
  const auto one_a_rank = [&](const auto& list) {
    return list != manifest.end() && list->is_array() && list->size() == static_cast<size_t>(found.ranks);
  };
  if (!one_a_rank(files) || !one_a_rank(checksums) ||
      fs::path(step_folder).filename() != moe::step_folder("", found.step))
    return none("its manifest is of another step or other ranks");
  for (int rank = 0; rank < found.ranks; ++rank) {
    const std::string file = rank_file(step_folder, rank);
    std::error_code error;
    const auto bytes = fs::file_size(file, error);
    if (error) return none(fmt::format("{}: {}", file, error.message()));
    if ((*files)[static_cast<size_t>(rank)] != bytes)
      return none(fmt::format("{}: found {} bytes, expected {}", file, bytes, (*files)[rank].dump()));
    if (contents == Contents::unread) continue;
    const auto crc = file_crc(file);
    if (!crc || (*checksums)[static_cast<size_t>(rank)] != *crc)
      return none(fmt::format("{}: its contents have another checksum than when they were written", file));
  }
  return found;
}

void check_shard(const ShardedTensor& t) {
  require<BadInput>(axes_from(text_of(t.axes)).has_value(), "{}: found axes {}, expected parts within the whole",
                    t.name, text_of(t.axes));
  const int64_t elements = t.axes[0].count * t.axes[1].count * t.axes[2].count;
  require<BadInput>(t.data.device() == DeviceKind::cpu && t.data.elements() == elements,
                    "{}: found {} elements on {}, expected {} on the host", t.name, t.data.elements(),
                    name_of(t.data.device()), elements);
}

}  // namespace moe
