#pragma once
// Models as a Hugging Face config.json describes them, of the families of moe/plan/hf_families.h.
#include <string>

#include "moe/plan/published_model.h"

namespace moe {

/// Returns whether the file is a config.json and no model file: it is named *.json, or begins with '{'.
bool is_hf_config(const std::string& path);

/// Reads a config.json. Its own keys, or those of its text_config, are all understood, or known to change neither shape
/// nor cost, or off (null, false, empty). Throws BadInput "FILE: KEY: found ..., expected ..." for any other.
PublishedModel read_hf_config(const std::string& path);

/// Reads the model of that name or path, of either kind of file.
PublishedModel find_published_model(const std::string& name_or_path);

}  // namespace moe
