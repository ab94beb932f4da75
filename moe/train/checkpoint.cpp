#include "moe/train/checkpoint.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <vector>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/files.h"
#include "moe/base/json.h"
#include "moe/base/log.h"
#include "moe/formats/safetensors.h"
#include "moe/tensor/host_copy.h"

namespace fs = std::filesystem;

namespace moe {
namespace {

constexpr int kKept = 2;
constexpr std::string_view kStep = "step-";

/// Returns the folders of a checkpoint folder's steps, by step, the newest first.
std::map<int64_t, std::string, std::greater<>> steps_in(const std::string& folder) {
  std::map<int64_t, std::string, std::greater<>> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kStep) || name.size() > kStep.size() + 18) continue;
    const std::string digits = name.substr(kStep.size());
    if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) continue;
    const int64_t step = std::stoll(digits);
    if (step_folder(folder, step) == (fs::path(folder) / name).string()) steps[step] = entry.path().string();
  }
  return steps;
}

/// Removes a step's folder, its manifest first, so that a half-removed checkpoint is not read as a complete one.
void remove_step(const std::string& step_folder) {
  std::error_code error;
  fs::remove(manifest_file(step_folder), error);
  fs::remove_all(step_folder, error);
  if (error) log_warning(fmt::format("{}: cannot be removed ({})", step_folder, error.message()));
}

void remove_old_steps(const std::string& folder) {
  int whole = 0;
  std::string why;
  for (const auto& [step, path] : steps_in(folder)) {
    if (whole == kKept)
      remove_step(path);
    else if (validated_checkpoint(path, Contents::unread, why))
      ++whole;
  }
}

}  // namespace

void write_checkpoint(const std::string& folder, int64_t step, int rank, std::span<const ShardedTensor> tensors,
                      MemorySpace& memory) {
  require<BadInput>(step >= 0 && rank >= 0, "checkpoint: found step {} of rank {}, expected 0 or more", step, rank);
  const std::string here = step_folder(folder, step);
  std::error_code error;
  fs::create_directories(here, error);
  require<BadInput>(fs::is_directory(here), "{}: cannot be made ({}), expected a folder for a checkpoint", here,
                    error.message());
  fs::remove(manifest_file(here), error);  // an old manifest would otherwise apply to files of two runs
  std::vector<SafeTensor> stored;
  TensorNotes notes;
  std::deque<HostCopy> copies;
  for (const ShardedTensor& t : tensors) {
    check_shard(t, memory.kind());
    const TensorView read = copies.emplace_back(t.data, memory, Widen::no).view();
    const std::span<const std::byte> data(read.at(0), static_cast<size_t>(read.bytes()));
    stored.push_back(
        {t.name, safetensor_type(t.data.dtype()), {t.axes[0].count, t.axes[1].count, t.axes[2].count}, data});
    notes[t.name] = text_of(t.axes);
  }
  write_safetensors(rank_file(here, rank), stored, notes);
}

Checkpoint complete_checkpoint(const std::string& folder, int64_t step, int ranks, const std::string& settings) {
  write_manifest({step_folder(folder, step), step, ranks, settings});
  remove_old_steps(folder);
  return {step_folder(folder, step), step, ranks, settings};
}

std::optional<Checkpoint> newest_checkpoint(const std::string& folder) {
  std::string unreadable;  // the newest checkpoint that was completed once but can't be read
  for (const auto& [step, path] : steps_in(folder)) {
    std::string why;
    if (auto checkpoint = validated_checkpoint(path, Contents::compared, why)) return checkpoint;
    why = fmt::format("{}: {}", path, why);
    log_warning(fmt::format("{}; looking for an older checkpoint", why));
    if (unreadable.empty() && is_complete(path)) unreadable = why;
  }
  require<BadInput>(
      unreadable.empty(),
      "{}, expected a checkpoint that can be read; to train from step 0, remove {} or name another folder", unreadable,
      folder);
  return std::nullopt;
}

}  // namespace moe

namespace fs = std::filesystem;

namespace moe {
namespace {

using Manifest = Json;

constexpr std::string_view kFormat = "moetune checkpoint 2";

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

std::optional<Checkpoint> validated_checkpoint(const std::string& step_folder, Contents contents, std::string& why) {
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
    if ((*files)[rank] != bytes)
      return none(fmt::format("{}: found {} bytes, expected {}", file, bytes, (*files)[rank].dump()));
    if (contents == Contents::unread) continue;
    const auto crc = file_crc(file);
    if (!crc || (*checksums)[rank] != *crc)
      return none(fmt::format("{}: its contents have another checksum than when they were written", file));
  }
  return found;
}

namespace {

/// One rank's file.
struct RankParts {
  std::string path;
  SafeTensorsFile file;
};

/// Returns the axes of a stored part in the whole tensor; throws unless its type and the whole's shape are as wanted.
ShardAxes checked_axes(const RankParts& parts, const StoredTensor& stored, const ShardedTensor& wanted) {
  const std::string where = parts.path + ": " + wanted.name;
  const auto note = parts.file.notes().find(stored.name);
  const auto axes = note == parts.file.notes().end() ? std::nullopt : axes_from(note->second);
  require<BadInput>(axes && stored.shape == std::vector{(*axes)[0].count, (*axes)[1].count, (*axes)[2].count},
                    "{}: found {} as its axes, expected first+count/total of three of shape ({})", where,
                    note == parts.file.notes().end() ? "nothing" : quoted_text(note->second),
                    fmt::join(stored.shape, ", "));
  const auto expected = safetensor_type(wanted.data.dtype());
  require<BadInput>(stored.type == expected, "{}: found type {}, expected {}", where, stored.type, expected);
  for (size_t i = 0; i < axes->size(); ++i)
    require<BadInput>((*axes)[i].total == wanted.axes[i].total, "{}: axis {}: found {} in the whole, expected {}",
                      where, i, (*axes)[i].total, wanted.axes[i].total);
  return *axes;
}

/// Copies the elements that `filled` lacks from one rank's file.
void take_part(RankParts& parts, const ShardedTensor& wanted, std::vector<bool>& filled) {
  const StoredTensor* stored = parts.file.find(wanted.name);
  if (stored == nullptr) return;
  const int64_t width = bytes_of(wanted.data.dtype());
  for (const ShardRun& run : common_runs(checked_axes(parts, *stored, wanted), wanted.axes)) {
    const auto first = filled.begin() + run.to, last = first + run.count;
    if (std::find(first, last, false) == last) continue;  // other ranks' copies have filled it already
    parts.file.read(*stored, run.from * width, {wanted.data.at(run.to), static_cast<size_t>(run.count * width)});
    std::fill(first, last, true);
  }
}

void require_whole(const std::string& folder, const ShardedTensor& wanted, const std::vector<bool>& filled) {
  const auto missing = std::ranges::find(filled, false);
  if (missing == filled.end()) return;
  const int64_t index = missing - filled.begin(), columns = wanted.axes[2].count, rows = wanted.axes[1].count;
  bad_input("{}: {}: found no part with element ({}, {}, {}), expected one of {}", folder, wanted.name,
            wanted.axes[0].first + index / columns / rows, wanted.axes[1].first + index / columns % rows,
            wanted.axes[2].first + index % columns, text_of(wanted.axes));
}

}  // namespace

void read_checkpoint(const Checkpoint& checkpoint, std::span<const ShardedTensor> tensors, MemorySpace& memory) {
  std::deque<RankParts> ranks;
  for (int rank = 0; rank < checkpoint.ranks; ++rank) {
    const std::string path = rank_file(checkpoint.folder, rank);
    ranks.push_back({path, read_safetensors(path)});
  }
  for (const ShardedTensor& there : tensors) {
    check_shard(there, memory.kind());
    const HostCopy here(there.data, memory, Widen::no);
    const ShardedTensor wanted{there.name, there.axes, here.view()};
    std::vector<bool> filled(elements_in(wanted.axes));
    for (RankParts& parts : ranks) take_part(parts, wanted, filled);
    require_whole(checkpoint.folder, wanted, filled);
    here.send();
  }
}

}  // namespace moe
