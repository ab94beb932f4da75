#pragma once
// Writes messages, not results, to stderr: lines that begin "moetune: ", or "moetune rank 3: " in a rank's process.
#include <cstdint>
#include <optional>
#include <string>

namespace moe {

enum class LogLevel : uint8_t { errors, progress, decisions };

/// Sets which messages the process shows from now on: only errors; progress and warnings too (the default); or also the
/// decisions of each step. Threads may log at any time.
void set_log_level(LogLevel most);
/// Sets the rank of this process, which is shown at the start of its lines; none (the default): the only process.
void set_log_rank(std::optional<int> rank);

/// Shows a line, which is cut in its middle if it is very long; the other functions, except log_progress, cut it too.
void log_error(const std::string& text);
/// Shows a line that begins with "warning: ".
void log_warning(const std::string& text);
void log_info(const std::string& text);
/// Shows a decision of a step.
void log_decision(const std::string& text);
/// Shows the text unchanged, so that it may rewrite a line of a terminal.
void log_progress(const std::string& text);

}  // namespace moe
