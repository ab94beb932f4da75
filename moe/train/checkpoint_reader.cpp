// Reads checkpoints. A part may be any box of the whole, and so may what is asked for: what both have is copied in runs
// of elements that lie one after the other in either.
#include <algorithm>
#include <deque>
#include <vector>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/export/safetensors_reader.h"
#include "moe/train/checkpoint.h"
#include "moe/train/checkpoint_files.h"

namespace moe {
namespace {

/// Holds one rank's file.
struct RankParts {
  std::string path;
  SafeTensorsFile file;
};

/// Names a run of `count` elements that begins at `from` in the part and at `to` in the tensor.
struct Run {
  int64_t from = 0, to = 0, count = 0;
};

int64_t elements_in(const ShardAxes& axes) { return axes[0].count * axes[1].count * axes[2].count; }

/// Returns the index in a box of an element of the whole.
int64_t index_in(const ShardAxes& box, const std::array<int64_t, 3>& at) {
  return ((at[0] - box[0].first) * box[1].count + at[1] - box[1].first) * box[2].count + at[2] - box[2].first;
}

ShardAxes overlap_of(const ShardAxes& a, const ShardAxes& b) {
  ShardAxes both;
  for (size_t i = 0; i < both.size(); ++i) {
    const int64_t first = std::max(a[i].first, b[i].first);
    const int64_t last = std::min(a[i].first + a[i].count, b[i].first + b[i].count);
    both[i] = {first, std::max<int64_t>(last - first, 0), a[i].total};
  }
  return both;
}

std::vector<Run> runs_of(const ShardAxes& part, const ShardAxes& wanted) {
  ShardAxes both = overlap_of(part, wanted);
  Run run{.count = elements_in(both)};
  if (run.count == 0) return {};
  size_t outer = 0;  // axes before this one are walked along, one element at a time
  for (size_t i = both.size(); i-- > 1 && outer == 0;)
    if (both[i].count != part[i].count || both[i].count != wanted[i].count) outer = i;
  std::vector<Run> runs;
  for (size_t i = 0; i < outer; ++i) run.count /= both[i].count;
  const int64_t rows = outer > 0 ? both[0].count : 1, columns = outer > 1 ? both[1].count : 1;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      const std::array<int64_t, 3> at{both[0].first + i, both[1].first + j, both[2].first};
      run.from = index_in(part, at);
      run.to = index_in(wanted, at);
      runs.push_back(run);
    }
  return runs;
}

/// Returns which part of the whole a stored tensor is; throws unless the whole is the wanted one.
ShardAxes checked_axes(const RankParts& parts, const StoredTensor& stored, const ShardedTensor& wanted) {
  const std::string where = parts.path + ": " + wanted.name;
  const auto note = parts.file.notes().find(stored.name);
  const auto axes = note == parts.file.notes().end() ? std::nullopt : axes_from(note->second);
  require<BadInput>(axes && stored.shape == std::vector{(*axes)[0].count, (*axes)[1].count, (*axes)[2].count},
                    "{}: found {} as its axes, expected first+count/total of three of shape ({})", where,
                    note == parts.file.notes().end() ? "nothing" : shown(note->second), fmt::join(stored.shape, ", "));
  const auto expected = safetensor_type(wanted.data.dtype());
  require<BadInput>(stored.type == expected, "{}: found type {}, expected {}", where, stored.type, expected);
  for (size_t i = 0; i < axes->size(); ++i)
    require<BadInput>((*axes)[i].total == wanted.axes[i].total, "{}: axis {}: found {} in the whole, expected {}",
                      where, i, (*axes)[i].total, wanted.axes[i].total);
  return *axes;
}

/// Fills what `filled` lacks.
void take_part(RankParts& parts, const ShardedTensor& wanted, std::vector<bool>& filled) {
  const StoredTensor* stored = parts.file.find(wanted.name);
  if (stored == nullptr) return;
  const int64_t width = bytes_of(wanted.data.dtype());
  for (const Run& run : runs_of(checked_axes(parts, *stored, wanted), wanted.axes)) {
    const auto first = filled.begin() + run.to, last = first + run.count;
    if (std::find(first, last, false) == last) continue;  // a copy of another rank's
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

void read_checkpoint(const Checkpoint& checkpoint, std::span<const ShardedTensor> tensors) {
  std::deque<RankParts> ranks;
  for (int rank = 0; rank < checkpoint.ranks; ++rank) {
    const std::string path = rank_file(checkpoint.folder, rank);
    ranks.push_back({path, read_safetensors(path)});
  }
  for (const ShardedTensor& wanted : tensors) {
    check_shard(wanted);
    std::vector<bool> filled(static_cast<size_t>(elements_in(wanted.axes)));
    for (RankParts& parts : ranks) take_part(parts, wanted, filled);
    require_whole(checkpoint.folder, wanted, filled);
  }
}

}  // namespace moe
