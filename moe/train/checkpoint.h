#pragma once
// Keeps what a run needs to go on, in FOLDER/step-NNNNNN/: a safetensors file a rank, then a manifest, which makes them
// a checkpoint. Each part knows its place in the whole, so that other numbers of ranks can read it.
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "moe/device/memory.h"
#include "moe/train/shards.h"

namespace moe {

/// A complete checkpoint: its manifest is there, and all files that the manifest names, with the sizes and checksums
/// that it has of them.
struct Checkpoint {
  std::string folder;  // FOLDER/step-NNNNNN
  int64_t step = 0;
  int ranks = 0;         // that wrote it
  std::string settings;  // the text that complete_checkpoint was given
};

/// Writes one rank's part of FOLDER/step-NNNNNN, which `memory` has; makes the folders. A checkpoint of that step that
/// was there counts no more until it is completed again. Throws BadInput naming the file if it can't be written.
void write_checkpoint(const std::string& folder, int64_t step, int rank, std::span<const ShardedTensor> tensors,
                      MemorySpace& memory = cpu_memory());

/// Called by one rank, once all have written: writes the manifest, `settings` in it (any UTF-8 text), then removes
/// the steps that are older than the newest two checkpoints. Throws BadInput naming a rank's file that is not there.
Checkpoint complete_checkpoint(const std::string& folder, int64_t step, int ranks, const std::string& settings);

/// Returns the newest checkpoint of a folder. Skips what is torn, changed or was never completed, with a warning.
/// Returns nothing if no checkpoint was ever completed, or if there is no folder. Throws BadInput if none of the
/// completed ones can be read.
std::optional<Checkpoint> newest_checkpoint(const std::string& folder);

/// Fills each tensor, in `memory`, from whatever parts overlap it. Tensors of the checkpoint that nobody asks for are
/// left out. Throws BadInput naming file and tensor where its type or the whole's shape are others, and folder, tensor
/// and the first element that no part has.
void read_checkpoint(const Checkpoint& checkpoint, std::span<const ShardedTensor> tensors,
                     MemorySpace& memory = cpu_memory());

// The names and texts on which those who write and those who read checkpoints agree.

/// These return "FOLDER/step-000120", and the files in it.
std::string step_folder(const std::string& folder, int64_t step);
std::string rank_file(const std::string& step_folder, int rank);
std::string manifest_file(const std::string& step_folder);

/// Writes the manifest of files that are all there. Throws BadInput naming one that is not.
void write_manifest(const Checkpoint& checkpoint);
/// Returns whether the folder of a step was completed once: its manifest is there, readable or not.
bool is_complete(const std::string& step_folder);
/// Whether files are read to compare their checksums, beside their sizes.
enum class Contents : uint8_t { unread, compared };
/// Returns the whole checkpoint in a folder of a step; nothing, and in `why` the reason, where it is none.
std::optional<Checkpoint> whole_checkpoint(const std::string& step_folder, Contents contents, std::string& why);

}  // namespace moe
