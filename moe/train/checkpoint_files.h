#pragma once
// The names and texts on which those who write and those who read checkpoints agree.
#include <cstdint>
#include <string>

#include "moe/train/checkpoint.h"

namespace moe {

/// These return "FOLDER/step-000120", and the files in it.
std::string step_folder(const std::string& folder, int64_t step);
std::string rank_file(const std::string& step_folder, int rank);
std::string manifest_file(const std::string& step_folder);

using ShardAxes = std::array<ShardRange, 3>;
/// Returns "0+4/16 8+8/16 0+1/1", of each axis first, count and total: a note of the tensor's.
std::string text_of(const ShardAxes& axes);
/// Reads that back; nothing for another text or for parts beyond the whole.
std::optional<ShardAxes> axes_from(const std::string& text);

/// Writes the manifest of files that are all there. Throws BadInput naming one that is not.
void write_manifest(const Checkpoint& checkpoint);
/// Returns whether the folder of a step was completed once: its manifest is there, readable or not.
bool is_complete(const std::string& step_folder);
/// Whether files are read to compare their checksums, beside their sizes.
enum class Contents : uint8_t { unread, compared };
/// Returns the whole checkpoint in a folder of a step; nothing, and in `why` the reason, where it is none.
std::optional<Checkpoint> whole_checkpoint(const std::string& step_folder, Contents contents, std::string& why);

/// Throws BadInput naming the tensor unless it is the host's and has its axes' elements.
void check_shard(const ShardedTensor& tensor);

}  // namespace moe
