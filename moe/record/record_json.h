#pragma once
// Records as lines of JSON. One unit sees the JSON library; reader and writer see these functions.
#include <string>
#include <string_view>
#include <variant>

#include "moe/record/record.h"

namespace moe {

struct ResumeMark {
  std::string started;  // UTC, ISO 8601
};
struct EndMark {
  std::string ended;  // UTC, ISO 8601
};
using RecordLine = std::variant<RunHeader, CaseRecord, ResumeMark, EndMark>;

/// One line with its newline.
std::string to_json_line(const RecordLine& line);

/// Whether the text is one complete JSON value, whatever it says: false for a torn line.
bool is_complete_json(std::string_view text);

/// Reads a line. Throws BadInput "WHERE: KEY: found ..., expected ..."; `where` is "FILE:LINE". Keys that are not
/// known are passed over, so that a later version may add some.
RecordLine record_line_from(std::string_view text, const std::string& where);

}  // namespace moe
