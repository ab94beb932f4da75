#pragma once
// Finds the data files: configs/{clusters,grids,layers,models}/NAME.toml.
#include <optional>
#include <string>
#include <vector>

namespace moe {

/// Returns the folder `configs`: the environment's MOETUNE_CONFIG_DIR, else the nearest one above the program's own
/// file, of a checkout or in share/moetune, else the one the program was built with. Throws BadInput where none exists.
std::string config_dir();

/// Returns what users type to run the program: "./moetune" in a checkout, else "moetune".
std::string program_word();

/// Returns the names of the .toml files in configs/FOLDER, sorted.
std::vector<std::string> config_names(const std::string& folder);

/// Returns the path of configs/FOLDER/NAME.toml, or of a file, as find_config() does; none: there is none of that name.
std::optional<std::string> known_config(const std::string& folder, const std::string& name_or_path);

/// Returns the path of configs/FOLDER/NAME.toml, or `name_or_path` itself where that is a file or looks like a path
/// (has a '/' or that ending). Throws BadInput that lists the known names, and those that the caller
/// takes besides.
std::string find_config(const std::string& folder, const std::string& name_or_path,
                        const std::vector<std::string>& besides = {});

/// Returns whether `file` is configs/FOLDER/NAME.toml itself, not another that bears its name.
bool is_preset(const std::string& folder, const std::string& name, const std::string& file);

}  // namespace moe
