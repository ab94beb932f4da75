#include "moe/base/log.h"

#include <fmt/format.h>
#include <memory>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "moe/base/text.h"

namespace moe {
namespace {

using spdlog::level::level_enum;

// Most bytes of a line that are shown. Longer lines mostly consist of a value from a flag or a file.
constexpr size_t kMaxShown = 4000, kShownStart = 1000, kShownEnd = 400;

void set_format(spdlog::sinks::sink& sink, const std::string& pattern, const char* end_of_line) {
  sink.set_formatter(
      std::make_unique<spdlog::pattern_formatter>(pattern, spdlog::pattern_time_type::local, end_of_line));
}

// Makes a logger that is never destroyed, so that code which runs at exit can still log.
spdlog::logger& stderr_logger(const char* pattern, const char* end_of_line) {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  set_format(*sink, pattern, end_of_line);
  return *new spdlog::logger("moetune", std::move(sink));
}

spdlog::logger& lines() {
  static spdlog::logger& logger = stderr_logger("moetune: %v", "\n");
  return logger;
}

spdlog::logger& raw_logger() {
  static spdlog::logger& logger = stderr_logger("%v", "");
  return logger;
}

// Replaces characters from a flag or file that would move a terminal's cursor or begin a new line.
std::string one_line(std::string_view text) {
  if (text.size() <= kMaxShown) return printable(text);
  return printable(text.substr(0, kShownStart)) + " ... " + printable(text.substr(text.size() - kShownEnd));
}

}  // namespace

void set_log_level(LogLevel most) {
  const level_enum level = most == LogLevel::errors     ? level_enum::err
                           : most == LogLevel::progress ? level_enum::info
                                                        : level_enum::debug;
  lines().set_level(level);
  raw_logger().set_level(level);
}

void set_log_rank(std::optional<int> rank) {
  const std::string who = rank ? fmt::format("moetune rank {}", *rank) : "moetune";
  set_format(*lines().sinks().front(), who + ": %v", "\n");
}

void log_error(const std::string& text) { lines().error(one_line(text)); }
void log_warning(const std::string& text) { lines().warn("warning: " + one_line(text)); }
void log_info(const std::string& text) { lines().info(one_line(text)); }
void log_decision(const std::string& text) { lines().debug(one_line(text)); }
void log_progress(const std::string& text) { raw_logger().info(text); }

}  // namespace moe
