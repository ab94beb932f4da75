#include "moe/train/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <vector>

#include "moe/base/check.h"
#include "moe/base/log.h"
#include "moe/export/safetensors.h"
#include "moe/train/checkpoint_files.h"

namespace fs = std::filesystem;

namespace moe {
namespace {

constexpr int kKept = 2;
constexpr std::string_view kStep = "step-";

/// Returns the steps of a folder, the newest first.
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

/// Removes a step, its manifest first, so that no half-removed checkpoint is taken for one.
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
    else if (whole_checkpoint(path, Contents::unread, why))
      ++whole;
  }
}

}  // namespace

void write_checkpoint(const std::string& folder, int64_t step, int rank, std::span<const ShardedTensor> tensors) {
  require<BadInput>(step >= 0 && rank >= 0, "checkpoint: found step {} of rank {}, expected 0 or more", step, rank);
  const std::string here = step_folder(folder, step);
  std::error_code error;
  fs::create_directories(here, error);
  require<BadInput>(fs::is_directory(here), "{}: cannot be made ({}), expected a folder for a checkpoint", here,
                    error.message());
  fs::remove(manifest_file(here), error);  // or it would be of files of two runs
  std::vector<SafeTensor> stored;
  TensorNotes notes;
  for (const ShardedTensor& t : tensors) {
    check_shard(t);
    const std::span<const std::byte> data(t.data.at(0), static_cast<size_t>(t.data.bytes()));
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
  std::string unreadable;  // the newest of the checkpoints that were complete once
  for (const auto& [step, path] : steps_in(folder)) {
    std::string why;
    if (auto checkpoint = whole_checkpoint(path, Contents::compared, why)) return checkpoint;
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
