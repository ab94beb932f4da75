#pragma once
// Finds the data files: configs/{clusters,grids,layers,models}/NAME.toml.
#include <optional>
#include <string>
#include <vector>

namespace moe {

/// Returns the folder `configs`: the environment's MOETUNE_CONFIG_DIR, else the nearest configs or
/// share/moetune/configs above the program, else the folder set when it was built. Throws BadInput if none exists.
std::string config_dir();

/// Returns what users type to run the program: "./moetune" in a checkout, else "moetune".
std::string program_command();

/// Returns the names of the .toml files in configs/FOLDER, sorted.
std::vector<std::string> config_names(const std::string& folder);

/// Returns the path of configs/FOLDER/NAME.toml, or of a file, as find_config() does; none if no such file exists.
std::optional<std::string> known_config(const std::string& folder, const std::string& name_or_path);

/// Returns the path of configs/FOLDER/NAME.toml, or `name_or_path` itself if it is a file or looks like a path (has
/// a '/' or ends in ".toml"). Throws BadInput that lists the known names and the other values that the caller
/// accepts.
std::string find_config(const std::string& folder, const std::string& name_or_path,
                        const std::vector<std::string>& besides = {});

/// Returns whether `file` is configs/FOLDER/NAME.toml itself, not another file of the same name.
bool is_preset(const std::string& folder, const std::string& name, const std::string& file);

}  // namespace moe
