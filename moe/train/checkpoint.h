#pragma once
// Checkpoints: FOLDER/step-NNNNNN/ has one safetensors file per rank and a manifest, written last, which completes the
// checkpoint. Each stored part records its place in the whole tensor, so any number of ranks can read it.
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "moe/device/memory.h"
#include "moe/train/shards.h"

namespace moe {

/// A complete checkpoint: it has a manifest and all files that the manifest lists, with the sizes and checksums listed
/// there.
struct Checkpoint {
  std::string folder;  // FOLDER/step-NNNNNN
  int64_t step = 0;
  int ranks = 0;         // number of ranks that wrote it
  std::string settings;  // the text that was passed to complete_checkpoint()
};

/// Writes one rank's part of FOLDER/step-NNNNNN from `memory`; makes the folders. An existing checkpoint of that step
/// is no longer valid until it is completed again. Throws BadInput naming the file if it can't be written.
void write_checkpoint(const std::string& folder, int64_t step, int rank, std::span<const ShardedTensor> tensors,
                      MemorySpace& memory = cpu_memory());

/// Called by one rank, after all have written: writes the manifest with `settings` (any UTF-8 text), then removes the
/// steps older than the newest two checkpoints. Throws BadInput naming a rank's file that does not exist.
Checkpoint complete_checkpoint(const std::string& folder, int64_t step, int ranks, const std::string& settings);

/// Returns the newest checkpoint of a folder. Skips checkpoints that are torn, changed or were never completed, with a
/// warning. Returns nothing if no checkpoint was ever completed, or if there is no folder. Throws BadInput if no
/// completed checkpoint can be read.
std::optional<Checkpoint> newest_checkpoint(const std::string& folder);

/// Fills each tensor, in `memory`, from all stored parts that overlap it. Other tensors of the checkpoint are ignored.
/// Throws BadInput naming file and tensor if the tensor's type or the shape of the whole differs, and BadInput naming
/// folder, tensor and element if no part has some element.
void read_checkpoint(const Checkpoint& checkpoint, std::span<const ShardedTensor> tensors,
                     MemorySpace& memory = cpu_memory());

// The names and texts that are shared by the code that writes and the code that reads checkpoints.

/// Return "FOLDER/step-000120", and the files in it.
std::string step_folder(const std::string& folder, int64_t step);
std::string rank_file(const std::string& step_folder, int rank);
std::string manifest_file(const std::string& step_folder);

/// Writes the manifest, after all ranks' files. Throws BadInput naming a file that is missing.
void write_manifest(const Checkpoint& checkpoint);
/// Returns whether the step in this folder was ever completed: its manifest exists, readable or not.
bool is_complete(const std::string& step_folder);
/// Whether the files' checksums are compared (which reads them), or only their sizes.
enum class Contents : uint8_t { unread, compared };
/// Returns the whole checkpoint in the folder of a step; if it is not one, returns nothing and sets `why`.
std::optional<Checkpoint> validated_checkpoint(const std::string& step_folder, Contents contents, std::string& why);

}  // namespace moe
