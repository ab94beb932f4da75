#pragma once
// Writes what a process says on stderr beside its results: lines that begin "moetune: ", of a rank "moetune rank 3: ".
#include <cstdint>
#include <optional>
#include <string>

namespace moe {

enum class LogLevel : uint8_t { errors, progress, decisions };

/// Sets what the process shows from now on: errors alone, progress and warnings too (the default), or also what each
/// step decided. Threads may log at any time.
void set_log_level(LogLevel most);
/// Sets which of several processes this is, for the beginning of lines; none: it is the only one, as at first.
void set_log_rank(std::optional<int> rank);

/// Shows a line, cut in its middle where it is very long. So do the others but log_progress.
void log_error(const std::string& text);
/// Shows "warning: " before the text.
void log_warning(const std::string& text);
void log_info(const std::string& text);
/// Shows what a step decided.
void log_decision(const std::string& text);
/// Shows the text as it is, which may rewrite a terminal's line.
void log_progress(const std::string& text);

}  // namespace moe
