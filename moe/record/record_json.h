#pragma once
// Records as lines of JSON. Sources call these functions instead of the JSON library.
#include <string>
#include <string_view>
#include <variant>

#include "moe/base/json.h"
#include "moe/record/record.h"

namespace moe {

struct ResumeMark {
  std::string started;  // UTC, ISO 8601
};
struct EndMark {
  std::string ended;       // UTC, ISO 8601
  Fields conditions = {};  // the conditions (RunHeader) at the end of the run
};
using RecordLine = std::variant<RunHeader, CaseRecord, CaseGroup, ResumeMark, EndMark>;

// The line of a CaseGroup:
//
//   {"kind": "cases", "parameters": {...}, "key": "plan/B1-L256/", "tables": [
//     {"columns": ["key", {"status": "ok"}, "degree_forward", "prediction.total_s", ...],
//      "rows": [["fsmoe", 4, 0.01, ...], ...]}]}
//
// Each row is a case. A column is either a name, whose value is the row's next cell (PART.NAME is a field of an
// object), or an object with a value that all rows share. The key of a case is the line's key followed by the row's.
// All cases of a table have the same keys.

/// Returns the record as one line, including its newline.
std::string to_json_line(const RecordLine& line);

/// Returns whether the text is one complete JSON value of any kind; false for an incomplete line.
bool is_complete_json(std::string_view text);

/// Reads a line; the cases of a group get the group's parameters. Throws BadInput "WHERE: KEY: found ..., expected
/// ..."; `where` is "FILE:LINE". Unknown keys are ignored, so that later versions can add keys.
RecordLine record_line_from(std::string_view text, const std::string& where);

// Fields as JSON, for documents that contain the same values as records.

/// Returns the object {NAME: VALUE, ...} in the order of the fields.
inline Json to_json(const Fields& fields) {
  Json object = Json::object();
  for (const auto& [name, value] : fields) std::visit([&, &key = name](const auto& v) { object[key] = v; }, value);
  return object;
}

}  // namespace moe
